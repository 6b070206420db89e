// The body of BSR SpMM on the matrix unit: float16 operands, float32 sums. A thread block takes one row of blocks and a
// tile of columns of C, block after block. This is the plain sibling of block_spmm.cu, for grids shared with other
// bodies.
#pragma once

#include <spmark/mma.cuh>

#include "row_target.cuh"

namespace spmark {

// C[targets[i], j] (+)= sum over blocks of A's block row of block[i, k] B[k, j].
//
// A warp owns kColumns / warps columns of the tile and all `size` rows.
//   indptr    offsets of the block rows
//   indices   block columns
//   blocks    size x size halves each, row-major
//   targets   size for each block row (see RowTarget): kNoRow where a row has no non-zeros here, or is past A's last
//   dense     B, num_cols x width, row-major; aligned to vector elements, and so is width
template <int size, int vector, int threads>
struct BsrTiles {
  static_assert(size % 16 == 0, "a block is whole mma tiles");
  static_assert(vector * sizeof(half) <= 16, "a vector is loaded at once");
  static constexpr int kDepth = 16;    // rows of B in shared memory at once: those of one mma
  static constexpr int kColumns = 64;  // of a tile
  static constexpr int kWarps = threads / 32;
  static constexpr int kEach = kColumns / kWarps / 8;  // mma tiles of a warp, across
  static constexpr int kHigh = size / 16;              // and down
  static constexpr int kPair = vector > 1 ? 2 : 1;     // columns that are stored at once
  static_assert(kColumns % (kWarps * 8) == 0, "every warp has as many columns");

  struct Shared {
    alignas(16) half rows[kDepth][kColumns + 8];  // 8 more: eight rows are in different banks
  };

  static __device__ __forceinline__ void run(Shared& shared, int block_row, int tile, int num_cols,
                                             const int* __restrict__ indptr, const int* __restrict__ indices,
                                             const half* __restrict__ blocks, const int* __restrict__ targets,
                                             const half* __restrict__ dense, const RowTarget<half>& target) {
    const int warp = threadIdx.x / 32;
    const int major = threadIdx.x % 32 / 4;
    const int minor = threadIdx.x % 4 * 2;
    float sum[kHigh][kEach][4] = {};
    const int end = indptr[block_row + 1];
    for (int b = indptr[block_row]; b < end; ++b) {
      const half* block = blocks + static_cast<int64_t>(b) * size * size;
      for (int k = 0; k < size; k += kDepth) {
        stage(shared, indices[b] * size + k, tile * kColumns, num_cols, target.width, dense);
        __syncthreads();  // all warps read the rows that each has staged
        unsigned right[kEach][2];
#pragma unroll
        for (int e = 0; e < kEach; ++e) {
          const int column = (warp * kEach + e) * 8 + major;
#pragma unroll
          for (int h = 0; h < 2; ++h)
            right[e][h] = pair(shared.rows[h * 8 + minor][column], shared.rows[h * 8 + minor + 1][column]);
        }
#pragma unroll
        for (int m = 0; m < kHigh; ++m) {
          unsigned left[4];
#pragma unroll
          for (int q = 0; q < 4; ++q) {
            const half* at = block + (m * 16 + q % 2 * 8 + major) * size + k + q / 2 * 8 + minor;
            const Vec<half, 2> two = load_read_only<2>(at);
            left[q] = pair(two[0], two[1]);
          }
#pragma unroll
          for (int e = 0; e < kEach; ++e) mma_m16n8k16(sum[m][e], left, right[e]);
        }
        __syncthreads();  // all warps have read before the next rows are staged
      }
    }
#pragma unroll
    for (int m = 0; m < kHigh; ++m) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = targets[block_row * size + m * 16 + h * 8 + major];
#pragma unroll
        for (int e = 0; e < kEach; ++e) {
#pragma unroll
          for (int i = 0; i < 2; i += kPair) {
            const int column = tile * kColumns + (warp * kEach + e) * 8 + minor + i;
            Vec<float, kPair> part;
#pragma unroll
            for (int j = 0; j < kPair; ++j) part[j] = sum[m][e][h * 2 + i + j];
            if (column < target.width) target.write(row, column, part);
          }
        }
      }
    }
  }

private:
  // Two halves in a register as mma takes them, the first in the lower bits.
  static __device__ __forceinline__ unsigned pair(half low, half high) {
    const Vec<half, 2> both{low, high};
    unsigned bits;
    memcpy(&bits, &both, sizeof(bits));
    return bits;
  }

  // Stage rows `first` to `first + kDepth - 1` of B in the tile's columns, zeros past B's last row and column: mma
  // multiplies a block's padding by these, so that they must be numbers.
  static __device__ __forceinline__ void stage(Shared& shared, int first, int column, int num_cols, int width,
                                               const half* __restrict__ dense) {
    constexpr int kVectors = kColumns / vector;
    for (int i = threadIdx.x; i < kDepth * kVectors; i += threads) {
      const int row = i / kVectors;
      const int at = i % kVectors * vector;
      Vec<half, vector> part = zeros<half, vector>();
      if (first + row < num_cols && column + at < width)
        part = load_read_only<vector>(dense + static_cast<int64_t>(first + row) * width + column + at);
      store(&shared.rows[row][at], part);
    }
  }
};

}  // namespace spmark
