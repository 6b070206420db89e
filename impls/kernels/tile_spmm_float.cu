// SpMM over tiles as one grid in float32: block tiles on the matrix unit, each product as three of tf32, and ELL rows.
// As accurate as float32 sums in any order. Rows that several tiles share are added up atomically in C, in an order
// that is not fixed.
//
// The float32 sibling of tile_spmm.cu, after STile (Fang, Shen, Wang and Chen, SIGMOD 2024, sections 2.2 and 4).

#include <spmark/fusion.cuh>

#include "ell_buckets.cuh"
#include "tile_blocks.cuh"
#include "tile_rows_float.cuh"

using namespace spmark;

// C = A B, A the sum of both parts. Each body documents its arrays; before them stand its items and its tiles of
// columns, 0 where A has no such part.
//   width       J, a multiple of 8
//   mixed       whether there are ELL rows or rows without elements, whose body takes registers
//   dense, out  B and C, row-major, aligned to 16 bytes
//   sums        not used
// A launch before this grid, which may overlap with it, clears the rows of C that pieces share.
template <bool mixed, int columns, int lanes, int threads>
__global__ void __launch_bounds__(threads, columns == 4 ? 4 : 3)
    spmm_tiles_float(int width,  //
                     int block_items, int block_tiles, const int* __restrict__ block_tasks,
                     const int* __restrict__ block_indices, const float* __restrict__ block_pieces,
                     const int* __restrict__ block_targets,  //
                     int ell_items, int ell_tiles, const int* __restrict__ ell_ranges, const int* __restrict__ ell_rows,
                     const int* __restrict__ ell_indices, const float* __restrict__ ell_values,  //
                     const float* __restrict__ dense, float* out, float* sums) {
  static_assert(lanes == 8 || (mixed && columns == 8),
                "as wide a tile of ELL rows as of blocks, and one where none are");
  using Blocks = TileBlocks<float, 16, columns, 1, threads>;
  using Ell = EllBuckets<float, 4, 1, lanes, threads>;
  __shared__ LargestOf<typename Blocks::Shared, typename Ell::Shared> shared;
  const RowTarget<float> target{out, sums, width};
  run_fused(blockIdx.x,
            body(block_items, block_tiles,
                 [&](Place at) {
                   Blocks::run(shared.template as<typename Blocks::Shared>(), at.item, at.tile, block_tasks,
                               block_indices, block_pieces, block_targets, dense, target);
                 }),
            body(ell_items, ell_tiles, [&](Place at) {
              if constexpr (mixed)
                Ell::run(shared.template as<typename Ell::Shared>(), at.item, at.tile, width, ell_ranges, ell_rows,
                         ell_indices, ell_values, dense, out, sums);
            }));
}
