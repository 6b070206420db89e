// What kernels of RGMS that own rows of Y share: the steps that a thread block walks over, and how rows leave it.
#pragma once

#include "relational_group.cuh"
#include "relational_tile.cuh"

namespace spmark {

constexpr int kRelation = 0xffff, kLast = 0x10000;  // of a step: its relation, and whether it is the last of its rows

// Write this lane's sums of the rows lane / 4 and lane / 4 + 8 of sixteen, columns from `first` on, and clear them.
//   sums    eight columns each, as mma.cuh has them
//   target  of the two rows, as of write_row
template <int tiles, typename T>
__device__ __forceinline__ void leave(float (&sums)[tiles][4], const int (&target)[2], int first,
                                      const RowTarget<T>& to) {
#pragma unroll
  for (int side = 0; side < 2; ++side)
#pragma unroll
    for (int n = 0; n < tiles; n += 2) {
      const int column = first + n * 8 + column_of_four();
      const Vec<float, 4> four = four_columns(sums[n], sums[n + 1], side);
#pragma unroll
      for (int i = 0; i < 2; ++i) sums[n + i][side * 2] = sums[n + i][side * 2 + 1] = 0.0f;
      if (column < to.width) write_row<true>(to, target[side], column, four);
    }
}

}  // namespace spmark
