// The body of SpMM over ELL buckets (see ell_buckets.cu), for grids of its own and for fused ones.
#pragma once

#include <spmark/overlap.cuh>
#include <spmark/warp.cuh>

#include "row_target.cuh"

namespace spmark {

constexpr int kUnit = 8;  // slots of a unit, and loads of B that a lane has on their way

// Threads of a multiprocessor, by the sums that each keeps: more threads would spill registers, fewer would wait for
// memory.
template <int vector, int vectors>
constexpr int kResident = vector * vectors > 8 ? 640 : 768;

// ELL rows of one bucket that a block takes. An ELL row is taken by one group of lanes, by the groups of a warp, or by
// the whole block.
struct RowRange {
  int first;      // ELL row, among those of all buckets
  int count;      // items: units, or ELL rows where these are longer than a unit
  int base;       // unit of the first slot
  int width;      // slots of an ELL row, 0 for rows of C without elements
  bool by_block;  // whether the whole block takes an ELL row
  bool by_warp;   // whether the groups of a warp take it
  bool shared;    // whether other ELL rows have pieces of the same rows of C

  static __device__ __forceinline__ RowRange of(int block, const int* __restrict__ ranges) {
    constexpr int kByBlock = 1 << 24, kByWarp = 1 << 25;  // marks beside the width
    const Vec<int, 4> four = load_read_only<4>(ranges + 4 * static_cast<int64_t>(block));
    const int marked = four[3] < 0 ? -four[3] : four[3];
    return {four[0],    four[1], four[2], marked & (kByBlock - 1), (marked & kByBlock) != 0, (marked & kByWarp) != 0,
            four[3] < 0};
  }
};

// The columns that a lane owns, `vectors` vectors that are `kStep` columns apart: the lane's places in B, and those of
// its sums, which are stored to C for whole rows and added to other sums for shared rows.
template <typename T, int vector, int vectors, int lanes>
struct Columns {
  static constexpr int kStep = lanes * vector;

  const T* dense;
  T* out;
  float* sums;
  unsigned row_bytes;
  int width;
  int first;
  bool shared;

  __device__ __forceinline__ bool active(int v) const { return first + v * kStep < width; }

  // Past the last column the lane reads B's first column and drops the sum.
  __device__ __forceinline__ void load(Packed<T, vector> (&part)[vectors], int row) const {
    const T* from = row_of(dense + (active(0) ? first : 0), row, row_bytes);
#pragma unroll
    for (int v = 0; v < vectors; ++v) part[v] = load_packed<vector>(from + (active(v) ? v * kStep : 0));
  }

  // Write the sums of a row, unless the row is negative (an ELL row that only fills a unit), and clear the sums.
  __device__ __forceinline__ void write(int row, Vec<float, vector> (&sum)[vectors]) const {
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
      if (row >= 0 && active(v)) {
        if (shared)
          atomic_add(row_of(shared_sums(out, sums) + first + v * kStep, row, width * sizeof(float)), sum[v]);
        else  // C is not read again: B stays in L2
          store_streaming(row_of(out + first + v * kStep, row, row_bytes), round_to<T>(sum[v]));
      }
      sum[v] = zeros<float, vector>();
    }
  }
};

// The logarithm of a power of two. Blocks shift by it: a division before the first loads would hold up all of them.
__device__ __forceinline__ constexpr int log_of(int n) { return n > 1 ? 1 + log_of(n / 2) : 0; }

// 2^31 / n rounded up: the high word of (2 i + 1) times it is i / n. The half by which i is raised keeps the rounding
// from counting, for i below 2^15 where n is 3 * 2^k of at most 24,576, and for any i where n is 2^k.
__device__ __forceinline__ unsigned inverse_of(unsigned n) {
  const int log = 31 - __clz(n);
  return n & (n - 1) ? (0xffffffffu / 3 >> log) + 1 : 1u << (31 - log);
}

// One slot of an ELL row: each lane of a group holds one slot, and shuffles show the slot to the other lanes. The
// column is negative in a slot without an element.
template <typename T>
struct Slot {
  int column;
  T value;
  int row;
};

// The work of one group in a bucket: `size` slots, the first `part` of each ELL row, with `gap` slots of other groups
// between them.
template <typename T, int lanes>
struct SlotRun {
  const int* __restrict__ indices;
  const T* __restrict__ values;
  const int* __restrict__ rows;
  int size;
  unsigned inverse;  // of `part`
  int gap;

  // Whether slots are kept as they come from memory until they are needed: halves must be converted, which waits for
  // the loads. A float is ready, and checked where it is loaded: on an H200 that was up to 15 % faster.
  static constexpr bool kLate = sizeof(T) < sizeof(float);

