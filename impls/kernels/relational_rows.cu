// RGMS for maps, output-stationary: a thread block owns rows of Y and walks over the relations that any of them has.
// 16 bits with float32 sums. No atomics. Deterministic.
//
// An implicit GEMM whose rows are sorted by their sets of relations, group by group of relations: Tang, Yang, Liu,
// Hong, Yu, Li, Dai, Wang and Han, "TorchSparse++", MICRO 2023, section 3.

#include <spmark/half.cuh>
#include <spmark/overlap.cuh>
#include <spmark/vec.cuh>
#include <spmark/warp.cuh>

#include "relational_group.cuh"
#include "relational_tile.cuh"

using namespace spmark;

constexpr int kStages = 3;  // of X and W in shared memory: one is multiplied, two are on their way

constexpr int kRelation = 0xffff, kLast = 0x10000;  // of a step: its relation, and whether it is the last of its part

// blockIdx.x counts thread blocks, blockIdx.y tiles of columns of Y. A thread block owns a run of parts of tiles of
// rows.
//   width_in, width_out  multiples of `vector`
//   bounds               (blocks + 1, 2) first step and first part of each thread block; a step is a relation that any
//                        of a part's rows has
//   steps                2 integers each: the relation, and kLast; a bit for each sixteen rows of which any has it
//   neighbours           (steps, rows) row of X, or -1
//   values               (steps, rows), read where `valued`; else A's are all ones
//   targets              (parts, rows) row r of Y; -1 - p for row p of `sums`, where other parts have more of the row's
//                        relations and a later launch adds up; or kNoRow
//   x, w, out            (K, width_in), (R, width_in, width_out), (I, width_out), row-major
//   sums                 float32 rows of width_out
// Dynamic shared memory: the stages, and neighbours and steps of the thread block with the most steps.
template <typename T, int tile, int rows, int depth, int vector, bool valued, int threads>
__global__ void __launch_bounds__(threads, threads == 256 && rows * tile * (1 + valued) <= 64 * 256 ? 2 : 1)
    rgms_rows(int width_in, int width_out, const int* __restrict__ bounds, const int* __restrict__ steps,
              const int* __restrict__ neighbours, const T* __restrict__ values, const int* __restrict__ targets,
              const T* __restrict__ x, const T* __restrict__ w, T* __restrict__ out, float* __restrict__ sums) {
  static_assert(rows * 2 >= threads, "every warp has sixteen rows or more");
  static_assert(rows * tile * (1 + valued) <= 128 * threads, "the sums of a thread stay in registers");
  static_assert(threads == 128 || rows * tile * (1 + valued) > 64 * 128, "few sums need few threads");
  static_assert(vector == 8 || tile <= threads, "a thread copies elements of one column of the weights");
  // Two warps share rows where each keeps 32 columns or more: what a warp reads from shared memory grows with the edges
  // of its tile, and its products with their product.
  using Tile = RelationalTile<T, tile, rows, depth, vector, threads, (tile >= 64 ? 2 : 1)>;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  T* const stages = reinterpret_cast<T*>(shared_bytes);
  int* const sources = reinterpret_cast<int*>(stages + kStages * Tile::kStage);
  let_next_grid_begin();  // which adds up pieces, and waits for them

  const int64_t begin = bounds[2 * blockIdx.x];
  const int count = bounds[2 * blockIdx.x + 2] - static_cast<int>(begin);
  int* const todo = sources + count * rows;
  for (int p = threadIdx.x; p < count * (rows / 4); p += threads)
    copy_async<16>(sources + 4 * p, neighbours + begin * rows + 4 * p);
  for (int p = threadIdx.x; p < count; p += threads) copy_async<8>(todo + 2 * p, steps + 2 * (begin + p));
  commit_async();
  wait_async<0>();
  __syncthreads();  // all of the run is known to all threads

  const Tile relational{width_in, width_out, static_cast<int>(blockIdx.y) * tile, x};
  int asked = 0, asked_from = 0;  // what is asked for next
  const auto fetch_next = [&](int into) {
    if (asked < count) {
      relational.fetch(stages + into * Tile::kStage, sources + asked * rows, rows,
                       w + static_cast<int64_t>(todo[2 * asked] & kRelation) * width_in * width_out, asked_from);
      asked_from += depth;
      if (asked_from >= width_in) asked_from = 0, ++asked;
    }
    commit_async();  // also of nothing, so that groups can be counted
  };
  const int first_row = Tile::row() + threadIdx.x % kWarpSize / 4;
  values += begin * rows + first_row;
  const int* to = targets + static_cast<int64_t>(bounds[2 * blockIdx.x + 1]) * rows + first_row;
  const RowTarget<T> row{out, sums, width_out};
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
    if (!(todo[2 * step] & kLast)) continue;

#pragma unroll
    for (int m = 0; m < Tile::kRowTiles; ++m)
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        const int target = to[m * 16 + side * 8];
#pragma unroll
        for (int n = 0; n < Tile::kColumnTiles; n += 2) {
          const int first_column = relational.first_column + Tile::column() + n * 8;
          if constexpr (vector == 8) {
            const Vec<float, 4> four = four_columns(sum[m][n], sum[m][n + 1], side);
            const int column = first_column + column_of_four();
            if (column < width_out) write_row<true>(row, target, column, four);
          } else {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              const int column = first_column + i / 2 * 8 + threadIdx.x % 4 * 2 + i % 2;
              if (column < width_out)
                write_row<true>(row, target, column, Vec<float, 1>{sum[m][n + i / 2][side * 2 + i % 2]});
            }
          }
#pragma unroll
          for (int i = 0; i < 4; ++i) sum[m][n + i / 2][side * 2 + i % 2] = 0.0f;
        }
      }
    to += rows;
  }
}
