// RGMS for maps with wide rows, output-stationary as rgms_rows, by warpgroups on the matrix unit: each multiplies 64
// rows of a tile by all of its columns. A's values are all ones. 16 bits with float32 sums. No atomics. Deterministic.

#include <spmark/async.cuh>
#include <spmark/half.cuh>
#include <spmark/overlap.cuh>
#include <spmark/warp.cuh>
#include <spmark/wgmma.cuh>

#include "relational_steps.cuh"

using namespace spmark;

// blockIdx.x counts thread blocks, which own tiles of rows, blockIdx.y tiles of columns of Y. Copies for the next tile
// are on their way while rows of the last one leave.
//   width_in, width_out  multiples of 8
//   bounds               (blocks + 1, 2) first step and first tile of each thread block
//   steps                relation of each step; kLast; and from kSlabs on a bit for each 64 rows of which any has it
//   neighbours           (steps, rows) row of X, or -1
//   targets              (tiles, rows) as of rgms_rows
//   x, w, out, pieces    as of rgms_rows
// Dynamic shared memory: the stages, and 1024 bytes more.
template <typename T, int tile, int rows, int stages, int threads>
__global__ void __launch_bounds__(threads)
    rgms_wide(int width_in, int width_out, const int* __restrict__ bounds, const int* __restrict__ steps,
              const int* __restrict__ neighbours, const int* __restrict__ targets, const T* __restrict__ x,
              const T* __restrict__ w, T* __restrict__ out, T* __restrict__ pieces) {
  static_assert(threads == 2 * rows, "a warpgroup has 64 rows");
  static_assert(rows <= 128 || (tile == 96 || tile == 128), "large tiles, whose sums stay in registers");
  static_assert(rows >= 128 || tile == 64, "narrow tiles of few rows");
  static_assert((stages == 3) == (rows == 128 && (tile == 96 || tile == 128)), "of these, two share a multiprocessor");
  constexpr int kStageX = rows * kBlockSide, kStage = kStageX + (tile + kBlockSide - 1) / kBlockSide * kBlock;
  constexpr int kSlabs = 17, kAhead = stages - 2;                   // one is multiplied, and the one before may be
  constexpr int kTimes = rows * 8 / threads, kApart = threads / 8;  // rows of X of a thread, and how far apart
  let_next_grid_begin();                                            // which waits for this one where it needs to
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  T* const all = reinterpret_cast<T*>(first_block(shared_bytes));

  const int first_column = blockIdx.y * tile, piece = threadIdx.x % 8 * 8, first = threadIdx.x / 8;
  const int begin = bounds[2 * blockIdx.x], end = bounds[2 * blockIdx.x + 2];
  struct Step {
    int about, sources[kTimes];
  };
  const auto step_at = [&](int at) {
    Step step{};
    if (at < end) {
      step.about = steps[at];
#pragma unroll
      for (int i = 0; i < kTimes; ++i)
        step.sources[i] = neighbours[static_cast<int64_t>(at) * rows + first + i * kApart];
    }
    return step;
  };
  Step asked = step_at(begin), following = step_at(begin + 1);  // of what is asked for next, and of the step after
  int asked_at = begin, asked_from = 0, into = 0;               // and where it goes
  const int* to = targets + static_cast<int64_t>(bounds[2 * blockIdx.x + 1]) * rows + threadIdx.x / kWarpSize * 16 +
                  threadIdx.x % kWarpSize / 4;
  int target[2] = {to[0], to[8]};
  wait_for_previous_grid();  // which may write X and W, and read what is written here

  const auto weights_of = [&](const Step& step) {
    return w + (step.about & kRelation) * (static_cast<int64_t>(width_in) * width_out) + first_column;
  };
  const T* from_w = weights_of(asked);
  const auto fetch_next = [&] {
    if (asked_at < end) {
      T* const stage = all + into * kStage;
      const bool inside = asked_from + piece < width_in;
      const T* const from_x = x + asked_from + piece;
#pragma unroll
      for (int i = 0; i < kTimes; ++i)
        copy_async<16>(stage + in_block(first + i * kApart, piece),
                       from_x + static_cast<int64_t>(asked.sources[i]) * width_in, asked.sources[i] >= 0 && inside);
      copy_blocks<tile, threads>(stage + kStageX, from_w, width_out, width_in - asked_from, width_out - first_column);
      into = into + 1 == stages ? 0 : into + 1;
      asked_from += kBlockSide, from_w += kBlockSide * width_out;
      if (asked_from >= width_in) {
        asked_from = 0, ++asked_at;
        asked = following, following = step_at(asked_at + 1);
        from_w = weights_of(asked);
      }
    }
    commit_async();  // also of nothing, so that groups can be counted
  };

  const int warpgroup = threadIdx.x / 128;
  float sum[tile / 8][4] = {};
  for (int i = 0; i < kAhead; ++i) fetch_next();
  int turn = 0, about = steps[begin];
  for (int step = begin; step < end; ++step) {
    const bool last = about & kLast, live = __any_sync(kFullMask, about >> (kSlabs + warpgroup) & 1);
    about = step + 1 < end ? steps[step + 1] : 0;
    for (int from = 0; from < width_in; from += kBlockSide) {
      wait_async<kAhead - 1>();
      show_to_matrix_unit();
      __syncthreads();  // this stage is there for all, and all products of the one that is overwritten next are done
      const T* const stage = all + turn * kStage;
#pragma unroll
      for (int k = 0; k < kBlockSide; k += 32) {
        if (!live || from + k >= width_in) break;
        begin_products();
        multiply_blocks(sum, stage + warpgroup * kBlock, stage + kStageX, k);
        multiply_blocks(sum, stage + warpgroup * kBlock, stage + kStageX, k + 16);
      }
      commit_products();
      fetch_next();
      wait_products<1>();
      turn = turn + 1 == stages ? 0 : turn + 1;
    }
    if (!last) continue;
    wait_products(sum);
    leave<8>(sum, target, first_column, OwnedRows<T, T>{out, pieces, width_out});
    if (step + 1 == end) break;
    to += rows;
    target[0] = to[0], target[1] = to[8];  // are needed when the next tile ends
  }
}
