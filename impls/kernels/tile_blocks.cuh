// The body of SpMM over block tiles on the matrix unit (see tile_spmm.cu): float16 operands, float32 sums.
//
// After STile (Fang, Shen, Wang and Chen, SIGMOD 2024, section 4), whose kernel stages gathered rows of B in shared
// memory. A window of 16 rows meets every row of B once, so that staging shares nothing: lanes read rows of B
// into the unit's registers, several groups ahead.
#pragma once

#include <spmark/overlap.cuh>
#include <spmark/warp.cuh>

#include "row_target.cuh"
#include "strips.cuh"

namespace spmark {

constexpr int kTileGroup = 16;  // columns of A in a group: the k of mma

// C[targets[p, r], j] (+)= sum over the groups q of panel p, and their columns s, of A_q[r, s] B[indices[q, s], j].
//
// A warp takes a run of a panel's groups and 8 * columns columns of C; the operands of kAhead groups are on their way
// at any time. Where a task says so the warps of a thread block have runs of one panel and add up in shared memory.
//   tasks     4 integers a warp: panel, or -1 for none; first group; end of the groups; whether the warps of the thread
//             block share the panel
//   indices   16 columns a group
//   pieces    256 halves a group as lanes hold them for mma_m16n8k16, eight a lane
//   targets   16 rows a panel (see RowTarget), kNoRow where the panel has nothing of a row
//   dense     B, num_cols x width, row-major; width is a multiple of 8
template <int columns, int threads>
struct TileBlocks {
  static constexpr int kTile = 8 * columns;
  static constexpr int kWarps = threads / kWarpSize;
  static constexpr int kAhead = 16 / columns;  // groups whose operands are on their way: as much as registers hold
  static_assert(columns == 4 || columns == 8, "two or four groups are fetched ahead");

  struct Shared {
    float sums[kWarps - 1][4 * columns][kWarpSize];
  };

  static __device__ __forceinline__ void run(Shared& shared, int item, int tile, const int* __restrict__ tasks,
                                             const int* __restrict__ indices, const half* __restrict__ pieces,
                                             const int* __restrict__ targets, const half* __restrict__ dense,
                                             const RowTarget<half>& target) {
    const int warp = threadIdx.x / kWarpSize, lane = lane_id(), g = lane / 4, t = lane % 4;
    const Vec<int, 4> task = load_read_only<4>(tasks + (static_cast<int64_t>(item) * kWarps + warp) * 4);
    const int count = task[2] - task[1];
    const int from = tile * kTile + columns * g;  // the first of this lane's columns of B
    const int* const named = indices + static_cast<int64_t>(task[1]) * kTileGroup;
    const auto* const held_a =
        reinterpret_cast<const unsigned*>(pieces) + (static_cast<int64_t>(task[1]) * kWarpSize + lane) * 4;

    // The lanes hold the columns of two groups, those of the next two are on their way.
    const auto columns_of = [&](int q) {
      return q * kTileGroup + lane < count * kTileGroup ? named[q * kTileGroup + lane] : 0;
    };
    int now = 0, later = columns_of(0);
    const auto fetch = [&](int q, int odd) {
      if (odd == 0) {
        now = later;
        later = columns_of(q + 2);
      }
      Operands<columns> held = {};
      if (q < count) held.a = load_streaming<4>(held_a + static_cast<int64_t>(q) * (4 * kWarpSize));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = shuffle(kFullMask, now, odd * kTileGroup + row_of_lane(t, i));
        const half* source = dense + static_cast<int64_t>(row) * target.width + from;
        if (q < count && from < target.width)
          held.b[i] = load_read_only<columns / 2>(reinterpret_cast<const unsigned*>(source));
      }
      return held;
    };

    float sums[columns][4] = {};
    Operands<columns> held[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) held[i] = fetch(i, i % 2);
#pragma unroll 1
    for (int q = 0; q < count; q += kAhead) {
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        multiply(sums, held[i]);  // zeros past the last group
        held[i] = fetch(q + kAhead + i, i % 2);
      }
    }

    if (task[3] != 0) {  // of all warps or none
      if (warp > 0) {
#pragma unroll
        for (int i = 0; i < 4 * columns; ++i) shared.sums[warp - 1][i][lane] = sums[i / 4][i % 4];
      }
      __syncthreads();  // the first warp adds up what the others have found
      if (warp > 0) return;
#pragma unroll 1
      for (int w = 0; w < kWarps - 1; ++w)
#pragma unroll
        for (int i = 0; i < 4 * columns; ++i) sums[i / 4][i % 4] += shared.sums[w][i][lane];
    }
    if (task[0] < 0) return;
    wait_for_previous_grid();  // which clears what is added into

#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const int row = targets[task[0] * kTileGroup + g + side * 8];
#pragma unroll
      for (int part = 0; part < columns / 4; ++part) {
        const int column = tile * kTile + 2 * columns * t + 8 * part;
        if (column < target.width) target.write(row, column, eight_sums(sums, side, part));
      }
    }
  }
};

}  // namespace spmark
