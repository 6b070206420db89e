// Dot products of rows of X and Y by a group of lanes: the two stages of SDDMM without matrix units (see sddmm.cu).
#pragma once

#include <spmark/vec.cuh>
#include <spmark/warp.cuh>

namespace spmark {

// Compute X[rows[n], :] . Y[indices[n], :] at the non-zeros n from `first` on, `batch` of them, or fewer where `count`
// ends before. One lane of the group calls write(n, result) for each. Rows of X and Y have `width` elements and are
// aligned to vector elements, and so is width.
template <int vector, int lanes, int batch, typename T, typename Number, typename Write>
__device__ __forceinline__ void batch_dots(Number first, int count, int width, const int* __restrict__ rows,
                                           const int* __restrict__ indices, const T* __restrict__ x,
                                           const T* __restrict__ y, Write write) {
  static_assert(batch <= lanes, "lane b takes result b");
  const int lane = threadIdx.x % lanes;
  if (first >= count) return;  // the group leaves together; shuffles name the group alone
  const T* left[batch];
  const T* right[batch];
#pragma unroll
  for (int b = 0; b < batch; ++b) {
    const int n = static_cast<int>(first + b < count ? first + b : count - 1);  // past the end: never written
    left[b] = x + static_cast<int64_t>(rows[n]) * width;
    right[b] = y + static_cast<int64_t>(indices[n]) * width;
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
  if (lane < batch && first + lane < count) write(first + lane, mine);
}

}  // namespace spmark
