// The operands and sums of a warp for a panel of sixteen or eight rows of A, without shared memory (see tile_blocks.cuh
// and strip_spmm.cu).
//
// Which column of the result is column n of which mma may be chosen freely. A lane therefore takes neighbouring columns
// of B, one for each of several mma, in a load of 8 or 16 bytes. Two such rows interleaved are the unit's operand, and
// the sums of a lane stand together in memory.
//
// Sixteen rows of A are the m of mma_m16n8k16 and columns of C its n. For eight rows the operands change places,
// C^T = B^T A^T: rows are the n and columns of C the m, so that half as many mma leave no row of the unit idle. Lanes
// read the same columns of the same rows of B in both cases: eight lanes, each `columns` neighbouring ones.
#pragma once

#include <spmark/mma.cuh>

#include "row_target.cuh"

namespace spmark {

// Which of the 16 rows of B is lane t's i-th.
__device__ __forceinline__ int row_of_lane(int t, int i) { return 2 * t + i % 2 + i / 2 * 8; }

// A lane's operands for 16 columns of A, two elements of 16 bits a word: its `words` of A, and its columns of four rows
// of B.
template <typename T, int columns, int words>
struct NarrowOperands {
  Vec<unsigned, words> a;
  Vec<unsigned, columns / 2> b[4];

  __device__ __forceinline__ void load_a(const T* group, int lane) {
    a = load_streaming<words>(reinterpret_cast<const unsigned*>(group) + words * lane);
  }
  __device__ __forceinline__ void load_b(int i, const T* row) {
    b[i] = load_read_only<columns / 2>(reinterpret_cast<const unsigned*>(row));
  }
  // One column of the lane's rows 2 k and 2 k + 1 in one word, the first row in the lower bits.
  __device__ __forceinline__ unsigned pair(int k, int column) const {
    const unsigned first = b[2 * k][column / 2], second = b[2 * k + 1][column / 2];
    return column % 2 != 0 ? first >> 16 | (second & 0xffff0000u) : (first & 0xffffu) | second << 16;
  }
};

// The sums of sixteen rows: a lane has those of two rows, `kParts` vectors of `vector` columns each. Column n of mma m
// is column columns * n + m of the warp's. `leader` is one of the lanes of a row.
template <int columns, int vector>
struct SixteenRows {
  static constexpr int kSums = 4 * columns, kParts = 2 * columns / vector;
  float sums[columns][4] = {};

  static __device__ __forceinline__ int row(int lane, int side) { return lane / 4 + side * 8; }
  static __device__ __forceinline__ int column(int lane, int part) { return 2 * columns * (lane % 4) + vector * part; }
  static __device__ __forceinline__ int leader(int lane) { return lane - lane % 4; }
  __device__ __forceinline__ float& sum(int i) { return sums[i / 4][i % 4]; }
  __device__ __forceinline__ Vec<float, vector> part(int side, int part) const {
    Vec<float, vector> found;
#pragma unroll
    for (int i = 0; i < vector; ++i) {
      const int at = part * vector + i;  // of this lane's columns
      found[i] = sums[at % columns][side * 2 + at / columns];
    }
    return found;
  }
};

template <typename T, int height, int columns>
struct TileRows;

template <typename T, int columns>
struct TileRows<T, 16, columns> : SixteenRows<columns, 8> {
  using Held = NarrowOperands<T, columns, 4>;

  __device__ __forceinline__ void add(const Held& held) {
    const unsigned a[4] = {held.a[0], held.a[1], held.a[2], held.a[3]};
#pragma unroll
    for (int m = 0; m < columns; ++m) {
      const unsigned b[2] = {held.pair(0, m), held.pair(1, m)};
      mma_m16n8k16<T>(this->sums[m], a, b);
    }
  }
};

template <typename T, int columns>
struct TileRows<T, 8, columns> {
  static constexpr int kSums = 2 * columns, kParts = 1;
  using Held = NarrowOperands<T, columns, 2>;
  float sums[columns / 2][4] = {};  // rows g and g + 8 of mma m are columns 2m and 2m + 1 of this lane's

  static __device__ __forceinline__ int row(int lane, int side) { return 2 * (lane % 4) + side; }
  static __device__ __forceinline__ int column(int lane, int) { return columns * (lane / 4); }
  static __device__ __forceinline__ int leader(int lane) { return lane % 4; }
  __device__ __forceinline__ float& sum(int i) { return sums[i / 4][i % 4]; }
  __device__ __forceinline__ Vec<float, columns> part(int side, int) const {
    Vec<float, columns> found;
#pragma unroll
    for (int i = 0; i < columns; ++i) found[i] = sums[i / 2][i % 2 * 2 + side];
    return found;
  }

  __device__ __forceinline__ void add(const Held& held) {
    const unsigned rows[2] = {held.a[0], held.a[1]};
#pragma unroll
    for (int m = 0; m < columns / 2; ++m) {
      const unsigned turned[4] = {held.pair(0, 2 * m), held.pair(0, 2 * m + 1), held.pair(1, 2 * m),
                                  held.pair(1, 2 * m + 1)};
      mma_m16n8k16<T>(sums[m], turned, rows);
    }
  }
};

// A float32 as the sum of two tf32, in the bits that mma takes.
struct Split {
  unsigned high;
  unsigned low;
};

__device__ __forceinline__ Split split(float value) {
  const unsigned high = to_tf32(value);
  return {high, to_tf32(value - __uint_as_float(high))};
}

// Every product is three products of tf32.
//
// A float32 is the sum of a tf32 (high) and a remainder that another tf32 (low) holds but for its last bit. Then high x
// high + high x low + low x high is the product without low x low, at most 2^-22 of it (Markidis et al., IPDPS
// workshops 2018). The unit cuts its sums instead of rounding. Eight columns at a time are therefore added up in the
// unit, small terms first, and their sum is added to the others outside of the unit, where sums are rounded (Ootomo and
// Yokota, IJHPCA 2022). Operands are finite.
template <int columns>
struct TileRows<float, 16, columns> : SixteenRows<columns, 4> {
  struct Held {
    Vec<float, 4> a[2];               // for each eight columns: two columns of row g, and the same two of row g + 8
    Vec<float, 4> b[4][columns / 4];  // 16 bytes each

    __device__ __forceinline__ void load_a(const float* group, int lane) {
#pragma unroll
      for (int step = 0; step < 2; ++step) a[step] = load_streaming<4>(group + (step * kWarpSize + lane) * 4);
    }
    __device__ __forceinline__ void load_b(int i, const float* row) {
#pragma unroll
      for (int part = 0; part < columns / 4; ++part) b[i][part] = load_read_only<4>(row + 4 * part);
    }
  };

  // The k of an mma are this lane's rows 2 step and 2 step + 1.
  __device__ __forceinline__ void add(const Held& held) {
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      unsigned high[4], low[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const Split one = split(held.a[step][i % 2 * 2 + i / 2]);
        high[i] = one.high;
        low[i] = one.low;
      }
#pragma unroll
      for (int m = 0; m < columns; ++m) {
        const Split first = split(held.b[2 * step][m / 4][m % 4]), second = split(held.b[2 * step + 1][m / 4][m % 4]);
        const unsigned b_high[2] = {first.high, second.high}, b_low[2] = {first.low, second.low};
        float found[4] = {};
        mma_m16n8k8(found, low, b_high);
        mma_m16n8k8(found, high, b_low);
        mma_m16n8k8(found, high, b_high);
#pragma unroll
        for (int i = 0; i < 4; ++i) this->sums[m][i] += found[i];
      }
    }
  }
};

}  // namespace spmark
