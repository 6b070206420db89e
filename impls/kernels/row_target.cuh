// Where the sums of a piece of a row go. Bodies that share rows of C in one grid write through these.
#pragma once

#include <spmark/atomic.cuh>
#include <spmark/half.cuh>
#include <spmark/vec.cuh>

namespace spmark {

constexpr int kNoRow = -2147483647 - 1;  // target of sums that belong to no row of A

// Type and place of the sums of shared rows: C itself in float32, a float32 workspace in float16.
__device__ __forceinline__ float* shared_sums(float* out, float*) { return out; }
__device__ __forceinline__ float* shared_sums(half*, float* sums) { return sums; }

// Row r of C is written whole where the target is r, and is added into where it is -1 - r: in float16 r then counts the
// rows of the workspace. Both are cleared before the grid.
template <typename T>
struct RowTarget {
  static constexpr bool kArrives = false;
  T* out;
  float* sums;
  int width;

  template <int vector>
  __device__ __forceinline__ void write(int target, int column, const Vec<float, vector>& sum) const {
    if (target == kNoRow) return;
    if (target >= 0)
      store_streaming(out + static_cast<int64_t>(target) * width + column, round_to<T>(sum));
    else
      atomic_add(shared_sums(out, sums) + static_cast<int64_t>(-1 - target) * width + column, sum);
  }
};

}  // namespace spmark
