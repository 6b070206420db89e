// SDDMM over tiles as one grid: block tiles on the matrix unit and runs of non-zeros, in float16 with float32 sums.
// Deterministic: every non-zero is computed once and written where A has it in CSR order, or in the order of the tiles.
//
// The hybrid plans of STile (Fang, Shen, Wang and Chen, SIGMOD 2024, sections 2.2 and 4): tiles of both formats, fused
// horizontally.

#include <spmark/fusion.cuh>

#include "sddmm_dots.cuh"
#include "tile_sddmm.cuh"

using namespace spmark;

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
