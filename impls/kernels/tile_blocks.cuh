// The body of SpMM over block tiles on the matrix unit (see tile_spmm.cu): float32 sums.
//
// After STile (Fang, Shen, Wang and Chen, SIGMOD 2024, section 4), whose kernel stages gathered rows of B in shared
// memory. A window of rows reads every row of B only once, so that staging would save no reads: lanes read rows of B
// into the unit's registers, one group ahead or several.
#pragma once

#include <spmark/overlap.cuh>
#include <spmark/warp.cuh>

#include "row_target.cuh"
#include "tile_rows.cuh"

namespace spmark {

constexpr int kTileGroup = 16;  // columns of A in a group

// C[targets[p, r], j] (+)= sum over the groups q of panel p, and their columns s, of A_q[r, s] B[indices[q, s], j].
//
// A warp takes a run of a panel's groups and 8 * columns columns of C. The operands of `ahead` groups are on their way
// at any time. Where a task says so, the warps of a thread block share one panel and add up their sums in shared
// memory.
//   height    rows of a panel, 16 or 8
//   tasks     4 integers a warp: panel, or -1 for none; first group; end of the groups; share (0: the warp has the
//             panel by itself; n + 1: it is the n-th of the warps of the thread block that share the panel)
//   indices   16 columns a group
//   pieces    height x 16 elements a group, as `Rows::Held` has lanes hold them
//   targets   `height` rows a panel (see RowTarget and PieceTarget), kNoRow where the panel has nothing of a row
//   dense     B, num_cols x width, row-major; width is a multiple of 8
template <typename T, int height, int columns, int ahead, int threads>
struct TileBlocks {
  using Rows = TileRows<T, height, columns>;
  static constexpr int kTile = 8 * columns;
  static constexpr int kWarps = threads / kWarpSize;
  static_assert(ahead == 1 || ahead % 2 == 0, "lanes hold the columns of two groups at a time");

  struct Shared {
    float sums[kWarps - 1][Rows::kSums][kWarpSize];
  };

  template <typename Target>
  static __device__ __forceinline__ void run(Shared& shared, int item, int tile, const int* __restrict__ tasks,
                                             const int* __restrict__ indices, const T* __restrict__ pieces,
                                             const int* __restrict__ targets, const T* __restrict__ dense,
                                             const Target& target) {
    const int warp = threadIdx.x / kWarpSize, lane = lane_id(), g = lane / 4, t = lane % 4;
    const Vec<int, 4> task = load_read_only<4>(tasks + (static_cast<int64_t>(item) * kWarps + warp) * 4);
    const int count = task[2] - task[1];
    const int from = tile * kTile + columns * g;  // the first of this lane's columns of B
    const int* const named = indices + static_cast<int64_t>(task[1]) * kTileGroup;
    const T* const held_a = pieces + static_cast<int64_t>(task[1]) * (height * kTileGroup);

    // The lanes hold the columns of two groups, and the columns of the next two are on their way.
    const auto columns_of = [&](int q) {
      return q * kTileGroup + lane < count * kTileGroup ? named[q * kTileGroup + lane] : 0;
    };
    int now = 0, later = columns_of(0);
    const auto fetch = [&](int q, int odd) {
      if (odd == 0) {
        now = later;
        later = columns_of(q + 2);
      }
      typename Rows::Held held = {};
      if (q < count) held.load_a(held_a + static_cast<int64_t>(q) * (height * kTileGroup), lane);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = __shfl_sync(kFullMask, now, odd * kTileGroup + row_of_lane(t, i));
        const T* source = row_of(dense + from, row, target.width * unsigned(sizeof(T)));
        if (q < count && from < target.width) held.load_b(i, source);
      }
      return held;
    };

    Rows rows;
    typename Rows::Held held[ahead];
#pragma unroll
    for (int i = 0; i < ahead; ++i) held[i] = fetch(i, i % 2);
#pragma unroll 1
    for (int q = 0; q < count; q += ahead) {
#pragma unroll
      for (int i = 0; i < ahead; ++i) {
        rows.add(held[i]);  // zeros past the last group
        held[i] = fetch(q + ahead + i, (ahead == 1 ? q + 1 : i) % 2);
      }
    }

    if (task[3] != 0) {  // the same for all warps of the thread block
      if (warp > 0) {
#pragma unroll
        for (int i = 0; i < Rows::kSums; ++i) shared.sums[warp - 1][i][lane] = rows.sum(i);
      }
      __syncthreads();  // the first warp adds up the sums of the others
      if (warp > 0) return;
#pragma unroll 1
      for (int w = 0; w < kWarps - 1; ++w)
#pragma unroll
        for (int i = 0; i < Rows::kSums; ++i) rows.sum(i) += shared.sums[w][i][lane];
    }
    if (task[0] < 0) return;
    if constexpr (!Target::kArrives) wait_for_previous_grid();  // which clears the rows that are added into
    write(rows, target, targets + task[0] * height, max(task[3] - 1, 0), tile * kTile, lane);
  }

private:
  // `piece` is the number of this thread block among those that share the panel.
  template <typename Target>
  static __device__ __forceinline__ void write(const Rows& rows, const Target& target, const int* targets, int piece,
                                               int first, int lane) {
    int to[2];
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      to[side] = targets[Rows::row(lane, side)];
      if (Target::kArrives && to[side] < 0 && to[side] != kNoRow) to[side] -= piece;
    }
#pragma unroll
    for (int side = 0; side < 2; ++side) {
#pragma unroll
      for (int part = 0; part < Rows::kParts; ++part) {
        const int column = first + Rows::column(lane, part);
        if (column < target.width) target.write(to[side], column, rows.part(side, part));
      }
    }
    if constexpr (Target::kArrives) {
      const Vec<int, 4> pieces[2] = {target.piece(to[0]), target.piece(to[1])};
      __syncwarp();  // the leaders, who count the pieces, come after the writes of their lanes
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        if (!target.last(to[side], pieces[side], Rows::leader(lane))) continue;
#pragma unroll
        for (int part = 0; part < Rows::kParts; ++part) {
          const int column = first + Rows::column(lane, part);
          if (column < target.width) target.add_up(to[side], pieces[side], column, rows.part(side, part));
        }
      }
    }
  }
};

}  // namespace spmark
