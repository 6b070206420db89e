// The operands and sums of a warp for a panel of sixteen or eight rows, by gathered columns (see tile_blocks.cuh).
//
// Sixteen rows of A are the m of mma_m16n8k16 and columns of C its n. For eight rows the operands change places,
// C^T = B^T A^T: rows are the n and columns of C the m, so that half as many mma leave no row of the unit idle. Lanes
// read the same columns of the same rows of B in both cases: eight lanes, each `columns` neighbouring ones.
#pragma once

#include "row_target.cuh"
#include "strips.cuh"

namespace spmark {

template <typename T, int height, int columns>
struct TileRows;

// Two halves a word, as the unit takes them.
__device__ __forceinline__ const unsigned* words(const half* p) { return reinterpret_cast<const unsigned*>(p); }

template <int columns>
struct TileRows<half, 16, columns> {
  static constexpr int kSums = 4 * columns;  // sums of a lane
  using Held = Operands<columns>;
  float sums[columns][4] = {};

  static __device__ __forceinline__ void load_a(Held& held, const half* group, int lane) {
    held.a = load_streaming<4>(words(group) + 4 * lane);
  }
  static __device__ __forceinline__ void load_b(Held& held, int i, const half* row) {
    held.b[i] = load_read_only<columns / 2>(words(row));
  }

  __device__ __forceinline__ float& sum(int i) { return sums[i / 4][i % 4]; }
  __device__ __forceinline__ void add(const Held& held) { multiply(sums, held); }

  // A lane has sums of two rows of the panel, `kParts` vectors of columns each; `leader` is one of the row's lanes.
  static constexpr int kParts = columns / 4;
  static __device__ __forceinline__ int row(int lane, int side) { return lane / 4 + side * 8; }
  static __device__ __forceinline__ int column(int lane, int part) { return 2 * columns * (lane % 4) + 8 * part; }
  static __device__ __forceinline__ int leader(int lane) { return lane - lane % 4; }
  __device__ __forceinline__ Vec<float, 8> part(int side, int part) const { return eight_sums(sums, side, part); }
};

template <int columns>
struct TileRows<half, 8, columns> {
  static constexpr int kSums = 2 * columns;
  struct Held {
    Vec<unsigned, 2> a;
    Vec<unsigned, columns / 2> b[4];
  };
  float sums[columns / 2][4] = {};  // rows g and g + 8 of mma m are columns 2m and 2m + 1 of this lane's

  static __device__ __forceinline__ void load_a(Held& held, const half* group, int lane) {
    held.a = load_streaming<2>(words(group) + 2 * lane);
  }
  static __device__ __forceinline__ void load_b(Held& held, int i, const half* row) {
    held.b[i] = load_read_only<columns / 2>(words(row));
  }

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

  static constexpr int kParts = 1;
  static __device__ __forceinline__ int row(int lane, int side) { return 2 * (lane % 4) + side; }
  static __device__ __forceinline__ int column(int lane, int) { return columns * (lane / 4); }
  static __device__ __forceinline__ int leader(int lane) { return lane % 4; }
  __device__ __forceinline__ Vec<float, columns> part(int side, int) const {
    Vec<float, columns> found;
#pragma unroll
    for (int i = 0; i < columns; ++i) found[i] = sums[i / 2][i % 2 * 2 + side];
    return found;
  }
};

}  // namespace spmark
