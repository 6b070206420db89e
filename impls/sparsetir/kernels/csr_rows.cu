// CSR SpMM with the schedule that SparseTIR compiles for a matrix in one format (Ye et al., ASPLOS 2023, section
// 4.2.1): GE-SpMM's without its cache of columns (Huang et al., SC 2020). Deterministic.

#include <spmark/half.cuh>
#include <spmark/vec.cuh>

using namespace spmark;

// C[i, j] = sum_k A[i, k] B[k, j].
//
// A group of `lanes` threads, a warp, walks the non-zeros of one row; a lane owns `coarsen` columns, `lanes` apart, and
// loads one element at a time.
//   indptr   num_rows + 1 offsets
//   indices  nnz columns, in CSR order
//   values   nnz values, likewise
//   dense    B, num_cols x width, row-major
//   out      C, num_rows x width, row-major; written whole, empty rows as zeros
template <typename T, int lanes, int coarsen, int threads>
__global__ void __launch_bounds__(threads)
    spmm_csr_rows(int num_rows, int width, const int* __restrict__ indptr, const int* __restrict__ indices,
                  const T* __restrict__ values, const T* __restrict__ dense, T* __restrict__ out) {
  const int row = blockIdx.x * (threads / lanes) + threadIdx.x / lanes;
  if (row >= num_rows) return;  // no barrier follows
  const int first = blockIdx.y * (lanes * coarsen) + threadIdx.x % lanes;
  Vec<float, 1> sum[coarsen] = {};
  const int end = indptr[row + 1];
  for (int p = indptr[row]; p < end; ++p) {
    const float value = to_float(values[p]);
    const T* source = dense + static_cast<int64_t>(indices[p]) * width;
#pragma unroll
    for (int c = 0; c < coarsen; ++c) {
      const int column = first + c * lanes;
      if (column < width) axpy(sum[c], value, load_read_only<1>(source + column));
    }
  }
#pragma unroll
  for (int c = 0; c < coarsen; ++c) {
    const int column = first + c * lanes;
    if (column < width) store_streaming(out + static_cast<int64_t>(row) * width + column, round_to<T>(sum[c]));
  }
}
