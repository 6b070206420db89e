// The body of SpMM over ELL buckets (see ell_buckets.cu), for grids of its own and for fused ones.
#pragma once

#include <spmark/overlap.cuh>
#include <spmark/warp.cuh>

#include "row_target.cuh"

namespace spmark {

constexpr int kUnit = 8;            // elements of a unit, and loads of B that a lane has on their way
constexpr int kTogether = 1 << 24;  // mark of ranges whose ELL rows the whole block takes together
constexpr int kSpread = 1 << 25;    // mark of ranges whose ELL rows are spread over the groups of a warp

// Threads of a multiprocessor, by the sums that each keeps: more threads would spill registers, fewer would wait for
// memory.
template <int vector, int vectors>
constexpr int kResident = vector * vectors > 8 ? 640 : 768;

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
struct Element {
  int column;
  T value;
  int row;
};

// The work of one group in a bucket: `size` elements, the first `part` of each ELL row, with `gap` slots of other
// groups between them.
template <typename T, int lanes>
struct Run {
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
  __device__ __forceinline__ Element<T> fetch(int chunk, int lane) const {
    const int i = min(chunk * lanes + lane, max(size - 1, 0));
    const int row = __umulhi(2 * i + 1, inverse);
    const int at = i + row * gap;
    const Element<T> found{load_streaming<1>(indices + at)[0], load_streaming<1>(values + at)[0], rows[row]};
    if constexpr (kLate) return found;
    return kept(found, found.value, chunk, lane);
  }

