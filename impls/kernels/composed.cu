// SpMM over a matrix that is the sum of parts in three formats, as one grid: dense blocks on the matrix unit, CSR rows,
// ELL buckets. Float16 operands, float32 sums.
//
// Composable formats with horizontal fusion, after Ye et al., "SparseTIR", ASPLOS 2023, sections 3.2.1 and 3.5.

#include <spmark/fusion.cuh>
#include <spmark/half.cuh>

#include "bsr_tiles.cuh"
#include "csr_rows.cuh"
#include "ell_buckets.cuh"

using namespace spmark;

// C = A B, where A is the sum of the parts. Every part has its items and its tiles of columns, both 0 where A lacks the
// part, and then its arrays, which the part's body documents.
//   width       J
//   num_cols    K, rows of B
//   dense       B, row-major; aligned to vector elements, and so is width
//   out         C, likewise
//   sums        float32 workspace of the rows that pieces share
// Rows of C without a piece, and the workspace, are cleared before this grid; shared rows are rounded after it.
template <int vector, int lanes, int size, int threads>
__global__ void __launch_bounds__(threads)
    spmm_composed(int num_cols, int width,  //
                  int bsr_items, int bsr_tiles, const int* __restrict__ bsr_indptr, const int* __restrict__ bsr_indices,
                  const half* __restrict__ bsr_blocks, const int* __restrict__ bsr_targets,  //
                  int csr_items, int csr_tiles, const int* __restrict__ csr_indptr, const int* __restrict__ csr_indices,
                  const half* __restrict__ csr_values, const int* __restrict__ csr_targets,  //
                  int ell_items, int ell_tiles, const int* __restrict__ ell_ranges, const int* __restrict__ ell_rows,
                  const int* __restrict__ ell_indices, const half* __restrict__ ell_values,  //
                  const half* __restrict__ dense, half* out, float* sums) {
  using Bsr = BsrTiles<size, vector, threads>;
  using Csr = CsrRows<half, vector, lanes, 1, true, threads>;
  using Ell = EllBuckets<half, vector, 1, lanes, threads>;
  __shared__ LargestOf<typename Bsr::Shared, typename Ell::Shared> shared;
  const RowTarget<half> target{out, sums, width};
  run_fused(blockIdx.x,
            body(bsr_items, bsr_tiles,
                 [&](Place at) {
                   Bsr::run(shared.template as<typename Bsr::Shared>(), at.item, at.tile, num_cols, bsr_indptr,
                            bsr_indices, bsr_blocks, bsr_targets, dense, target);
                 }),
            body(csr_items, csr_tiles,
                 [&](Place at) {
                   Csr::run(at.item, at.tile, csr_items * Csr::kRows, csr_indptr, csr_indices, csr_values, csr_targets,
                            dense, target);
                 }),
            body(ell_items, ell_tiles, [&](Place at) {
              Ell::run(shared.template as<typename Ell::Shared>(), at.item, at.tile, width, ell_ranges, ell_rows,
                       ell_indices, ell_values, dense, out, sums);
            }));
}
