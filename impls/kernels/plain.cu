// SpMM and SDDMM over CSR as it comes, without a schedule to choose: for float64, which no search takes.
// Deterministic: no atomics.

#include <spmark/vec.cuh>
#include <spmark/warp.cuh>

using namespace spmark;

// C[i, j] = sum_k A[i, k] B[k, j].
//
// A group of `lanes` threads owns one row and `lanes` columns; a block holds threads / lanes rows.
//   num_rows  I, rows of A and of C
//   width     J, columns of B and of C
//   indptr    num_rows + 1 offsets
//   indices   nnz columns, in CSR order
//   values    nnz values, likewise
//   dense     B, K x width, row-major
//   out       C, num_rows x width, row-major; written whole, empty rows as zeros
template <int lanes, int threads>
__global__ void __launch_bounds__(threads)
    spmm_plain(int num_rows, int width, const int* __restrict__ indptr, const int* __restrict__ indices,
               const double* __restrict__ values, const double* __restrict__ dense, double* __restrict__ out) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (threads / lanes) + threadIdx.x / lanes;
  const int column = blockIdx.y * lanes + threadIdx.x % lanes;
  if (row >= num_rows || column >= width) return;

  double sum = 0;
  const int end = indptr[row + 1];
#pragma unroll 4
  for (int p = indptr[row]; p < end; ++p) sum += values[p] * dense[static_cast<int64_t>(indices[p]) * width + column];
  out[row * width + column] = sum;
}

// Row that holds position p: the last one that starts at or before it. O(log num_rows) dependent loads.
__device__ __forceinline__ int row_at(const int* __restrict__ indptr, int num_rows, int p) {
  int low = 0, high = num_rows - 1;
  while (low < high) {
    const int middle = low + (high - low + 1) / 2;
    if (indptr[middle] <= p)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

// D[p] = sum_j X[row of p, j] Y[indices[p], j], times values[p] where `scaled` is not 0.
//
// A group of `lanes` threads owns one non-zero; a block holds threads / lanes non-zeros.
//   num_rows  I, rows of A and of X
//   nnz       non-zeros
//   width     J, columns of X and of Y
//   scaled    whether results are multiplied by A's values
//   indptr    num_rows + 1 offsets, in which a group looks for its row
//   indices   nnz columns, in CSR order
//   values    nnz values, likewise; not read unless scaled
//   x         num_rows x width, row-major
//   y         K x width, likewise
//   out       nnz results
template <int lanes, int threads>
__global__ void __launch_bounds__(threads)
    sddmm_plain(int num_rows, int nnz, int width, int scaled, const int* __restrict__ indptr,
                const int* __restrict__ indices, const double* __restrict__ values, const double* __restrict__ x,
                const double* __restrict__ y, double* __restrict__ out) {
  const int lane = threadIdx.x % lanes;
  const int64_t p = static_cast<int64_t>(blockIdx.x) * (threads / lanes) + threadIdx.x / lanes;
  if (p >= nnz) return;  // the group leaves together; shuffles name the group alone

  const double* left = x + static_cast<int64_t>(row_at(indptr, num_rows, static_cast<int>(p))) * width;
  const double* right = y + static_cast<int64_t>(indices[p]) * width;
  double sum = 0;
  for (int j = lane; j < width; j += lanes) sum += left[j] * right[j];
#pragma unroll
  for (int step = lanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(group_mask<lanes>(), sum, step);
  if (lane != 0) return;
  if (scaled) sum *= values[p];
  out[p] = sum;
}
