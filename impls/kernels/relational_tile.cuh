// Gathered rows of X times a relation's weights on the matrix unit: the steps that kernels of RGMS share.
#pragma once

#include <spmark/async.cuh>
#include <spmark/half.cuh>
#include <spmark/ldmatrix.cuh>
#include <spmark/mma.cuh>
#include <spmark/vec.cuh>
#include <spmark/warp.cuh>

namespace spmark {

// A thread block's tile of products: `rows` gathered rows of X times `tile` columns of W_r, in steps of `depth` columns
// of X. Warps divide the rows, and the columns by `across`. In shared memory a row is 16 bytes longer than its data, so
// that eight rows lie in different banks.
template <int tile, int rows, int depth, int vector, int threads, int across = 1>
struct RelationalTile {
  static constexpr int kStrideX = depth + 8, kStrideW = tile + 8;
  static constexpr int kStage = rows * kStrideX + depth * kStrideW;  // halves of a step
  static constexpr int kRows = rows * kWarpSize * across / threads;  // of a warp
  static constexpr int kColumns = tile / across;
  static constexpr int kRowTiles = kRows / 16, kColumnTiles = kColumns / 8;
  using Products = float[kRowTiles][kColumnTiles][4];

  int width_in, width_out;
  int first_column;  // of Y
  const half* x;

  __device__ __forceinline__ static void copy(half* to, const half* from, bool valid) {
    if constexpr (vector == 8)
      copy_async<16>(to, from, valid);
    else
      *to = valid ? *from : from_float<half>(0.0f);
  }

  // Ask for columns `from` ... of the first `used` rows, whose rows of X are `sources` or -1, and these rows of
  // `weights`. Past the last column of X, past the last row and column of the weights and where no row is there are
  // zeros.
  __device__ __forceinline__ void fetch(half* stage, const int* sources, int used, const half* weights,
                                        int from) const {
    constexpr int kPiecesX = depth / vector, kPiecesW = tile / vector;
    for (int p = threadIdx.x; p < used * kPiecesX; p += threads) {
      const int row = p / kPiecesX, column = p % kPiecesX * vector, source = sources[row];
      copy(stage + row * kStrideX + column, x + static_cast<int64_t>(source) * width_in + from + column,
           source >= 0 && from + column < width_in);
    }
    half* const to = stage + rows * kStrideX;
    for (int p = threadIdx.x; p < depth * kPiecesW; p += threads) {
      const int row = p / kPiecesW, column = p % kPiecesW * vector;
      copy(to + row * kStrideW + column, weights + static_cast<int64_t>(from + row) * width_out + first_column + column,
           from + row < width_in && first_column + column < width_out);
    }
  }

  // Where this warp's products begin in the tile.
  __device__ __forceinline__ static int row() { return threadIdx.x / kWarpSize / across * kRows; }
  __device__ __forceinline__ static int column() { return threadIdx.x / kWarpSize % across * kColumns; }

  // products += the step's rows times its weights, for this warp; `live` has a bit for each sixteen rows that count.
  __device__ __forceinline__ void multiply(Products& products, const half* stage, int from, unsigned live) const {
    if ((live & ((1u << kRowTiles) - 1)) == 0) return;  // for the whole warp
    const int lane = threadIdx.x % kWarpSize;
#pragma unroll
    for (int k = 0; k < depth; k += 16) {
      if (from + k >= width_in) break;
      const half* const from_w = stage + rows * kStrideX + (k + lane % 16) * kStrideW + column() + lane / 16 * 8;
      unsigned b[kColumnTiles][2];
#pragma unroll
      for (int n = 0; n < kColumnTiles; n += 2) {
        unsigned two[4];
        load_matrices(two, from_w + n * 8);
        b[n][0] = two[0], b[n][1] = two[1], b[n + 1][0] = two[2], b[n + 1][1] = two[3];
      }
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        if (!(live >> m & 1)) continue;  // for the whole warp
        const half* const from_x = stage + (row() + m * 16 + lane / 4) * kStrideX + k + lane % 4 * 2;
        const auto word = [&](int offset) { return load<1>(reinterpret_cast<const unsigned*>(from_x + offset))[0]; };
        const unsigned a[4] = {word(0), word(8 * kStrideX), word(8), word(8 * kStrideX + 8)};
#pragma unroll
        for (int n = 0; n < kColumnTiles; ++n) mma_m16n8k16(products[m][n], a, b[n]);
      }
    }
  }
};

}  // namespace spmark