  // This lane's slot of a chunk of `lanes`, to be given to `arrived`.
  __device__ __forceinline__ Slot<T> fetch(int chunk, int lane) const {
    const int i = min(chunk * lanes + lane, max(size - 1, 0));
    const int row = __umulhi(2 * i + 1, inverse);
    const int at = i + row * gap;
    const Slot<T> found{load_streaming<1>(indices + at)[0], load_streaming<1>(values + at)[0], rows[row]};
    if constexpr (kLate) return found;
    return kept(found, found.value, chunk, lane);
  }

  // What `fetch` has brought.
  __device__ __forceinline__ Slot<float> arrived(const Slot<T>& fetched, int chunk, int lane) const {
    if constexpr (kLate) return kept(fetched, to_float(fetched.value), chunk, lane);
    return {fetched.column, to_float(fetched.value), fetched.row};
  }

private:
  // A slot with its value; past the end a slot without an element and without a row.
  template <typename Value>
  __device__ __forceinline__ Slot<Value> kept(const Slot<T>& slot, Value value, int chunk, int lane) const {
    const bool inside = chunk * lanes + lane < size;
    return {inside ? slot.column : -1, value, inside ? slot.row : -1};
  }
};

// Add up a run; every `per_row` elements an ELL row ends, and its sum is written. `narrow`: `per_row` is less than the
// elements on their way. `by_warp`: each group of the warp has a part of the row.
//
// kUnit loads of B are on their way at any time: once a load has been added, its registers wait for the same columns of
// an element further on. The elements themselves are fetched two chunks ahead. Every group of a warp makes the steps
// that `elements` take, so that shuffles find every lane. Short code makes small grids fast, because the code comes
// from a cold cache as well.
//
// A slot without an element loads nothing. Its registers keep the values of another row, so they are not added: 0 times
// an infinity of that row would be NaN. Load and addition are instructions under a predicate, not jumps, since a group
// of a warp may skip a slot where its neighbour has an element.
template <int lanes, bool narrow, typename T, int vector, int vectors>
__device__ __forceinline__ void walk(const SlotRun<T, lanes>& run, int elements, int per_row, bool by_warp,
                                     const Columns<T, vector, vectors, lanes>& columns,
                                     Vec<float, vector> (&sum)[vectors]) {
  constexpr int kDepth = kUnit / vectors;  // elements whose rows of B are on their way
  constexpr int kSteps = lanes / kDepth;   // of a chunk
  const int lane = threadIdx.x % lanes;
  const int base = lane_id() - lane;
  Slot<T> later = run.fetch(1, lane);
  Slot<float> now = run.arrived(run.fetch(0, lane), 0, lane), next = run.arrived(later, 1, lane);
  Packed<T, vector> part[kDepth][vectors] = {};                         // without a value, sm_100 would spill others
  unsigned loaded = __ballot_sync(kFullMask, now.column >= 0) >> base;  // bit e: part[e] has a row of B
  int row_end = per_row / kDepth;                                       // step at which the ELL row ends
#pragma unroll
  for (int e = 0; e < kDepth; ++e) {
    const int from = __shfl_sync(kFullMask, now.column, base + e);
    if (from >= 0) columns.load(part[e], from);
  }
  if (columns.shared) wait_for_previous_grid();  // it clears the rows that are added into; loads need not wait
#pragma unroll 1
  for (int u = 0; u < elements / kDepth; ++u) {
    const int place = base + u % kSteps * kDepth;
    const int next_place = base + (u + 1) % kSteps * kDepth;
    if (place == base) later = run.fetch(u / kSteps + 2, lane);
    const int ahead = next_place == base ? next.column : now.column;
    const unsigned loading = __ballot_sync(kFullMask, ahead >= 0) >> next_place;
#pragma unroll
    for (int e = 0; e < kDepth; ++e) {
      const float value = __shfl_sync(kFullMask, now.value, place + e);
      if (loaded >> e & 1)
#pragma unroll
        for (int v = 0; v < vectors; ++v) axpy(sum[v], value, part[e][v]);
      const int from = __shfl_sync(kFullMask, ahead, next_place + e);
      if (from >= 0) columns.load(part[e], from);
      if (narrow ? ((e + 1) & (per_row - 1)) == 0 : e == kDepth - 1 && u + 1 == row_end) {
        if (!narrow && by_warp) sum_parts_of_group<lanes, kWarpSize>(sum);
        const int to = __shfl_sync(kFullMask, now.row, place + e);
        columns.write(by_warp && base != 0 ? -1 : to, sum);
        row_end += per_row / kDepth;
      }
    }
    loaded = loading;
    if (next_place == base) {
      now = next;
      next = run.arrived(later, u / kSteps + 2, lane);
    }
  }
}

