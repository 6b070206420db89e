// SDDMM over strips of rows in the manner of Sputnik. Deterministic: no atomics.
//
// Gale, Zaharia, Young and Elsen, "Sparse GPU Kernels for Deep Learning", SC 2020, section 6: a subwarp computes
// consecutive non-zeros of one row, its threads share out the inner dimension and add up their partial sums at the end.

#include <spmark/half.cuh>
#include <spmark/vec.cuh>
#include <spmark/warp.cuh>

using namespace spmark;

// Add up `count` sums over the lanes of a subwarp by halving: in each step a lane keeps the half of the sums that its
// side is to have, and hands the other half on. Afterwards lane l holds sum r of all lanes for r = l (count / lanes) +
// 0, 1...
template <int lanes, int count>
__device__ __forceinline__ void transpose_sum(float (&sum)[count], int lane, unsigned members) {
  static_assert(count >= lanes, "every lane ends with a sum");
#pragma unroll
  for (int step = lanes / 2, held = count; step > 0; step /= 2, held /= 2) {
    const bool upper = (lane & step) != 0;
#pragma unroll
    for (int i = 0; i < held / 2; ++i) {
      const float mine = upper ? sum[i + held / 2] : sum[i];
      const float theirs = upper ? sum[i] : sum[i + held / 2];
      sum[i] = mine + shuffle_xor(members, theirs, step);
    }
  }
}

// D[p] = sum_j X[row of p, j] Y[indices[p], j], times values[p] where `scaled` is not 0.
//
// A subwarp of `lanes` threads owns a strip of up to `strip` consecutive non-zeros of one row; a block holds
// threads / lanes strips that follow each other in `strips`, so that their lengths are alike.
//   strips    of each strip row, first non-zero and number of non-zeros, then 0; longest first
//   indices   nnz columns, in CSR order
//   values    nnz values, likewise; not read unless scaled
//   x         num_rows x width, row-major; aligned to vector elements, and so is width
//   y         num_cols x width, likewise
//   out       nnz results
template <typename T, int vector, int lanes, int strip, int threads>
__global__ void __launch_bounds__(threads)
    sddmm_rowsplit(int num_strips, int width, int scaled, const int* __restrict__ strips,
                   const int* __restrict__ indices, const T* __restrict__ values, const T* __restrict__ x,
                   const T* __restrict__ y, T* __restrict__ out) {
  static_assert(threads % 32 == 0 && 32 % lanes == 0, "a subwarp is a part of one warp");
  static_assert(sizeof(T) * vector <= 16, "a vector is loaded at once");
  constexpr int kFlight = 8;  // rows of Y on their way, held in registers
  static_assert(strip % kFlight == 0, "a strip is taken in whole flights");
  const int slot = blockIdx.x * (threads / lanes) + threadIdx.x / lanes;
  const int lane = threadIdx.x % lanes;
  if (slot >= num_strips) return;  // the subwarp leaves together; shuffles name the subwarp alone
  const Vec<int, 4> mine = load_read_only<4>(strips + 4 * static_cast<int64_t>(slot));
  const int count = mine[2];
  const T* left = x + static_cast<int64_t>(mine[0]) * width;

  float sum[strip] = {};
#pragma unroll
  for (int f = 0; f < strip; f += kFlight) {
    if (f >= count) break;
    const T* right[kFlight];
#pragma unroll
    for (int i = 0; i < kFlight; ++i)  // past the end the last row is read again, from a cache, and not written
      right[i] = y + static_cast<int64_t>(indices[mine[1] + min(f + i, count - 1)]) * width;
    for (int j = lane * vector; j < width; j += lanes * vector) {
      const Vec<T, vector> of_row = load_read_only<vector>(left + j);
#pragma unroll
      for (int i = 0; i < kFlight; ++i) sum[f + i] = dot(of_row, load_read_only<vector>(right[i] + j), sum[f + i]);
    }
  }

  transpose_sum<lanes>(sum, lane, group_mask<lanes>());
#pragma unroll
  for (int i = 0; i < strip / lanes; ++i) {
    const int at = lane * (strip / lanes) + i;
    if (at >= count) break;
    const int p = mine[1] + at;
    out[p] = from_float<T>(scaled ? sum[i] * to_float(values[p]) : sum[i]);
  }
}
