// SpMM over tiles as one grid: block tiles on the matrix unit and ELL rows. Float16 operands, float32 sums.
//
// The hybrid plans of STile (Fang, Shen, Wang and Chen, SIGMOD 2024, sections 2.2 and 4): tiles of both formats, fused
// horizontally. Rows that several tiles have something of are added up atomically, in an order that is not fixed.

#include <spmark/fusion.cuh>
#include <spmark/half.cuh>

#include "ell_buckets.cuh"
#include "tile_blocks.cuh"

using namespace spmark;

// C = A B, A the sum of both parts. Each body says what its arrays are; of both come first its items and its tiles of
// columns, 0 where A has no such part.
//   width       J, a multiple of 8
//   dense, out  B and C, row-major, aligned to 16 bytes
//   sums        float32 workspace of the rows that pieces share
// The workspace is cleared before this grid, with which it may overlap; shared rows are rounded after it.
template <int columns, int vector, int vectors, int lanes, int threads>
__global__ void __launch_bounds__(threads, vector == 8 ? 4 : 5)
    spmm_tiles(int width,  //
               int block_items, int block_tiles, const int* __restrict__ block_tasks,
               const int* __restrict__ block_indices, const half* __restrict__ block_pieces,
               const int* __restrict__ block_targets,  //
               int ell_items, int ell_tiles, const int* __restrict__ ell_ranges, const int* __restrict__ ell_rows,
               const int* __restrict__ ell_indices, const half* __restrict__ ell_values,  //
               const half* __restrict__ dense, half* out, float* sums) {
  static_assert(columns == 8 ? vector == 8 : vectors == 1 && lanes == 8, "as wide a tile of ELL rows as of blocks");
  using Blocks = TileBlocks<columns, threads>;
  using Ell = EllBuckets<half, vector, vectors, lanes, threads>;
  __shared__ LargestOf<typename Blocks::Shared, typename Ell::Shared> shared;
  const RowTarget<half> target{out, sums, width};
  run_fused(blockIdx.x,
            body(block_items, block_tiles,
                 [&](Place at) {
                   Blocks::run(shared.template as<typename Blocks::Shared>(), at.item, at.tile, block_tasks,
                               block_indices, block_pieces, block_targets, dense, target);
                 }),
            body(ell_items, ell_tiles, [&](Place at) {
              Ell::run(shared.template as<typename Ell::Shared>(), at.item, at.tile, width, ell_ranges, ell_rows,
                       ell_indices, ell_values, dense, out, sums);
            }));
}
