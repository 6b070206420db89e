// SDDMM over tiles as one grid: block tiles on the matrix unit and runs of non-zeros, in float16 with float32 sums.
// Deterministic: every non-zero is computed once and written where A has it in CSR order, or in the order of the tiles.
//
// The hybrid plans of STile (Fang, Shen, Wang and Chen, SIGMOD 2024, sections 2.2 and 4): tiles of both formats, fused
// horizontally.

#include <spmark/fusion.cuh>

#include "half_words.cuh"
#include "sddmm_dots.cuh"

using namespace spmark;

// write(n, sum_j X[row, j] Y[column, j]) for the non-zeros n of block tiles: 16 rows by groups of 16 columns.
//
// A warp takes a run of a panel's groups, two at a time, and computes all of their elements. The results wait in shared
// memory, where lanes pick the non-zeros among them. The rows of Y of the next groups are on their way meanwhile.
//   tasks     4 integers a warp: panel, or -1 for none; first group; end of the groups; unused
//   rows      16 rows of X a panel; any one where the panel has fewer
//   indices   16 columns a group
//   starts    first non-zero of every group, and the end of the last one
//   slots     of each non-zero 16 times its row within the panel plus its column within the group
//   x, y      row-major, `width` columns; aligned to vector elements, and so is width
template <int vector, int threads>
struct TileBlocksSddmm {
  static constexpr int kHeight = 16, kGroup = 16;
  static constexpr int kWarps = threads / kWarpSize;
  static constexpr int kDepth = 2;  // chunks of J loaded at once
  static constexpr int kStep = kDepth * kChunk;
  static constexpr int kStride = 40;  // floats from row to row: four rows are in different banks

  struct Shared {
    alignas(16) float tile[kWarps][kHeight * kStride];
  };

  template <typename Write>
  static __device__ __forceinline__ void
  run(Shared& shared, int item, const int* __restrict__ tasks, const int* __restrict__ rows,
      const int* __restrict__ indices, const int* __restrict__ starts, const unsigned char* __restrict__ slots,
      int width, const half* __restrict__ x, const half* __restrict__ y, const Write& write) {
    const int warp = threadIdx.x / kWarpSize, lane = lane_id(), g = lane / 4, t = lane % 4;
    const Vec<int, 4> task = load_read_only<4>(tasks + (static_cast<int64_t>(item) * kWarps + warp) * 4);
    if (task[0] < 0) return;  // the whole warp leaves; no barrier of the block follows
    const int end = task[2];
    float* const tile = shared.tile[warp];

    int named[4], ahead[4];  // rows of Y of this lane, for these groups and for the next
    const auto names = [&](int q, int (&to)[4]) {
#pragma unroll
      for (int i = 0; i < 4; ++i) to[i] = indices[min(q + i / 2, end - 1) * kGroup + i % 2 * 8 + g];
    };
    Words left[kDepth][2], right[kDepth][4];
    const half* const top = x + static_cast<int64_t>(rows[task[0] * kHeight + g]) * width;
    const half* const bottom = x + static_cast<int64_t>(rows[task[0] * kHeight + 8 + g]) * width;
    const auto fetch_left = [&](int j) {
#pragma unroll
      for (int d = 0; d < kDepth; ++d) {
        const int at = j + d * kChunk + 8 * t;
        left[d][0] = load_words<vector>(top + at, width - at);
        left[d][1] = load_words<vector>(bottom + at, width - at);
      }
    };
    const auto fetch_right = [&](int j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int d = 0; d < kDepth; ++d) {
          const int at = j + d * kChunk + 8 * t;
          right[d][i] = load_words<vector>(row_of(y + at, named[i], width * unsigned(sizeof(half))), width - at);
        }
      }
    };

    names(task[1], named);
    names(task[1] + 2, ahead);
    fetch_left(0);
    fetch_right(0);
#pragma unroll 1
    for (int q = task[1]; q < end; q += 2) {
      float sum[4][4] = {};
#pragma unroll 1
      for (int j = 0; j < width; j += kStep) {
        add_products(sum, left, right);
        const bool last = j + kStep >= width;
        if (last) {
#pragma unroll
          for (int i = 0; i < 4; ++i) named[i] = ahead[i];
          names(q + 4, ahead);
        }
        if (!last || q + 2 < end) {
          if (width > kStep) fetch_left(last ? 0 : j + kStep);
          fetch_right(last ? 0 : j + kStep);
        }
      }

      const int first = starts[q], middle = starts[q + 1], stop = starts[min(q + 2, end)];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int side = 0; side < 2; ++side)
          store(tile + (g + 8 * side) * kStride + 8 * i + 2 * t, Vec<float, 2>{sum[i][2 * side], sum[i][2 * side + 1]});
      }
      __syncwarp();  // a lane writes results of other lanes
      for (int n = first + lane; n < stop; n += kWarpSize) {
        const int slot = slots[n];
        const int column = slot % kGroup + (n < middle ? 0 : kGroup);
        write(n, tile[slot / kGroup * kStride + column]);
      }
      __syncwarp();  // all lanes have read before the next results are stored
    }
  }
};

// D = X Y^T at A's non-zeros, times A's values where `scaled` is not 0. Each body documents its arrays; before them
// stand its items and its tiles, of which there is one.
//   width       J
//   values      not read unless scaled; like the results in CSR order where `listed`, else in the order of the tiles
//   x, y        num_rows x width and num_cols x width, row-major, aligned to vector elements, and so is width
//   positions   of each non-zero of a body, in CSR order; not read unless `listed`
//   run_count   non-zeros in runs
//   listed      whether results go where `positions` say; otherwise one after the other, `block_count` of blocks first
template <int vector, int lanes, int batch, int threads>
__global__ void __launch_bounds__(threads, vector == 8 ? 4 : 1)
    sddmm_tiles(int width, int scaled, int listed, int block_count, int run_count,  //
                int block_items, int block_tiles, const int* __restrict__ block_tasks,
                const int* __restrict__ block_rows, const int* __restrict__ block_indices,
                const int* __restrict__ block_starts, const unsigned char* __restrict__ block_slots,
                const int* __restrict__ block_positions,  //
                int run_items, int run_tiles, const int* __restrict__ run_rows, const int* __restrict__ run_indices,
                const int* __restrict__ run_positions,  //
                const half* __restrict__ values, const half* __restrict__ x, const half* __restrict__ y,
                half* __restrict__ out) {
  static_assert(vector == 8 || lanes == 8, "narrow loads are not worth a variant");
  using Blocks = TileBlocksSddmm<vector, threads>;
  __shared__ typename Blocks::Shared shared;
  const auto write = [&](const int* positions, int before, int n, float sum) {
    const int place = listed ? positions[n] : before + n;
    out[place] = from_float<half>(scaled ? sum * to_float(values[place]) : sum);
  };
  run_fused(blockIdx.x,
            body(block_items, block_tiles,
                 [&](Place at) {
                   Blocks::run(shared, at.item, block_tasks, block_rows, block_indices, block_starts, block_slots,
                               width, x, y, [&](int n, float sum) { write(block_positions, 0, n, sum); });
                 }),
            body(run_items, run_tiles, [&](Place at) {
              const int group = at.item * (threads / lanes) + static_cast<int>(threadIdx.x) / lanes;
              batch_dots<vector, lanes, batch>(group * batch, run_count, width, run_rows, run_indices, x, y,
                                               [&](int n, float sum) { write(run_positions, block_count, n, sum); });
            }));
}
