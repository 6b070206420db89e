// Gathered rows of X times a relation's weights on the matrix unit: the steps that kernels of RGMS share.
#pragma once

#include <spmark/async.cuh>
#include <spmark/half.cuh>
#include <spmark/ldmatrix.cuh>
#include <spmark/mma.cuh>
#include <spmark/vec.cuh>
#include <spmark/warp.cuh>

namespace spmark {

// Of sixteen columns of products, whose first and last eight are given, four that this lane has of row lane / 4 + 8
// side: lanes with two columns of both exchange them, so that even lanes have four of the first then, odd lanes of the
// last.
__device__ __forceinline__ Vec<float, 4> four_columns(const float (&first)[4], const float (&last)[4], int side) {
  const bool odd = threadIdx.x % 2 != 0;
  float mine[2], theirs[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    mine[i] = odd ? last[side * 2 + i] : first[side * 2 + i];
    theirs[i] = __shfl_xor_sync(kFullMask, odd ? first[side * 2 + i] : last[side * 2 + i], 1);
  }
  return odd ? Vec<float, 4>{theirs[0], theirs[1], mine[0], mine[1]}
             : Vec<float, 4>{mine[0], mine[1], theirs[0], theirs[1]};
}

// The first of them.
__device__ __forceinline__ int column_of_four() { return threadIdx.x % 2 * 8 + threadIdx.x % 4 / 2 * 4; }

// A thread block's tile of products: `rows` gathered rows of X times `tile` columns of W_r, in steps of `depth` columns
// of X. Warps divide the rows, and the columns by `across`. In shared memory a row is 16 bytes longer than its data, so
// that eight rows lie in different banks.
template <typename T, int tile, int rows, int depth, int vector, int threads, int across = 1>
struct RelationalTile {
  static constexpr int kStrideX = depth + 8, kStrideW = tile + 8;
  static constexpr int kStage = rows * kStrideX + depth * kStrideW;  // elements of a step
  static constexpr int kRows = rows * kWarpSize * across / threads;  // of a warp
  static constexpr int kColumns = tile / across;
  static constexpr int kRowTiles = kRows / 16, kColumnTiles = kColumns / 8;
  using Products = float[kRowTiles][kColumnTiles][4];

  int width_in, width_out;
  int first_column;  // of Y
  const T* x;

  __device__ __forceinline__ static void copy(T* to, const T* from, bool valid) {
    if constexpr (vector == 8)
      copy_async<16>(to, from, valid);
    else
      *to = valid ? *from : from_float<T>(0.0f);
  }

  // Ask for columns `from` ... of the first `used` rows, whose rows of X are `sources` or -1, and these rows of
  // `weights`. Past the last column of X, past the last row and column of the weights and where no row is there are
  // zeros. A thread has the same columns throughout, in rows that lie kAtOnce apart, so that most of its addresses are
  // constants away from the first.
  __device__ __forceinline__ void fetch(T* stage, const int* sources, int used, const T* weights, int from) const {
    fetch_x(stage, sources, used, from);
    fetch_w(stage + rows * kStrideX, weights, from);
  }

  __device__ __forceinline__ void fetch_x(T* stage, const int* sources, int used, int from) const {
    constexpr int kPieces = depth / vector, kAtOnce = threads / kPieces, kTimes = rows / kAtOnce;
    constexpr int kTogether = kTimes < 8 ? kTimes : 8;  // rows whose sources are read before the first is needed
    const int column = threadIdx.x % kPieces * vector, first = threadIdx.x / kPieces;
    const bool inside = from + column < width_in;
    const T* const from_x = x + from + column;
    T* const to = stage + first * kStrideX + column;
#pragma unroll 1
    for (int t = 0; t < kTimes; t += kTogether) {
      int source[kTogether];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const int row = first + (t + i) * kAtOnce;
        source[i] = used == rows || row < used ? sources[row] : -1;
      }
#pragma unroll
      for (int i = 0; i < kTogether; ++i)
        if (used == rows || first + (t + i) * kAtOnce < used)
          copy(to + (t + i) * (kAtOnce * kStrideX), from_x + static_cast<int64_t>(source[i]) * width_in,
               source[i] >= 0 && inside);
    }
  }

  __device__ __forceinline__ void fetch_w(T* stage, const T* weights, int from) const {
    constexpr int kPieces = tile / vector, kAtOnce = threads / kPieces;
    const int column = threadIdx.x % kPieces * vector, first = threadIdx.x / kPieces;
    if (first >= kAtOnce) return;  // where rows do not divide the threads; the barrier is the caller's
    const bool inside = first_column + column < width_out;
    const T* const from_w = weights + static_cast<int64_t>(from + first) * width_out + first_column + column;
    T* const to = stage + first * kStrideW + column;
#pragma unroll 8
    for (int row = 0; row < depth; row += kAtOnce)
      if (depth % kAtOnce == 0 || row + first < depth)
        copy(to + row * kStrideW, from_w + static_cast<int64_t>(row) * width_out,
             from + row + first < width_in && inside);
  }

  // Where this warp's products begin in the tile.
  __device__ __forceinline__ static int row() { return threadIdx.x / kWarpSize / across * kRows; }
  __device__ __forceinline__ static int column() { return threadIdx.x / kWarpSize % across * kColumns; }

  // What a warp multiplies at once: sixteen columns of its rows, and as many rows of its columns of the weights.
  struct Fragments {
    unsigned a[kRowTiles][4], b[kColumnTiles][2];

    __device__ __forceinline__ void load(const T* stage, int k) {
      const int lane = threadIdx.x % kWarpSize;
      const T* const from_w = stage + rows * kStrideX + (k + lane % 16) * kStrideW + column() + lane / 16 * 8;
      const T* const from_x = stage + (row() + lane % 16) * kStrideX + k + lane / 16 * 8;
#pragma unroll
      for (int n = 0; n < kColumnTiles; n += 2) {
        unsigned two[4];
        load_matrices(two, from_w + n * 8);
        b[n][0] = two[0], b[n][1] = two[1], b[n + 1][0] = two[2], b[n + 1][1] = two[3];
      }
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) load_matrices<false>(a[m], from_x + m * 16 * kStrideX);
    }
  };

  // products += the step's rows times its weights, for this warp; `live` has a bit for each sixteen rows that count.
  // Fragments are loaded while earlier ones are multiplied.
  __device__ __forceinline__ void multiply(Products& products, const T* stage, int from, unsigned live) const {
    if ((live & ((1u << kRowTiles) - 1)) == 0) return;  // for the whole warp
    Fragments fragments[2];
    fragments[0].load(stage, 0);
#pragma unroll
    for (int k = 0; k < depth; k += 16) {
      if (k + 16 < depth) fragments[(k / 16 + 1) % 2].load(stage, k + 16);
      if (from + k >= width_in) break;
      const Fragments& now = fragments[k / 16 % 2];
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        if (!(live >> m & 1)) continue;  // for the whole warp
#pragma unroll
        for (int n = 0; n < kColumnTiles; ++n) mma_m16n8k16<T>(products[m][n], now.a[m], now.b[n]);
      }
    }
  }
};

}  // namespace spmark