  // What `fetch` has brought.
  __device__ __forceinline__ Element<float> arrived(const Element<T>& fetched, int chunk, int lane) const {
    if constexpr (kLate) return kept(fetched, to_float(fetched.value), chunk, lane);
    return {fetched.column, to_float(fetched.value), fetched.row};
  }

private:
  // A slot with its value; past the end a slot without an element and without a row.
  template <typename Value>
  __device__ __forceinline__ Element<Value> kept(const Element<T>& slot, Value value, int chunk, int lane) const {
    const bool inside = chunk * lanes + lane < size;
    return {inside ? slot.column : -1, value, inside ? slot.row : -1};
  }
};

// Add up the sums of a warp's groups; all groups get the total.
template <int lanes, int vector, int vectors>
__device__ __forceinline__ void sum_over_groups(Vec<float, vector> (&sum)[vectors]) {
#pragma unroll
  for (int step = lanes; step < kWarpSize; step *= 2)
#pragma unroll
    for (int v = 0; v < vectors; ++v)
#pragma unroll
      for (int i = 0; i < vector; ++i) sum[v][i] += shuffle_xor(kFullMask, sum[v][i], step);
}

// Add up a run; every `per_row` elements an ELL row ends, and its sum is written. `narrow`: `per_row` is less than the
// elements on their way. `spread`: each group of the warp has a part of the row.
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
__device__ __forceinline__ void walk(const Run<T, lanes>& run, int elements, int per_row, bool spread,
                                     const Columns<T, vector, vectors, lanes>& columns,
                                     Vec<float, vector> (&sum)[vectors]) {
  constexpr int kDepth = kUnit / vectors;  // elements whose rows of B are on their way
  constexpr int kSteps = lanes / kDepth;   // of a chunk
  const int lane = threadIdx.x % lanes;
  const int base = lane_id() - lane;
  Element<T> later = run.fetch(1, lane);
  Element<float> now = run.arrived(run.fetch(0, lane), 0, lane), next = run.arrived(later, 1, lane);
  Packed<T, vector> part[kDepth][vectors] = {};                  // without a value, sm_100 would spill others
  unsigned loaded = ballot(kFullMask, now.column >= 0) >> base;  // bit e: part[e] has a row of B
  int row_end = per_row / kDepth;                                // step at which the ELL row ends
#pragma unroll
  for (int e = 0; e < kDepth; ++e) {
    const int from = shuffle(kFullMask, now.column, base + e);
    if (from >= 0) columns.load(part[e], from);
  }
  if (columns.shared) wait_for_previous_grid();  // it clears the rows that are added into; loads need not wait
#pragma unroll 1
  for (int u = 0; u < elements / kDepth; ++u) {
    const int place = base + u % kSteps * kDepth;
    const int next_place = base + (u + 1) % kSteps * kDepth;
    if (place == base) later = run.fetch(u / kSteps + 2, lane);
    const int ahead = next_place == base ? next.column : now.column;
    const unsigned loading = ballot(kFullMask, ahead >= 0) >> next_place;
#pragma unroll
    for (int e = 0; e < kDepth; ++e) {
      const float value = shuffle(kFullMask, now.value, place + e);
      if (loaded >> e & 1)
#pragma unroll
        for (int v = 0; v < vectors; ++v) axpy(sum[v], value, part[e][v]);
      const int from = shuffle(kFullMask, ahead, next_place + e);
      if (from >= 0) columns.load(part[e], from);
      if (narrow ? ((e + 1) & (per_row - 1)) == 0 : e == kDepth - 1 && u + 1 == row_end) {
        if (!narrow && spread) sum_over_groups<lanes>(sum);
        const int to = shuffle(kFullMask, now.row, place + e);
        columns.write(spread && base != 0 ? -1 : to, sum);
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
// memory.
//   ranges    4 integers a block: first ELL row of all; units, or ELL rows; base of the range's elements over kUnit;
//             slots of an ELL row, plus kSpread or kTogether where rows are taken so, negative where rows are shared,
//             0 for rows of C without elements, which get their zeros here
//   rows      row of A of every ELL row, or -1
//   indices   columns of the elements, each bucket row-major, -1 in slots without an element
//   values    elements, likewise
//   dense     B, num_cols x width, row-major; aligned to vector elements, and so is width
//   out       C, num_rows x width, row-major: rows that are not shared are written whole
//   sums      float16 only: float32 of `width` columns, indexed by the shared ELL rows' entries of `rows`
// Shared rows of C (float32) or of sums (float16) are cleared by the grid before, with which this one may overlap.
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
    const Vec<int, 4> range = load_read_only<4>(ranges + 4 * static_cast<int64_t>(block));
    const int group = threadIdx.x / lanes;
    const int lane = threadIdx.x % lanes;
    const bool shared = range[3] < 0;
    const int kind = shared ? -range[3] : range[3];
    const bool together = kind & kTogether;
    const bool spread = kind & kSpread;
    const int slots = kind & (kTogether - 1);
    const int column = (tile * vectors * lanes + lane) * vector;
    const Columns<T, vector, vectors, lanes> columns{dense, out,    sums,  width * unsigned(sizeof(T)),
                                                     width, column, shared};
    Vec<float, vector> sum[vectors];
#pragma unroll
    for (int v = 0; v < vectors; ++v) sum[v] = zeros<float, vector>();

    if (slots == 0) {
#pragma unroll 1
      for (int r = group; r < range[1]; r += kGroups) columns.write(rows[range[0] + r], sum);
      return;
    }
    // A team of groups shares each item of the range, a unit or a longer ELL row, in equal parts of whole units.
    const int item = max(slots, kUnit);
    const int log = together ? log_of(kGroups) : spread ? log_of(kWarpSize / lanes) : 0;
    const int team = 1 << log;
    const int part = together ? (item / kUnit + team - 1) >> log << log_of(kUnit) : item >> log;
    const int own = min(part, slots);  // of an ELL row
    const int offset = min((group & (team - 1)) * part, item);
    const int share = ((range[1] << log) + kGroups - 1) / kGroups;  // items of a team
    const int first = min((group >> log) * share, range[1]);
    const int count = min(share, range[1] - first);
    const int64_t base = static_cast<int64_t>(range[2]) * kUnit;

#pragma unroll 1
    for (int r = 0; r < (together ? range[1] : 1); ++r) {
      const int begin = together ? r : first < range[1] ? first : 0;
      const int64_t at = base + static_cast<int64_t>(begin) * item + (offset < item ? offset : 0);
      const int size = together ? min(part, item - offset) : count * part;
      const int row = range[0] + begin * max(kUnit >> (31 - __clz(slots)), 1);
      const Run<T, lanes> run{indices + at, values + at, rows + row, size, inverse_of(own), slots - own};
      if (slots < kUnit / vectors) {
        walk<lanes, true>(run, share * part, own, false, columns, sum);
      } else {
        walk<lanes, false>(run, together ? part : share * part, together ? 1 << 30 : own, spread, columns, sum);
      }
      if (!together) return;
#pragma unroll
      for (int v = 0; v < vectors; ++v) {
        memory.parts[threadIdx.x] = size > 0 ? sum[v] : zeros<float, vector>();
        __syncthreads();  // the first group adds up the sums of all groups
        sum[v] = zeros<float, vector>();
#pragma unroll 1
        for (int g = 0; group == 0 && g < kGroups; ++g) axpy(sum[v], 1.0f, memory.parts[g * lanes + lane]);
        __syncthreads();  // no group overwrites sums that the first group still reads
      }
      columns.write(group == 0 ? rows[row] : -1, sum);
    }
  }
};

}  // namespace spmark
