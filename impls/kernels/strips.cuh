// A strip of 16 rows on the matrix unit without shared memory: a warp's operands of A and B, and their product.
//
// Which column of the result is column n of which mma may be chosen freely. A lane therefore takes neighbouring columns
// of B, one for each of several mma, in a load of 8 or 16 bytes. Two such rows interleaved are the unit's operand, and
// the sums of a lane stand together in memory.
#pragma once

#include <spmark/mma.cuh>
#include <spmark/vec.cuh>

namespace spmark {

// A lane's operands for 16 columns of A: its part of A, and its columns of four rows of B, two halves a word.
template <int columns>
struct Operands {
  Vec<unsigned, 4> a;
  Vec<unsigned, columns / 2> b[4];
};

// Which of the 16 rows of B is lane t's i-th.
__device__ __forceinline__ int row_of_lane(int t, int i) { return 2 * t + i % 2 + i / 2 * 8; }

// The lower or the upper halves of two words in one word, the first word's half in the lower bits.
template <bool upper>
__device__ __forceinline__ unsigned interleave(unsigned first, unsigned second) {
  return upper ? first >> 16 | (second & 0xffff0000u) : (first & 0xffffu) | second << 16;
}

// sums += A B for 16 columns of A and the lane's columns: column n of mma m is column columns * n + m of the warp's.
template <int columns>
__device__ __forceinline__ void multiply(float (&sums)[columns][4], const Operands<columns>& held) {
  const unsigned a[4] = {held.a[0], held.a[1], held.a[2], held.a[3]};
#pragma unroll
  for (int m = 0; m < columns; ++m) {
    unsigned b[2];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const unsigned first = held.b[2 * k][m / 2], second = held.b[2 * k + 1][m / 2];
      b[k] = m % 2 == 0 ? interleave<false>(first, second) : interleave<true>(first, second);
    }
    mma_m16n8k16(sums[m], a, b);
  }
}

// The lane's sums of row g (side 0) or g + 8 (side 1), eight columns at a time, `part` from 0 to columns / 4: the first
// is column 2 * columns * t + 8 * part of the warp's.
template <int columns>
__device__ __forceinline__ Vec<float, 8> eight_sums(const float (&sums)[columns][4], int side, int part) {
  Vec<float, 8> eight;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int at = part * 8 + i;  // of this lane's columns
    eight[i] = sums[at % columns][side * 2 + at / columns];
  }
  return eight;
}

}  // namespace spmark
