// What a warp holds and sums of a panel of sixteen rows, or of eight, by gathered columns (see tile_blocks.cuh).
//
// Sixteen rows of A are the m of mma_m16n8k16 and columns of C its n. Of eight rows the operands change places,
// C^T = B^T A^T: rows are the n and columns of C the m, so that half as many mma leave no row of the unit idle. Lanes
// read the same columns of the same rows of B for either, eight lanes `columns` neighbouring ones each.
#pragma once

#include "row_target.cuh"
#include "strips.cuh"

namespace spmark {

template <int height, int columns>
struct TileRows;

template <int columns>
struct TileRows<16, columns> {
  static constexpr int kWords = 4;           // of A, two halves each, that a lane holds of a group
  static constexpr int kSums = 4 * columns;  // of a lane
  using Held = Operands<columns>;
  float sums[columns][4] = {};

  __device__ __forceinline__ float& sum(int i) { return sums[i / 4][i % 4]; }
  __device__ __forceinline__ void add(const Held& held) { multiply(sums, held); }

  // Writes C from column `first` on; `targets` are the panel's.
  __device__ __forceinline__ void write(const RowTarget<half>& target, const int* targets, int first, int lane) const {
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const int row = targets[lane / 4 + side * 8];
#pragma unroll
      for (int part = 0; part < columns / 4; ++part) {
        const int column = first + 2 * columns * (lane % 4) + 8 * part;
        if (column < target.width) target.write(row, column, eight_sums(sums, side, part));
      }
    }
  }
};

template <int columns>
struct TileRows<8, columns> {
  static constexpr int kWords = 2;
  static constexpr int kSums = 2 * columns;
  struct Held {
    Vec<unsigned, 2> a;
    Vec<unsigned, columns / 2> b[4];
  };
  float sums[columns / 2][4] = {};  // rows g and g + 8 of mma m are columns 2m and 2m + 1 of this lane's

  __device__ __forceinline__ float& sum(int i) { return sums[i / 4][i % 4]; }

  __device__ __forceinline__ void add(const Held& held) {
    const unsigned rows[2] = {held.a[0], held.a[1]};
#pragma unroll
    for (int m = 0; m < columns / 2; ++m) {
      unsigned turned[4];
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const unsigned first = held.b[2 * k][m], second = held.b[2 * k + 1][m];
        turned[2 * k] = interleave<false>(first, second);
        turned[2 * k + 1] = interleave<true>(first, second);
      }
      mma_m16n8k16(sums[m], turned, rows);
    }
  }

  __device__ __forceinline__ void write(const RowTarget<half>& target, const int* targets, int first, int lane) const {
    const int column = first + columns * (lane / 4);
    if (column >= target.width) return;
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      Vec<float, columns> found;
#pragma unroll
      for (int i = 0; i < columns; ++i) found[i] = sums[i / 2][i % 2 * 2 + side];
      target.write(targets[2 * (lane % 4) + side], column, found);
    }
  }
};

}  // namespace spmark
