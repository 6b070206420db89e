// SpMM over tiles as one grid: block tiles on the matrix unit and ELL rows. Sums are float32. In float32 each product
// of the matrix unit is three of tf32, as accurate as float32 sums in any order.
//
// The hybrid plans of STile (Fang, Shen, Wang and Chen, SIGMOD 2024, sections 2.2 and 4): tiles of both formats, fused
// horizontally. Rows that several tiles share are added up atomically, in an order that is not fixed. Where there are
// blocks alone, in 16 bits, the last thread block that brings a piece of a row adds up all, always in the same order.

#include <spmark/fusion.cuh>
#include <spmark/half.cuh>

#include "ell_buckets.cuh"
#include "tile_blocks.cuh"

using namespace spmark;

// Thread blocks of a multiprocessor for which the compiler leaves registers: in float32 by columns, and in 16 bits more
// of them where half as much is ahead, or where ELL rows are taken by narrow loads.
template <int bytes, int columns, int ahead, int vector>
constexpr int kBlocks = bytes == 4             ? (columns == 4 ? 4 : 3)
                        : ahead * columns == 8 ? (columns == 4 ? 5 : 6)
                        : vector == 4          ? 5
                                               : 4;

// C = A B, A the sum of all parts. Each body documents its arrays; before them stand its items and its tiles of
// columns, 0 where A has no such part. Low block tiles are those of 16 bits alone.
//   width       J, a multiple of 8
//   mixed       whether there are ELL rows or rows without elements, whose body takes registers
//   ahead       groups of block tiles whose operands are on their way; few leave registers for more thread blocks
//   dense       B, row-major, aligned to 16 bytes
//   out         C, likewise
//   sums        16 bits: float32 workspace of the rows that pieces share
//   row_pieces  see PieceTarget; not used where there are ELL rows, nor in float32
//   counters    likewise
// Where there are ELL rows, and in float32, a launch before this grid clears the workspace, or the shared rows of C,
// and may overlap with this grid. In 16 bits a launch after it rounds the shared rows.
template <typename T, bool mixed, int columns, int ahead, int vector, int vectors, int lanes, int threads>
__global__ void __launch_bounds__(threads, kBlocks<sizeof(T), columns, ahead, vector>)
    spmm_tiles(int width,  //
               int high_items, int high_tiles, const int* __restrict__ high_tasks, const int* __restrict__ high_indices,
               const T* __restrict__ high_pieces, const int* __restrict__ high_targets,  //
               int low_items, int low_tiles, const int* __restrict__ low_tasks, const int* __restrict__ low_indices,
               const T* __restrict__ low_pieces, const int* __restrict__ low_targets,  //
               int ell_items, int ell_tiles, const int* __restrict__ ell_ranges, const int* __restrict__ ell_rows,
               const int* __restrict__ ell_indices, const T* __restrict__ ell_values,  //
               const T* __restrict__ dense, T* out, float* sums, const int* __restrict__ row_pieces, int* counters) {
  static_assert(sizeof(T) == 4 || ahead * columns == 16 || (!mixed && ahead * columns == 8),
                "as much ahead as registers hold, or half");
  static_assert(sizeof(T) == 2 || (ahead == 1 && vector == 4 && vectors == 1), "one load of four in float32");
  static_assert(mixed || (sizeof(T) * vector == 16 && vectors == 1 && lanes == 8), "one kernel without ELL rows");
  static_assert(columns == 4 || sizeof(T) * vector == 16, "loads of half the width for the narrowest J alone");
  static_assert(columns == 8 || (vectors == 1 && lanes == 8), "two loads side by side for wide J alone");
  using High = TileBlocks<T, 16, columns, ahead, threads>;
  constexpr bool kNarrow = sizeof(T) == 2;
  using Low = TileBlocks<T, kNarrow ? 8 : 16, columns, ahead, threads>;  // float32: has no tasks
  using Ell = EllBuckets<T, vector, vectors, lanes, threads>;
  __shared__ LargestOf<typename High::Shared, typename Low::Shared, typename Ell::Shared> shared;
  const auto target = [&](int tile) {
    if constexpr (mixed || !kNarrow)
      return RowTarget<T>{out, sums, width};
    else
      return PieceTarget<T>{out, sums, row_pieces, counters, width, tile, (width + High::kTile - 1) / High::kTile};
  };
  run_fused(blockIdx.x,
            body(high_items, high_tiles,
                 [&](Place at) {
                   High::run(shared.template as<typename High::Shared>(), at.item, at.tile, high_tasks, high_indices,
                             high_pieces, high_targets, dense, target(at.tile));
                 }),
            body(low_items, low_tiles,
                 [&](Place at) {
                   if constexpr (kNarrow)
                     Low::run(shared.template as<typename Low::Shared>(), at.item, at.tile, low_tasks, low_indices,
                              low_pieces, low_targets, dense, target(at.tile));
                 }),
            body(ell_items, ell_tiles, [&](Place at) {
              if constexpr (mixed)
                Ell::run(shared.template as<typename Ell::Shared>(), at.item, at.tile, width, ell_ranges, ell_rows,
                         ell_indices, ell_values, dense, out, sums);
            }));
}
