// The softmax of each row's non-zeros, and its gradient. A warp owns a row, whose elements it reads again from L1 or
// L2: once for each sum over the row, and once more to write. Deterministic.

#include <spmark/half.cuh>
#include <spmark/warp.cuh>

using namespace spmark;

// This thread's row, of which a warp has one; the block's last warps have none.
template <int threads>
__device__ __forceinline__ int64_t row_of_warp() {
  return static_cast<int64_t>(blockIdx.x) * (threads / kWarpSize) + threadIdx.x / kWarpSize;
}

// shares[p] = exp(scores[p] - m) / sum of exp(scores[q] - m) over the row's q, where m is the row's largest score.
//   indptr          num_rows + 1 offsets
//   scores, shares  nnz elements, in CSR order
template <typename T, int threads>
__global__ void __launch_bounds__(threads)
    softmax_rows(int num_rows, const int* __restrict__ indptr, const T* __restrict__ scores, T* __restrict__ shares) {
  const int64_t row = row_of_warp<threads>();
  if (row >= num_rows) return;  // the warp leaves together
  const int first = indptr[row], start = first + lane_id(), end = indptr[row + 1];
  if (first == end) return;
  float most = to_float(scores[first]);
#pragma unroll 4
  for (int p = start; p < end; p += kWarpSize) most = fmaxf(most, to_float(scores[p]));
#pragma unroll
  for (int step = kWarpSize / 2; step > 0; step /= 2) most = fmaxf(most, __shfl_xor_sync(kFullMask, most, step));
  float sum = 0;
#pragma unroll 4
  for (int p = start; p < end; p += kWarpSize) sum += expf(to_float(scores[p]) - most);
  sum = warp_sum(sum);
#pragma unroll 4
  for (int p = start; p < end; p += kWarpSize) shares[p] = from_float<T>(expf(to_float(scores[p]) - most) / sum);
}

// The gradient of the scores: out[p] = shares[p] (grad[p] - sum of shares[q] grad[q] over the row's q).
template <typename T, int threads>
__global__ void __launch_bounds__(threads)
    softmax_rows_gradient(int num_rows, const int* __restrict__ indptr, const T* __restrict__ shares,
                          const T* __restrict__ grad, T* __restrict__ out) {
  const int64_t row = row_of_warp<threads>();
  if (row >= num_rows) return;  // the warp leaves together
  const int start = indptr[row] + lane_id(), end = indptr[row + 1];
  float sum = 0;
#pragma unroll 4
  for (int p = start; p < end; p += kWarpSize) sum = fmaf(to_float(shares[p]), to_float(grad[p]), sum);
  sum = warp_sum(sum);
#pragma unroll 4
  for (int p = start; p < end; p += kWarpSize) out[p] = from_float<T>(to_float(shares[p]) * (to_float(grad[p]) - sum));
}
