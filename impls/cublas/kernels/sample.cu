// Read a dense matrix at the non-zeros of a sparse one. Deterministic.

#include <spmark/half.cuh>
#include <spmark/vec.cuh>

using namespace spmark;

// out[p] = dense[rows[p], indices[p]], times values[p] where `scaled`.
//
// A thread owns one non-zero.
//   rows, indices, values   nnz rows, columns and values, in CSR order; values is not read unless scaled
//   dense    num_rows x num_cols floats, row-major: rounded to T once, after scaling
//   out      nnz results
template <typename T, bool scaled, int threads>
__global__ void __launch_bounds__(threads)
    sample_dense(int nnz, int num_cols, const int* __restrict__ rows, const int* __restrict__ indices,
                 const T* __restrict__ values, const float* __restrict__ dense, T* __restrict__ out) {
  const int64_t p = static_cast<int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (p >= nnz) return;  // no barrier follows
  float picked = dense[static_cast<int64_t>(rows[p]) * num_cols + indices[p]];
  if constexpr (scaled) picked *= to_float(values[p]);
  out[p] = from_float<T>(picked);
}
