// The operands and sums of a warp for a panel of sixteen rows in float32 (see tile_blocks.cuh): every product is three
// products of tf32.
//
// A float32 is the sum of a tf32 (high) and a remainder that another tf32 (low) holds but for its last bit. Then high x
// high + high x low + low x high is the product without low x low, at most 2^-22 of it (Markidis et al., IPDPS
// workshops 2018). The unit cuts its sums instead of rounding. Eight columns at a time are therefore added up in the
// unit, small terms first, and their sum is added to the others outside of the unit, where sums are rounded (Ootomo and
// Yokota, IJHPCA 2022). Operands are finite.
#pragma once

#include "tile_rows.cuh"

namespace spmark {

// A float32 as the sum of two tf32, in the bits that mma takes.
struct Split {
  unsigned high;
  unsigned low;
};

__device__ __forceinline__ Split split(float value) {
  const unsigned high = to_tf32(value);
  return {high, to_tf32(value - __uint_as_float(high))};
}

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
