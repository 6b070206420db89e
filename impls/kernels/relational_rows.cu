// RGMS for maps, output-stationary: a thread block owns rows of Y and walks over the relations that any of them has.
// float16 with float32 sums. Every row of Y is written once: no atomics, and nothing to clear. Deterministic.

#include <spmark/half.cuh>
#include <spmark/vec.cuh>
#include <spmark/warp.cuh>

#include "relational_tile.cuh"

using namespace spmark;

// blockIdx.x counts tiles of rows, blockIdx.y tiles of columns of Y.
//   num_rows             of all tiles, padding included
//   width_in, width_out  multiples of `vector`
//   places               row of Y of each row, or -1
//   sets                 bits of the relations that any of sixteen rows have
//   neighbours           (R, num_rows) row of X, or -1;  values  of the same shape, read where `valued` (else all are
//   1) x, w, out            (K, width_in), (R, width_in, width_out), (I, width_out), row-major
// Dynamic shared memory: two stages.
template <int tile, int rows, int depth, int vector, bool valued, int threads>
__global__ void __launch_bounds__(threads)
    rgms_rows(int num_rows, int width_in, int width_out, const int* __restrict__ places,
              const unsigned* __restrict__ sets, const int* __restrict__ neighbours, const half* __restrict__ values,
              const half* __restrict__ x, const half* __restrict__ w, half* __restrict__ out) {
  static_assert(rows * 2 >= threads, "every warp has sixteen rows or more");
  static_assert(rows * tile * (1 + valued) <= 128 * threads, "the sums of a thread stay in registers");
  using Tile = RelationalTile<tile, rows, depth, vector, threads>;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  half* const stages = reinterpret_cast<half*>(shared_bytes);

  const int64_t first_row = static_cast<int64_t>(blockIdx.x) * rows;
  const int lane = threadIdx.x % kWarpSize, g = lane / 4, t = lane % 4;
  const int64_t warp_row = first_row + threadIdx.x / kWarpSize * Tile::kRows;
  unsigned left = 0;  // relations that are still to be asked for
#pragma unroll
  for (int i = 0; i < rows / 16; ++i) left |= sets[first_row / 16 + i];
  unsigned mine[Tile::kRowTiles];
#pragma unroll
  for (int m = 0; m < Tile::kRowTiles; ++m) mine[m] = sets[warp_row / 16 + m];

  const Tile relational{width_in, width_out, static_cast<int>(blockIdx.y) * tile, x};
  const auto fetch = [&](half* stage, int relation, int from) {
    relational.fetch(stage, neighbours + static_cast<int64_t>(relation) * num_rows + first_row, rows,
                     w + static_cast<int64_t>(relation) * width_in * width_out, from);
    commit_async();
  };
  typename Tile::Products sums = {}, products = {};
  int relation = __ffs(static_cast<int>(left)) - 1, from = 0, turn = 0;
  if (left != 0) fetch(stages, relation, 0);
  while (left != 0) {
    const int now = relation, column = from;
    from += depth;
    const bool last = from >= width_in;  // step of this relation
    if (last) {
      left &= left - 1;
      relation = __ffs(static_cast<int>(left)) - 1;
      from = 0;
    }
    wait_async<0>();
    __syncthreads();  // this step is there for all threads, and all have read the one that is overwritten next
    if (left != 0) fetch(stages + (turn ^ 1) * Tile::kStage, relation, from);
    unsigned live = 0;
#pragma unroll
    for (int m = 0; m < Tile::kRowTiles; ++m) live |= (mine[m] >> now & 1) << m;
    const half* const stage = stages + turn * Tile::kStage;
    turn ^= 1;
    if constexpr (!valued) {
      relational.multiply(sums, stage, column, live);
    } else {
      relational.multiply(products, stage, column, live);
      if (!last) continue;
      const half* const of_rows = values + static_cast<int64_t>(now) * num_rows + warp_row + g;
#pragma unroll
      for (int m = 0; m < Tile::kRowTiles; ++m) {
        if (!(live >> m & 1)) continue;
        const float scale[2] = {to_float(of_rows[m * 16]), to_float(of_rows[m * 16 + 8])};
#pragma unroll
        for (int n = 0; n < Tile::kColumnTiles; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            sums[m][n][i] = fmaf(scale[i / 2], products[m][n][i], sums[m][n][i]);
            products[m][n][i] = 0.0f;
          }
      }
    }
  }

#pragma unroll
  for (int m = 0; m < Tile::kRowTiles; ++m)
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const int place = places[warp_row + m * 16 + side * 8 + g];
      if (place < 0) continue;
      half* const to = out + static_cast<int64_t>(place) * width_out;
#pragma unroll
      for (int n = 0; n < Tile::kColumnTiles; ++n) {
        const int column = relational.first_column + n * 8 + t * 2;
        const Vec<half, 2> two = round_to<half>(Vec<float, 2>{sums[m][n][side * 2], sums[m][n][side * 2 + 1]});
        if constexpr (vector == 8) {
          if (column < width_out) store(to + column, two);
        } else {
#pragma unroll
          for (int i = 0; i < 2; ++i)
            if (column + i < width_out) to[column + i] = two[i];
        }
      }
    }
}
