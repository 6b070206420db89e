// Dot products of rows of X and Y by a group of lanes: the two stages of SDDMM without matrix units (see sddmm.cu).
#pragma once

#include <spmark/vec.cuh>
#include <spmark/warp.cuh>

namespace spmark {

// Lane b of the group gets left[b] . right[b], each of `width` elements; the results of other lanes have no use. Rows
// are aligned to vector elements, and so is width.
template <int vector, int lanes, typename T, int batch>
__device__ __forceinline__ float batch_dots(const T* const (&left)[batch], const T* const (&right)[batch], int lane,
                                            int width) {
  static_assert(batch <= lanes, "lane b takes result b");
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
  return mine;
}

}  // namespace spmark