// C[rows[r], j] (+)= sum_s values[r, s] B[indices[r, s], j].
//
// A block owns a range of one bucket and a tile of vectors * lanes * vector columns; each group of `lanes` threads
// takes a run of the range's units, or of its ELL rows where these are longer than a unit. Where the range says so, the
// groups of a warp share each ELL row and add up by shuffles, or the whole block shares it and adds up in shared
// memory. Rows of C without elements are a range, too, and get their zeros here.
//   ranges    4 integers a block (RowRange): first ELL row; items; base over kUnit; width with the mark of who takes a
//             row, negative where rows are shared
//   rows      row of A of every ELL row, or -1
//   indices   columns of the elements, each bucket row-major, -1 in slots without an element
//   values    elements, likewise
//   dense     B, num_cols x width, row-major; aligned to vector elements, and so is width
//   out       C, num_rows x width, row-major: rows that are not shared are written whole
//   sums      16 bits only: float32 of `width` columns, indexed by the shared ELL rows' entries of `rows`
// Shared rows of C (float32) or of sums (16 bits) are cleared by the grid before, with which this one may overlap.
template <typename T, int vector, int vectors, int lanes, int threads>
struct EllBuckets {
  static_assert(threads % lanes == 0 && lanes >= kUnit, "groups fill the block and hold a unit");
  static_assert(sizeof(T) * vector <= 16, "a vector is loaded at once");
  static constexpr int kGroups = threads / lanes;
  static constexpr int kColumns = vector * vectors * lanes;

  struct Shared {
    Vec<float, vector> parts[threads];
  };

  static __device__ __forceinline__ void run(Shared& memory, int block, int tile, int width,
                                             const int* __restrict__ ranges, const int* __restrict__ rows,
                                             const int* __restrict__ indices, const T* __restrict__ values,
                                             const T* __restrict__ dense, T* out, float* sums) {
    const RowRange range = RowRange::of(block, ranges);
    const int group = threadIdx.x / lanes;
    const int lane = threadIdx.x % lanes;
    const int column = (tile * vectors * lanes + lane) * vector;
    const unsigned row_bytes = width * unsigned(sizeof(T));
    const Columns<T, vector, vectors, lanes> columns{dense, out, sums, row_bytes, width, column, range.shared};
    Vec<float, vector> sum[vectors];
#pragma unroll
    for (int v = 0; v < vectors; ++v) sum[v] = zeros<float, vector>();

    if (range.width == 0) {
#pragma unroll 1
      for (int r = group; r < range.count; r += kGroups) columns.write(rows[range.first + r], sum);
      return;
    }
    // A team of groups shares each item of the range, a unit or a longer ELL row, in equal parts of whole units. Teams
    // have as many items each, which they take in one walk; a block that is one team walks item by item.
    const int item = max(range.width, kUnit);
    const int log = range.by_block ? log_of(kGroups) : range.by_warp ? log_of(kWarpSize / lanes) : 0;
    const int team = 1 << log;
    const int part = range.by_block ? (item / kUnit + team - 1) >> log << log_of(kUnit) : item >> log;
    const int own = min(part, range.width);  // of an ELL row
    const int offset = min((group & (team - 1)) * part, item);
    const int items = ((range.count << log) + kGroups - 1) / kGroups;
    const int first = min((group >> log) * items, range.count);
    const int count = min(items, range.count - first);
    const int64_t base = static_cast<int64_t>(range.base) * kUnit;

#pragma unroll 1
    for (int r = 0; r < (range.by_block ? range.count : 1); ++r) {
      const int begin = range.by_block ? r : first < range.count ? first : 0;
      const int64_t at = base + static_cast<int64_t>(begin) * item + (offset < item ? offset : 0);
      const int size = range.by_block ? min(part, item - offset) : count * part;
      const int row = range.first + begin * max(kUnit >> (31 - __clz(range.width)), 1);
      const SlotRun<T, lanes> run{indices + at, values + at, rows + row, size, inverse_of(own), range.width - own};
      if (range.width < kUnit / vectors) {
        walk<lanes, true>(run, items * part, own, false, columns, sum);
      } else {
        walk<lanes, false>(run, range.by_block ? part : items * part, range.by_block ? 1 << 30 : own, range.by_warp,
                           columns, sum);
      }
      if (!range.by_block) return;
      add_groups(memory, size > 0, group, lane, rows + row, columns, sum);
    }
  }

private:
  // Add up the sums that the groups of the block have of one ELL row, and write the total to row `*row`.
  static __device__ __forceinline__ void add_groups(Shared& memory, bool any, int group, int lane,
                                                    const int* __restrict__ row,
                                                    const Columns<T, vector, vectors, lanes>& columns,
                                                    Vec<float, vector> (&sum)[vectors]) {
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
      memory.parts[threadIdx.x] = any ? sum[v] : zeros<float, vector>();
      __syncthreads();  // the first group adds up the sums of all groups
      sum[v] = zeros<float, vector>();
#pragma unroll 1
      for (int g = 0; group == 0 && g < kGroups; ++g) axpy(sum[v], 1.0f, memory.parts[g * lanes + lane]);
      __syncthreads();  // no group overwrites sums that the first group still reads
    }
    columns.write(group == 0 ? *row : -1, sum);
  }
};

}  // namespace spmark
