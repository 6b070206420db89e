// SpMM and SDDMM over CSR as it comes, without a schedule to choose: for float64 and bfloat16, which no search takes.
// Deterministic: no atomics.

#include <spmark/bfloat.cuh>
#include <spmark/vec.cuh>
#include <spmark/warp.cuh>

using namespace spmark;

// From the type of operands to that in which products are added up, and back.
__device__ __forceinline__ double widen(double value) { return value; }
__device__ __forceinline__ float widen(bfloat16 value) { return to_float(value); }
__device__ __forceinline__ double narrow(double sum) { return sum; }
__device__ __forceinline__ bfloat16 narrow(float sum) { return to_bfloat16(sum); }

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
template <typename T, int lanes, int threads>
__global__ void __launch_bounds__(threads)
    spmm_plain(int num_rows, int width, const int* __restrict__ indptr, const int* __restrict__ indices,
               const T* __restrict__ values, const T* __restrict__ dense, T* __restrict__ out) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (threads / lanes) + threadIdx.x / lanes;
  const int column = blockIdx.y * lanes + threadIdx.x % lanes;
  if (row >= num_rows || column >= width) return;

  decltype(widen(T{})) sum = 0;
  const int end = indptr[row + 1];
#pragma unroll 4
  for (int p = indptr[row]; p < end; ++p)
    sum += widen(values[p]) * widen(dense[static_cast<int64_t>(indices[p]) * width + column]);
  out[row * width + column] = narrow(sum);
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
template <typename T, int lanes, int threads>
__global__ void __launch_bounds__(threads)
    sddmm_plain(int num_rows, int nnz, int width, int scaled, const int* __restrict__ indptr,
                const int* __restrict__ indices, const T* __restrict__ values, const T* __restrict__ x,
                const T* __restrict__ y, T* __restrict__ out) {
  const int lane = threadIdx.x % lanes;
  const int64_t p = static_cast<int64_t>(blockIdx.x) * (threads / lanes) + threadIdx.x / lanes;
  if (p >= nnz) return;  // the group leaves together; shuffles name the group alone

  const T* left = x + static_cast<int64_t>(row_at(indptr, num_rows, static_cast<int>(p))) * width;
  const T* right = y + static_cast<int64_t>(indices[p]) * width;
  decltype(widen(T{})) sum = 0;
  for (int j = lane; j < width; j += lanes) sum += widen(left[j]) * widen(right[j]);
#pragma unroll
  for (int step = lanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(group_mask<lanes>(), sum, step);
  if (lane != 0) return;
  if (scaled) sum *= widen(values[p]);
  out[p] = narrow(sum);
}
