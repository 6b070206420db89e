// SpMM over 16 x 16 blocks on the matrix unit, without shared memory: operands of 16 bits, float32 sums, rounded once.
// Deterministic.
//
// For matrices with short block rows, such as attention masks (SparseTIR, Ye et al., ASPLOS 2023, section 4.3.1): a
// pipeline through shared memory would end before it has filled. One warp takes a block row; tile_rows.cuh says how its
// lanes share the work.

#include <spmark/warp.cuh>

#include "tile_rows.cuh"

using namespace spmark;

constexpr int kSide = 16;  // rows and columns of a block

// C[16 s + r, j] = sum over the blocks q of block row s, and their columns c, of A_q[r, c] B[16 indices[q] + c, j].
//
// A warp owns a block row and 8 * columns columns. The block rows of a thread block are neighbours, which mostly find
// the same rows of B in the first-level cache. The operands of one block are on their way while another is multiplied:
// with more on their way, fewer warps would fit, and that cache would lose rows of B. Block rows without blocks give
// zeros.
//   indptr    block_rows + 1 offsets of blocks
//   indices   block columns
//   pieces    each block's 256 elements as lanes hold them for mma_m16n8k16, eight a lane
//   dense     B, num_cols x width, row-major; width is a multiple of 8
//   out       C, num_rows x width, row-major
template <typename T, int columns, int threads>
__global__ void __launch_bounds__(threads)
    spmm_strips(int num_rows, int num_cols, int width, int block_rows, const int* __restrict__ indptr,
                const int* __restrict__ indices, const T* __restrict__ pieces, const T* __restrict__ dense,
                T* __restrict__ out) {
  static_assert(columns == 8 || columns == 4, "a lane loads its columns of a row of B at once");
  using Rows = TileRows<T, kSide, columns>;
  constexpr int kTile = 8 * columns;
  const int strip = blockIdx.x * (threads / kWarpSize) + threadIdx.x / kWarpSize;
  if (strip >= block_rows) return;  // the whole warp leaves
  const int lane = lane_id(), g = lane / 4, t = lane % 4;
  const int from = blockIdx.y * kTile + columns * g;  // the first of this lane's columns of B
  const int begin = indptr[strip], end = indptr[strip + 1];

  // The lanes hold the columns of the next 32 blocks.
  int block_columns = begin + lane < end ? indices[begin + lane] : 0;
  const auto fetch = [&](int q) {
    const int place = (q - begin) % kWarpSize;
    if (place == 0 && q != begin) block_columns = q + lane < end ? indices[q + lane] : 0;
    const int block_column = __shfl_sync(kFullMask, block_columns, place);
    typename Rows::Held held = {};
    if (q >= end) return held;
    held.load_a(pieces + static_cast<int64_t>(q) * (kSide * kSide), lane);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = block_column * kSide + row_of_lane(t, i);
      const T* source = row_of(dense + from, row, width * unsigned(sizeof(T)));
      if (row < num_cols && from < width) held.load_b(i, source);
    }
    return held;
  };

  Rows rows;
  auto held = fetch(begin);
#pragma unroll 1
  for (int q = begin; q < end; ++q) {
    rows.add(held);
    held = fetch(q + 1);
  }

  // This lane's sums are of rows g and g + 8, and of 2 * columns columns that stand together.
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    const int row = strip * kSide + Rows::row(lane, side);
#pragma unroll
    for (int part = 0; part < Rows::kParts; ++part) {
      const int column = blockIdx.y * kTile + Rows::column(lane, part);
      if (row < num_rows && column < width)
        store_streaming(out + static_cast<int64_t>(row) * width + column, round_to<T>(rows.part(side, part)));
    }
  }
}
