// Plain SDDMM over the non-zeros in CSR order, several at a time. Deterministic: no atomics.

#include <spmark/half.cuh>
#include <spmark/vec.cuh>
#include <spmark/warp.cuh>

using namespace spmark;

// D[p] = sum_j X[rows[p], j] Y[indices[p], j], times values[p] where `scaled`.
//
// A group of `lanes` threads owns `batch` consecutive non-zeros; a block holds threads / lanes groups.
//   rows, indices, values   nnz rows, columns and values, in CSR order; values is not read unless scaled
//   x, y     I x width and K x width, row-major; aligned to vector elements, and so is width
//   out      nnz results
// Consecutive non-zeros mostly share their row, so the repeated reads of X hit the first-level cache; `batch`
// independent rows of Y in flight hide the latency of those that miss.
template <typename T, int vector, int lanes, int batch, bool scaled, int threads>
__global__ void __launch_bounds__(threads)
    sddmm_coo(int nnz, int width, const int* __restrict__ rows, const int* __restrict__ indices,
              const T* __restrict__ values, const T* __restrict__ x, const T* __restrict__ y, T* __restrict__ out) {
  static_assert(threads % 32 == 0 && 32 % lanes == 0, "a group is a part of one warp");
  static_assert(sizeof(T) * vector <= 16, "a vector is loaded at once");
  static_assert(batch <= lanes, "lane b writes result b");
  const int lane = threadIdx.x % lanes;
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * (threads / lanes) + threadIdx.x / lanes) * batch;
  if (first >= nnz) return;  // the group leaves together; shuffles name the group alone

  const T* left[batch];
  const T* right[batch];
#pragma unroll
  for (int b = 0; b < batch; ++b) {
    const int64_t p = first + b < nnz ? first + b : nnz - 1;  // past the end: the last once more, never written
    left[b] = x + static_cast<int64_t>(rows[p]) * width;
    right[b] = y + static_cast<int64_t>(indices[p]) * width;
  }

  float sum[batch] = {};
  for (int j = lane * vector; j < width; j += lanes * vector) {
#pragma unroll
    for (int b = 0; b < batch; ++b)
      sum[b] = dot(load_read_only<vector>(left[b] + j), load_read_only<vector>(right[b] + j), sum[b]);
  }

  float mine = 0.0f;
#pragma unroll
  for (int b = 0; b < batch; ++b) {
    const float total = warp_sum<lanes>(sum[b]);
    if (lane == b) mine = total;
  }
  if (lane < batch && first + lane < nnz) {
    if constexpr (scaled) mine *= to_float(values[first + lane]);
    out[first + lane] = from_float<T>(mine);
  }
}
