// RGMS for maps, output-stationary: a thread block owns rows of Y and walks over the relations that any of them has.
// 16 bits with float32 sums. No atomics, and nothing to clear. Deterministic.
//
// An implicit GEMM whose rows are sorted by their sets of relations, group by group of relations: Tang, Yang, Liu,
// Hong, Yu, Li, Dai, Wang and Han, "TorchSparse++", MICRO 2023, section 3.

#include <spmark/overlap.cuh>
#include <spmark/warp.cuh>

#include "relational_steps.cuh"

using namespace spmark;

constexpr int kStages = 3;  // of X and W in shared memory: one is multiplied, two are on their way

// blockIdx.x counts tiles of rows, blockIdx.y tiles of columns of Y.
//   width_in, width_out  multiples of `vector`
//   starts               (tiles + 1,) first step of each tile: a step is a relation that any of its rows has
//   steps                2 integers each: the relation; a bit for each sixteen rows of which any has it
//   neighbours           (steps, rows) row of X, or -1
//   values               (steps, rows), read where `valued`; else A's are all ones
//   targets              (tiles, rows) row r of Y; -1 - p for row p of `pieces`, where other tiles have the row's
//                        other relations and a later launch adds up; or kNoRow
//   x, w, out            (K, width_in), (R, width_in, width_out), (I, width_out), row-major
//   pieces               rows of width_out, rounded to T
// Dynamic shared memory: the stages, and neighbours, steps and targets of the tile with the most steps.
template <typename T, int tile, int rows, int depth, int vector, bool valued, int threads>
__global__ void __launch_bounds__(threads)
    rgms_rows(int width_in, int width_out, const int* __restrict__ starts, const int* __restrict__ steps,
              const int* __restrict__ neighbours, const T* __restrict__ values, const int* __restrict__ targets,
              const T* __restrict__ x, const T* __restrict__ w, T* __restrict__ out, T* __restrict__ pieces) {
  static_assert(rows * 2 >= threads, "every warp has sixteen rows or more");
  static_assert(rows * tile * (1 + valued) <= 128 * threads, "the sums of a thread stay in registers");
  static_assert(threads == 128 || rows * tile * (1 + valued) > 128 * 128, "few sums need few threads");
  static_assert(vector == 8 || tile <= threads, "a thread copies elements of one column of the weights");
  // Two warps share rows where each keeps 32 columns or more: what a warp reads from shared memory grows with the edges
  // of its tile, and its products with their product.
  using Tile = RelationalTile<T, tile, rows, depth, vector, threads, (tile >= 256 ? 4 : tile >= 64 ? 2 : 1)>;
  let_next_grid_begin();  // which waits for this one where it needs to
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  T* const stages = reinterpret_cast<T*>(shared_bytes);
  int* const sources = reinterpret_cast<int*>(stages + kStages * Tile::kStage);

  const int64_t begin = starts[blockIdx.x];
  const int count = starts[blockIdx.x + 1] - static_cast<int>(begin);
  int* const todo = sources + count * rows;
  for (int p = threadIdx.x; p < count * (rows / 4); p += threads)
    copy_async<16>(sources + 4 * p, neighbours + begin * rows + 4 * p);
  for (int p = threadIdx.x; p < count; p += threads) copy_async<8>(todo + 2 * p, steps + 2 * (begin + p));
  int* const to = todo + 2 * count;
  for (int p = threadIdx.x; p < rows; p += threads)
    copy_async<4>(to + p, targets + static_cast<int64_t>(blockIdx.x) * rows + p);
  commit_async();
  wait_async<0>();
  __syncthreads();           // all of the tile is known to all threads
  wait_for_previous_grid();  // which may write X and W, and read what is written here

  const Tile relational{width_in, width_out, static_cast<int>(blockIdx.y) * tile, x};
  int asked = 0, asked_from = 0;  // what is asked for next
  const auto fetch_next = [&](int into) {
    if (asked < count) {
      relational.fetch(stages + into * Tile::kStage, sources + asked * rows, rows,
                       w + static_cast<int64_t>(todo[2 * asked]) * width_in * width_out, asked_from);
      asked_from += depth;
      if (asked_from >= width_in) asked_from = 0, ++asked;
    }
    commit_async();  // also of nothing, so that groups can be counted
  };
  values += begin * rows + Tile::row() + threadIdx.x % kWarpSize / 4;  // of this lane's first row
  typename Tile::Products sum = {}, products = {};
  for (int i = 0; i < kStages - 1; ++i) fetch_next(i);
  int stage = 0;
  for (int step = 0; step < count; ++step) {
    const unsigned live = static_cast<unsigned>(todo[2 * step + 1]) >> Tile::row() / 16;
    for (int from = 0; from < width_in; from += depth) {
      wait_async<kStages - 2>();
      __syncthreads();  // this stage is there for all threads, and all have read the one that is overwritten next
      fetch_next(stage == 0 ? kStages - 1 : stage - 1);
      relational.multiply(valued ? products : sum, stages + stage * Tile::kStage, from, live);
      stage = stage + 1 == kStages ? 0 : stage + 1;
    }
    if constexpr (valued) {
      const T* const of_rows = values + step * rows;
#pragma unroll
      for (int m = 0; m < Tile::kRowTiles; ++m) {
        if (!(live >> m & 1)) continue;  // for the whole warp
        const float scale[2] = {to_float(of_rows[m * 16]), to_float(of_rows[m * 16 + 8])};
#pragma unroll
        for (int n = 0; n < Tile::kColumnTiles; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            sum[m][n][i] = fmaf(scale[i / 2], products[m][n][i], sum[m][n][i]);
            products[m][n][i] = 0.0f;
          }
      }
    }
  }

#pragma unroll
  for (int m = 0; m < Tile::kRowTiles; ++m) {
    const int row = Tile::row() + m * 16 + threadIdx.x % kWarpSize / 4, target[2] = {to[row], to[row + 8]};
    leave<vector>(sum[m], target, relational.first_column + Tile::column(), OwnedRows<T, T>{out, pieces, width_out});
  }
}
