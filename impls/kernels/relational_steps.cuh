// What kernels of RGMS that own rows of Y share: the steps that a thread block walks over, and how rows leave it.
#pragma once

#include "relational_tile.cuh"
#include "row_target.cuh"

namespace spmark {

constexpr int kRelation = 0xffff, kLast = 0x10000;  // of a step: its relation, and whether it is the last of its rows

// Where rows go: row r of Y where the target is r, row p of the pieces where it is -1 - p. A later launch adds up the
// pieces of a row in order.
//   Piece  float, or T where pieces are rounded
template <typename T, typename Piece>
struct OwnedRows {
  T* out;
  Piece* pieces;
  int width;

  template <int vector>
  __device__ __forceinline__ void write(int target, int column, const Vec<float, vector>& sum) const {
    if (target == kNoRow) return;
    if (target >= 0)
      store_streaming(out + static_cast<int64_t>(target) * width + column, round_to<T>(sum));
    else
      store(pieces + static_cast<int64_t>(-1 - target) * width + column, round_to<Piece>(sum));
  }
};

// Write this lane's sums of the rows lane / 4 and lane / 4 + 8 of sixteen, columns from `first` on, and clear them.
// Widths are multiples of `vector`.
//   sums    eight columns each, as mma.cuh has them
//   target  of the two rows
template <int vector, int tiles, typename Rows>
__device__ __forceinline__ void leave(float (&sums)[tiles][4], const int (&target)[2], int first, const Rows& to) {
#pragma unroll
  for (int side = 0; side < 2; ++side)
#pragma unroll
    for (int n = 0; n < tiles; n += 2) {
      if constexpr (vector == 8) {
        const int column = first + n * 8 + column_of_four();
        const Vec<float, 4> four = four_columns(sums[n], sums[n + 1], side);
        if (column < to.width) to.write(target[side], column, four);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& sum = sums[n + i / 2][side * 2 + i % 2];
        const int column = first + (n + i / 2) * 8 + threadIdx.x % 4 * 2 + i % 2;
        if (vector == 1 && column < to.width) to.write(target[side], column, Vec<float, 1>{sum});
        sum = 0.0f;
      }
    }
}

}  // namespace spmark
