// CSR SpMM with the schedule that SparseTIR compiles for a matrix in one format, and that LiteForm compares with:
// 32 lanes a row, one column of each lane loaded at a time, no shared memory (csr_rows.cuh has the body).
// Deterministic.

#include <spmark/half.cuh>

#include "csr_rows.cuh"

using namespace spmark;

// C[i, j] = sum_k A[i, k] B[k, j]; every row is written, empty ones as zeros.
//   indptr   num_rows + 1 offsets;  indices, values   in CSR order
//   dense    B, num_cols x width, row-major;  out   C, num_rows x width, row-major
template <typename T, int coarsen, int threads>
__global__ void __launch_bounds__(threads)
    spmm_csr_rows(int num_rows, int width, const int* __restrict__ indptr, const int* __restrict__ indices,
                  const T* __restrict__ values, const T* __restrict__ dense, T* __restrict__ out) {
  const RowTarget<T> target{out, nullptr, width};
  CsrRows<T, 1, 32, coarsen, false, threads>::run(blockIdx.x, blockIdx.y, num_rows, indptr, indices, values, nullptr,
                                                  dense, target);
}
