// SpMM over ELL buckets: many formats at once in one compute grid.
//
// The mapping is that of SparseTIR's hyb schedule (Ye et al., ASPLOS 2023, section 4.2.1), with blocks of equal work
// that look up which bucket they belong to. Where rows are shared between ELL rows their sums are added atomically, in
// an order that is not fixed; all else is deterministic.

#include <spmark/atomic.cuh>
#include <spmark/half.cuh>
#include <spmark/vec.cuh>

using namespace spmark;

constexpr int kUnit = 8;            // elements that a group takes at once: 8 rows of B on their way
constexpr int kTogether = 1 << 24;  // mark of ranges whose ELL rows the whole block takes together

// Columns and values of one unit.
template <typename T>
struct Unit {
  int columns[kUnit];
  float values[kUnit];
};

template <typename T>
__device__ __forceinline__ Unit<T> load_unit(const int* __restrict__ indices, const T* __restrict__ values,
                                             int64_t at) {
  constexpr int kValues = 16 / sizeof(T);  // values of one load
  Unit<T> unit;
#pragma unroll
  for (int e = 0; e < kUnit; e += 4) {
    const Vec<int, 4> part = load_streaming<4>(indices + at + e);
#pragma unroll
    for (int i = 0; i < 4; ++i) unit.columns[e + i] = part[i];
  }
#pragma unroll
  for (int e = 0; e < kUnit; e += kValues) {
    const Vec<T, kValues> part = load_streaming<kValues>(values + at + e);
#pragma unroll
    for (int i = 0; i < kValues; ++i) unit.values[e + i] = to_float(part[i]);
  }
  return unit;
}

// Where sums of shared rows are added up: C itself in float32, a float32 workspace in float16.
__device__ __forceinline__ float* shared_sums(float* out, float*) { return out; }
__device__ __forceinline__ float* shared_sums(half*, float* sums) { return sums; }

// Where sums go: whole rows to C, shared rows are added to others'.
template <typename T, int vector>
struct Target {
  T* out;
  float* sums;
  int width;
  int column;
  bool shared;

  __device__ __forceinline__ void write(int row, const Vec<float, vector>& sum) const {
    if (row < 0) return;  // an ELL row that only fills a unit
    const int64_t at = static_cast<int64_t>(row) * width + column;
    if (shared)
      atomic_add(shared_sums(out, sums) + at, sum);
    else
      store_streaming(out + at, round_to<T>(sum));  // C is not read again: it must not push B out of L2
  }
};

// One unit holds kUnit / slots ELL rows of `slots` elements each.
template <int slots, typename T, int vector>
__device__ __forceinline__ void narrow(const Unit<T>& unit, const T* __restrict__ dense, const int* __restrict__ rows,
                                       const Target<T, vector>& target) {
  Vec<T, vector> part[kUnit];
#pragma unroll
  for (int e = 0; e < kUnit; ++e)
    part[e] = load_read_only<vector>(dense + static_cast<int64_t>(unit.columns[e]) * target.width + target.column);
#pragma unroll
  for (int r = 0; r < kUnit / slots; ++r) {
    Vec<float, vector> sum = zeros<float, vector>();
#pragma unroll
    for (int s = 0; s < slots; ++s) axpy(sum, unit.values[r * slots + s], part[r * slots + s]);
    target.write(rows[r], sum);
  }
}

// Sum over every `stride`-th unit of an ELL row, from `first` on; the next unit's columns arrive while this one's rows
// of B do.
template <typename T, int vector>
__device__ __forceinline__ Vec<float, vector>
sum_units(int first, int stride, int units, const int* __restrict__ indices, const T* __restrict__ values, int64_t at,
          const T* __restrict__ dense, int width, int column) {
  Vec<float, vector> sum = zeros<float, vector>();
  if (first >= units) return sum;
  Unit<T> unit = load_unit(indices, values, at + static_cast<int64_t>(first) * kUnit);
  for (int u = first; u < units; u += stride) {
    Vec<T, vector> part[kUnit];
#pragma unroll
    for (int e = 0; e < kUnit; ++e)
      part[e] = load_read_only<vector>(dense + static_cast<int64_t>(unit.columns[e]) * width + column);
    Unit<T> next;
    const bool more = u + stride < units;
    if (more) next = load_unit(indices, values, at + static_cast<int64_t>(u + stride) * kUnit);
#pragma unroll
    for (int e = 0; e < kUnit; ++e) axpy(sum, unit.values[e], part[e]);
    if (more) unit = next;
  }
  return sum;
}

