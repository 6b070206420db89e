// Rows of Y leave a thread block that owns a tile of them: the last steps of output-stationary kernels of RGMS.
#pragma once

#include <spmark/half.cuh>
#include <spmark/vec.cuh>
#include <spmark/warp.cuh>

#include "row_target.cuh"

namespace spmark {

// A thread block's tile of Y: `rows` rows and `tile` columns, which are put together in shared memory and leave it
// `vector` columns at a time.
template <typename T, int tile, int rows, int vector, int threads>
struct RowsOfY {
  static constexpr int kStride = tile + 8, kElements = rows * kStride;  // of shared memory

  int width_out, first_column;
  const int* to;  // targets of the rows, as of rgms_rows, in shared memory
  T* out;
  float* sums;

  // Put this lane's sums of sixteen rows from `row` on, eight columns each as mma.cuh has them, into shared memory;
  // sums of pieces go to `sums`.
  template <int tiles>
  __device__ __forceinline__ void put(T* shared, const float (&sum)[tiles][4], int row, int column) const {
    const int lane = threadIdx.x % kWarpSize;
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const int own = row + side * 8 + lane / 4, target = to[own];
#pragma unroll
      for (int n = 0; n < tiles; ++n) {
        const Vec<float, 2> two{sum[n][side * 2], sum[n][side * 2 + 1]};
        const int at = column + n * 8 + lane % 4 * 2;
        if (target >= 0) {
          store(shared + own * kStride + at, round_to<T>(two));
        } else if (target != kNoRow) {
          float* const piece = sums + static_cast<int64_t>(-1 - target) * width_out + first_column + at;
          if constexpr (vector == 8) {
            if (first_column + at < width_out) store(piece, two);
          } else {
#pragma unroll
            for (int i = 0; i < 2; ++i)
              if (first_column + at + i < width_out) piece[i] = two[i];
          }
        }
      }
    }
  }

  // Write the rows that are whole, once all threads have put theirs.
  __device__ __forceinline__ void write(const T* shared) const {
    __syncthreads();  // rows are whole
    for (int p = threadIdx.x; p < rows * (tile / vector); p += threads) {
      const int row = p / (tile / vector), column = p % (tile / vector) * vector, target = to[row];
      if (target >= 0 && first_column + column < width_out)
        store(out + static_cast<int64_t>(target) * width_out + first_column + column,
              load<vector>(shared + row * kStride + column));
    }
  }
};

}  // namespace spmark
