// Warp-wide exchange: groups of lanes and reductions. Everything here is a collective: each lane that the mask names
// must make the call. The host ring is stricter than the hardware, which forgives lanes that have exited.
#pragma once

#include <spmark/vec.cuh>

namespace spmark {

constexpr unsigned kFullMask = 0xffffffffu;
constexpr int kWarpSize = 32;

// Index of the thread within its warp, in a block of any shape.
__device__ __forceinline__ int lane_id() {
#ifdef SPMARK_HOST
  return simt::lane();
#else
  int lane;
  asm("mov.s32 %0, %%laneid;" : "=r"(lane));
  return lane;
#endif
}

// Mask of this lane's group of Width neighbouring lanes: groups may be at different places of a loop.
template <int Width>
__device__ __forceinline__ unsigned group_mask() {
  static_assert(Width > 0 && Width <= kWarpSize && (Width & (Width - 1)) == 0, "a group is a power of two of lanes");
  if constexpr (Width == kWarpSize) {
    return kFullMask;
  } else {
    return ((1u << Width) - 1u) << (lane_id() & ~(Width - 1));
  }
}

// Sum over each group of Width neighbouring lanes, given to all of them. Butterfly order, so it is deterministic.
template <int Width = kWarpSize>
__device__ __forceinline__ float warp_sum(float value) {
  const unsigned mask = group_mask<Width>();
#pragma unroll
  for (int step = Width / 2; step > 0; step /= 2) value += __shfl_xor_sync(mask, value, step);
  return value;
}

// Add up the sums of the parts of Width lanes that make up each group of Group lanes; all parts get the total.
template <int Width, int Group, int N, int Count>
__device__ __forceinline__ void sum_parts_of_group(Vec<float, N> (&sum)[Count]) {
#pragma unroll
  for (int distance = Width; distance < Group; distance *= 2)
#pragma unroll
    for (int v = 0; v < Count; ++v)
#pragma unroll
      for (int i = 0; i < N; ++i) sum[v][i] += __shfl_xor_sync(kFullMask, sum[v][i], distance);
}

// Sums of `Count` values over each group of Width neighbouring lanes, in place and in the order of `warp_sum`. Each
// step halves the sums that a lane holds, so that all of them cost about one shuffle each.
//
// Where Count exceeds Width, lane l of a group ends with sums l (Count / Width) + i in sum[i]. Otherwise Width / Count
// lanes in a row end with the same sum, and sum[0] of lane l is that of value l / (Width / Count). Where all lanes of
// the warp make the call, kFullMask spares the code for those that do not.
template <int Width, int Count>
__device__ __forceinline__ void transpose_sum(float (&sum)[Count], unsigned mask = group_mask<Width>()) {
  const int lane = lane_id();
#pragma unroll
  for (int step = Width / 2, held = Count; step > 0; step /= 2) {
    held /= 2;
    if (held == 0) {
      sum[0] += __shfl_xor_sync(mask, sum[0], step);
      continue;
    }
    const bool upper = (lane & step) != 0;
#pragma unroll
    for (int i = 0; i < held; ++i) {
      const float mine = upper ? sum[i + held] : sum[i];
      const float theirs = upper ? sum[i] : sum[i + held];
      sum[i] = mine + __shfl_xor_sync(mask, theirs, step);
    }
  }
}

}  // namespace spmark
