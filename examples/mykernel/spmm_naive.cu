// SpMM over CSR with one thread for each element of C. Deterministic: no atomics.

#include <spmark/half.cuh>
#include <spmark/vec.cuh>

using namespace spmark;

// C[i, j] = sum_k A[i, k] B[k, j].
//
// A thread owns one element of C; threads that follow each other own elements of one row, so that they read neighbours
// of B. An empty row has a sum of 0, which its threads write.
//   num_rows  I, rows of A and of C
//   width     J, columns of B and of C
//   indptr    num_rows + 1 offsets into indices and values
//   indices   nnz columns of A
//   values    nnz values of A, rounded to T
//   dense     B, K x width, row-major
//   out       C, num_rows x width, row-major
template <typename T, int threads>
__global__ void __launch_bounds__(threads)
    spmm_naive(int num_rows, int width, const int* __restrict__ indptr, const int* __restrict__ indices,
               const T* __restrict__ values, const T* __restrict__ dense, T* __restrict__ out) {
  const int64_t element = static_cast<int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (element >= static_cast<int64_t>(num_rows) * width) return;  // no barrier follows
  const int i = static_cast<int>(element / width);
  const int j = static_cast<int>(element % width);
  float sum = 0.0f;
  for (int p = indptr[i]; p < indptr[i + 1]; ++p) {
    sum = fmaf(to_float(values[p]), to_float(dense[static_cast<int64_t>(indices[p]) * width + j]), sum);
  }
  out[element] = from_float<T>(sum);
}