// C[rows[r], j] (+)= sum_s values[r, s] B[indices[r, s], j].
//
// A block owns a range of one bucket's units and a tile of lanes * vector columns; a group of `lanes` threads takes
// every (threads / lanes)-th unit of the range, or ELL row where these are longer than a unit.
// Where the range says so the whole block takes each of its ELL rows together and adds up in shared memory.
//   ranges    4 integers a block: first ELL row of all, units (or ELL rows), base of the range's elements over kUnit,
//   and
//             slots of an ELL row plus kTogether where the block takes rows together, negative where rows are shared
//   rows      row of A of every ELL row, or -1;   indices, values   elements, each bucket row-major
//   dense     B, num_cols x width, row-major; aligned to vector elements, and so is width
//   out       C, num_rows x width, row-major: rows that are not shared are written whole
//   sums      float16 only: float32 of `width` columns, indexed by the shared ELL rows' entries of `rows`
// Shared rows of C (float32) or of sums (float16) are cleared before this grid.
template <typename T, int vector, int lanes, int threads>
__global__ void __launch_bounds__(threads)
    spmm_ell_buckets(int width, const int* __restrict__ ranges, const int* __restrict__ rows,
                     const int* __restrict__ indices, const T* __restrict__ values, const T* __restrict__ dense, T* out,
                     float* sums) {
  static_assert(threads % lanes == 0, "groups fill the block");
  static_assert(sizeof(T) * vector <= 16, "a vector is loaded at once");
  constexpr int kGroups = threads / lanes;
  __shared__ Vec<float, vector> parts[threads];
  const Vec<int, 4> range = load_read_only<4>(ranges + 4 * static_cast<int64_t>(blockIdx.x));
  const int group = threadIdx.x / lanes;
  const int lane = threadIdx.x % lanes;
  const int column = (blockIdx.y * lanes + lane) * vector;
  const bool active = column < width;
  const bool together = (range[3] < 0 ? -range[3] : range[3]) >= kTogether;
  const int slots = (range[3] < 0 ? -range[3] : range[3]) - (together ? kTogether : 0);
  const Target<T, vector> target{out, sums, width, column, range[3] < 0};
  const int64_t base = static_cast<int64_t>(range[2]) * kUnit;

  if (together) {
    for (int r = 0; r < range[1]; ++r) {
      const int64_t at = base + static_cast<int64_t>(r) * slots;
      if (active)
        parts[threadIdx.x] =
            sum_units<T, vector>(group, kGroups, slots / kUnit, indices, values, at, dense, width, column);
      __syncthreads();  // the first group adds up what all have found
      if (group == 0 && active) {
        Vec<float, vector> sum = parts[lane];
        for (int g = 1; g < kGroups; ++g) axpy(sum, 1.0f, parts[g * lanes + lane]);
        target.write(rows[range[0] + r], sum);
      }
      __syncthreads();  // nobody writes over what the first group still reads
    }
    return;
  }
  if (!active) return;  // no barrier follows
  for (int u = group; u < range[1]; u += kGroups) {
    if (slots >= kUnit) {
      const int64_t at = base + static_cast<int64_t>(u) * slots;
      target.write(rows[range[0] + u],
                   sum_units<T, vector>(0, 1, slots / kUnit, indices, values, at, dense, width, column));
      continue;
    }
    const Unit<T> unit = load_unit(indices, values, base + static_cast<int64_t>(u) * kUnit);
    const int* unit_rows = rows + range[0] + u * (kUnit / slots);
    if (slots == 4)
      narrow<4>(unit, dense, unit_rows, target);
    else if (slots == 2)
      narrow<2>(unit, dense, unit_rows, target);
    else
      narrow<1>(unit, dense, unit_rows, target);
  }
}

// out[rows[r], j] = sums[r, j] rounded to T: shared rows that were added up in float32.
//   rows   num_shared distinct rows;  sums   num_shared x width;  out   row-major, `width` columns
template <typename T, int vector, int threads>
__global__ void __launch_bounds__(threads) round_shared_rows(int num_shared, int width, const int* __restrict__ rows,
                                                             const float* __restrict__ sums, T* __restrict__ out) {
  static_assert(sizeof(T) * vector <= 16, "a vector is stored at once");
  for (int r = blockIdx.x; r < num_shared; r += gridDim.x) {
    for (int j = threadIdx.x * vector; j < width; j += threads * vector) {
      Vec<float, vector> sum;
#pragma unroll
      for (int i = 0; i < vector; ++i) sum[i] = sums[static_cast<int64_t>(r) * width + j + i];
      store(out + static_cast<int64_t>(rows[r]) * width + j, round_to<T>(sum));
    }
  }
}
