// Eight neighbouring elements of 16 bits of a row as mma takes them. Lane t of a quad holds columns 8 t .. 8 t + 7 of
// 32 and feeds them to two mma as if they were the unit's own columns: a sum may run in any order.
#pragma once

#include <spmark/half.cuh>
#include <spmark/mma.cuh>
#include <spmark/vec.cuh>

namespace spmark {

constexpr int kChunk = 32;  // columns of a row that a load of the whole warp covers: two k of mma

// Pairs: element i has columns 2 i and 2 i + 1 of the eight that a lane holds.
using Words = Vec<unsigned, 4>;

// The next eight columns of a row that has `rest` columns left, with zeros past these.
template <int vector, typename T>
__device__ __forceinline__ Words load_words(const T* row, int rest) {
  Words words = {};
  if constexpr (vector == 1) {
    Vec<T, 8> held = zeros<T, 8>();
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (i < rest) held[i] = row[i];
    }
    memcpy(&words, &held, sizeof(words));
  } else {
#pragma unroll
    for (int i = 0; i < 8; i += vector) {
      if (i >= rest) continue;
      // Loaded as words: to join elements into words would wait for the load here.
      const auto part = load_read_only<vector / 2>(reinterpret_cast<const unsigned*>(row + i));
#pragma unroll
      for (int j = 0; j < vector / 2; ++j) words[i / 2 + j] = part[j];
    }
  }
  return words;
}

// sum[i] += X Y^T over `chunks` chunks: X is two of the lane's rows, eight apart, and mma i takes one row of Y.
template <typename T, int chunks>
__device__ __forceinline__ void add_products(float (&sum)[4][4], const Words (&left)[chunks][2],
                                             const Words (&right)[chunks][4]) {
#pragma unroll
  for (int d = 0; d < chunks; ++d) {
#pragma unroll
    for (int k = 0; k < 4; k += 2) {
      const unsigned a[4] = {left[d][0][k], left[d][1][k], left[d][0][k + 1], left[d][1][k + 1]};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const unsigned b[2] = {right[d][i][k], right[d][i][k + 1]};
        mma_m16n8k16<T>(sum[i], a, b);
      }
    }
  }
}

}  // namespace spmark
