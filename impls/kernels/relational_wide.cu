// RGMS for maps with wide rows, output-stationary as rgms_rows, by warpgroups on the matrix unit: each multiplies 64
// rows of a tile by all of its columns. A's values are all ones. 16 bits with float32 sums. No atomics. Deterministic.

#include <spmark/async.cuh>
#include <spmark/half.cuh>
#include <spmark/overlap.cuh>
#include <spmark/vec.cuh>
#include <spmark/warp.cuh>
#include <spmark/wgmma.cuh>

#include "relational_leave.cuh"
#include "row_target.cuh"

using namespace spmark;

// blockIdx.x counts tiles of rows, blockIdx.y tiles of columns of Y. Arguments as of rgms_rows; widths are multiples
// of 8. Dynamic shared memory: 1024 bytes more than the stages, and neighbours, steps and targets of the tile with the
// most steps.
template <typename T, int tile, int rows, int stages, int threads>
__global__ void __launch_bounds__(threads)
    rgms_wide(int width_in, int width_out, const int* __restrict__ starts, const int* __restrict__ steps,
              const int* __restrict__ neighbours, const int* __restrict__ targets, const T* __restrict__ x,
              const T* __restrict__ w, T* __restrict__ out, float* __restrict__ sums) {
  static_assert(threads == 2 * rows, "a warpgroup has 64 rows");
  static_assert(rows <= 128 || (tile == 96 || tile == 128), "large tiles, whose sums stay in registers");
  static_assert(rows >= 128 || tile == 64, "narrow tiles of few rows");
  static_assert((stages == 3) == (rows == 128 && (tile == 96 || tile == 128)), "of these, two share a multiprocessor");
  constexpr int kStageX = rows * kBlockSide, kStage = kStageX + (tile + kBlockSide - 1) / kBlockSide * kBlock;
  constexpr int kAhead = stages - 2;  // one is multiplied, and the one before may be
  let_next_grid_begin();              // which waits for this one where it needs to
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  T* const all = reinterpret_cast<T*>(first_block(shared_bytes));
  int* const sources = reinterpret_cast<int*>(all + stages * kStage);

  const int64_t begin = starts[blockIdx.x];
  const int count = starts[blockIdx.x + 1] - static_cast<int>(begin);
  int* const todo = sources + count * rows;
  int* const to = todo + 2 * count;
  for (int p = threadIdx.x; p < count * (rows / 4); p += threads)
    copy_async<16>(sources + 4 * p, neighbours + begin * rows + 4 * p);
  for (int p = threadIdx.x; p < count; p += threads) copy_async<8>(todo + 2 * p, steps + 2 * (begin + p));
  for (int p = threadIdx.x; p < rows; p += threads)
    copy_async<4>(to + p, targets + static_cast<int64_t>(blockIdx.x) * rows + p);
  commit_async();
  wait_async<0>();
  __syncthreads();           // all of the tile is known to all threads
  wait_for_previous_grid();  // which may write X and W, and read what is written here

  const int first_column = blockIdx.y * tile, piece = threadIdx.x % 8 * 8, first = threadIdx.x / 8;
  int asked = 0, asked_from = 0, into = 0;  // what is asked for next, and where it goes
  const auto fetch_next = [&] {
    if (asked < count) {
      T* const stage = all + into * kStage;
      const T* const from_x = x + asked_from + piece;
      const bool inside = asked_from + piece < width_in;
      constexpr int kTimes = rows * 8 / threads;
      int source[kTimes];  // all are read before the first copy, which orders memory
#pragma unroll
      for (int i = 0; i < kTimes; ++i) source[i] = sources[asked * rows + first + i * (threads / 8)];
#pragma unroll
      for (int i = 0; i < kTimes; ++i)
        copy_async<16>(stage + in_block(first + i * (threads / 8), piece),
                       from_x + static_cast<int64_t>(source[i]) * width_in, source[i] >= 0 && inside);
      const int64_t row = static_cast<int64_t>(todo[2 * asked]) * width_in + asked_from;
      copy_blocks<tile, threads>(stage + kStageX, w + row * width_out + first_column, width_out, width_in - asked_from,
                                 width_out - first_column);
      into = into + 1 == stages ? 0 : into + 1;
      asked_from += kBlockSide;
      if (asked_from >= width_in) asked_from = 0, ++asked;
    }
    commit_async();  // also of nothing, so that groups can be counted
  };

  const int warpgroup = threadIdx.x / 128;
  float sum[tile / 8][4] = {};
  for (int i = 0; i < kAhead; ++i) fetch_next();
  int turn = 0;
  for (int step = 0; step < count; ++step) {
    for (int from = 0; from < width_in; from += kBlockSide) {
      wait_async<kAhead - 1>();
      show_to_matrix_unit();
      __syncthreads();  // this stage is there for all, and all products of the one that is overwritten next are done
      const T* const stage = all + turn * kStage;
#pragma unroll
      for (int k = 0; k < kBlockSide; k += 32) {
        if (from + k >= width_in) break;
        begin_products();
        multiply_blocks(sum, stage + warpgroup * kBlock, stage + kStageX, k);
        multiply_blocks(sum, stage + warpgroup * kBlock, stage + kStageX, k + 16);
      }
      commit_products();
      fetch_next();
      wait_products<1>();
      turn = turn + 1 == stages ? 0 : turn + 1;
    }
  }
  wait_products(sum);
  __syncthreads();  // all are done with the last stage; nothing is on its way any more
  const RowsOfY<T, tile, rows, 8, threads> y{width_out, first_column, to, out, sums};
  y.put(all, sum, threadIdx.x / kWarpSize * 16, 0);
  y.write(all);
}
