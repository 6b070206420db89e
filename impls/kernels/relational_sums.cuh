// Sums of rows of X on the matrix unit, and their product with a relation's weights: float16 with float32 sums.
#pragma once

#include <spmark/half.cuh>
#include <spmark/ldmatrix.cuh>
#include <spmark/mma.cuh>
#include <spmark/vec.cuh>
#include <spmark/warp.cuh>
#include <spmark/wgmma.cuh>

namespace spmark {

// A's values of two edges, as a word of a fragment's row; zeros where an edge ends in another row. A tag has A's value
// in the lower half, and the row that the edge ends in.
__device__ __forceinline__ unsigned values_of_row(unsigned tag, unsigned next_tag, unsigned row) {
  return (tag >> 16 == row ? tag & 0xffffu : 0u) | (next_tag >> 16 == row ? next_tag << 16 : 0u);
}

// sums += the rows of X of sixteen edges, each into the row that it ends in, of rows `top` ... `top` + 15. They are
// multiplied by a matrix of A's values, in which each edge is in its row.
//   stage  where this lane's row of the first matrices begins, as load_matrices has it; rows are depth + 8 apart
//   tag    of this lane's edge; lanes `first` ... `first` + 15 have the sixteen
template <int depth>
__device__ __forceinline__ void add_edges(float (&sums)[depth / 8][4], const half* stage, unsigned tag, int first,
                                          int top) {
  const int lane = threadIdx.x % kWarpSize;
  unsigned tags[4], a[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) tags[i] = __shfl_sync(kFullMask, tag, first + lane % 4 * 2 + i / 2 * 8 + i % 2);
#pragma unroll
  for (int i = 0; i < 4; ++i) a[i] = values_of_row(tags[i / 2 * 2], tags[i / 2 * 2 + 1], top + lane / 4 + i % 2 * 8);
#pragma unroll
  for (int n = 0; n < depth / 8; n += 2) {
    unsigned b[4];
    load_matrices(b, stage + n * 8);
    mma_m16n8k16<half>(sums[n], a, {b[0], b[1]});
    mma_m16n8k16<half>(sums[n + 1], a, {b[2], b[3]});
  }
}

// Sums as left operands, rounded to float16: each carries a relative error of 2^-11 into its products.
template <int depth>
struct Halves {
  unsigned words[depth / 16][4];

  // The layout of sums is that of the left operand, two columns to a word.
  __device__ __forceinline__ explicit Halves(const float (&sums)[depth / 8][4]) {
#pragma unroll
    for (int n = 0; n < depth / 8; ++n)
#pragma unroll
      for (int side = 0; side < 2; ++side)
        words[n / 2][n % 2 * 2 + side] = to_halves(sums[n][side * 2], sums[n][side * 2 + 1]);
  }

  // products += these sums times `tiles` times eight columns of the weights, whose rows are `stride` apart; `weights`
  // as in load_matrices. Columns change fastest, so that a product waits for none of the products right before it.
  template <int stride, int tiles>
  __device__ __forceinline__ void multiply(float (&products)[tiles][4], const half* weights) const {
#pragma unroll
    for (int k = 0; k < depth / 16; ++k)
#pragma unroll
      for (int n = 0; n < tiles; n += 2) {
        unsigned b[4];
        load_matrices(b, weights + k * 16 * stride + n * 8);
#pragma unroll
        for (int i = 0; i < 2; ++i) mma_m16n8k16<half>(products[n + i], words[k], {b[i * 2], b[i * 2 + 1]});
      }
  }

  // The same by warpgroups, of 128 columns, whose weights are rows of two blocks (wgmma.cuh). All threads of the thread
  // block come here, and each waits for its products.
  __device__ __forceinline__ void multiply_together(float (&products)[16][4], const half* weights) const {
    begin_products();
#pragma unroll
    for (int k = 0; k < depth; k += 16)
      multiply_blocks(products, words[k / 16], weights + k / kBlockSide * (2 * kBlock), k % kBlockSide);
    commit_products();
    wait_products(products);
  }
};

}  // namespace spmark
