// SpMM over CSR with one warp for each row of C, declared for spmark in the comment below. Deterministic: no atomics.
//
//     spmark check examples/mykernel/spmm_rows.cu
//     spmark run --matrix patterns/logsparse_256 --width 64 --implementation examples/mykernel/spmm_rows.cu

/* spmark
kernel: spmm_rows
op: spmm
dtypes: [float32, float16, bfloat16]
parameters:
  T: dtype
  threads: [128, 64, 256]
grid: [num_rows * 32 / threads]
arguments: [num_rows, width, indptr, indices, values, B, C]
*/

#include <spmark/half.cuh>

using namespace spmark;

// C[i, j] = sum_k A[i, k] B[k, j].
//
// A warp owns a row of C; its threads own columns 32 apart. An empty row has a sum of 0, which its warp writes.
template <typename T, int threads>
__global__ void __launch_bounds__(threads)
    spmm_rows(int num_rows, int width, const int* indptr, const int* indices, const T* values, const T* B, T* C) {
  const int i = blockIdx.x * (threads / 32) + threadIdx.x / 32;
  if (i >= num_rows) return;
  for (int j = threadIdx.x % 32; j < width; j += 32) {
    float sum = 0.0f;
    for (int p = indptr[i]; p < indptr[i + 1]; ++p) {
      sum += to_float(values[p]) * to_float(B[static_cast<int64_t>(indices[p]) * width + j]);
    }
    C[static_cast<int64_t>(i) * width + j] = from_float<T>(sum);
  }
}
