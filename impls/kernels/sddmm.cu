// SDDMM over the non-zeros in CSR order, several at a time. Deterministic: no atomics.
//
// Two stages as in PRedS (Yu et al., "Exploiting Online Locality and Reduction Parallelism for Sampled Dense Matrix
// Multiplication on GPUs", ICCD 2021) and its generalisation in SparseTIR (Ye et al., ASPLOS 2023, section 4.2.2):
// lanes add up their own products over J, then each other's.

#include <spmark/half.cuh>

#include "sddmm_dots.cuh"

using namespace spmark;

// D[p] = sum_j X[row of p, j] Y[indices[p], j], times values[p] where `scaled` is not 0.
//
// A group of `lanes` threads owns `batch` consecutive non-zeros; a block holds threads / lanes groups.
//   rows      the row of each of the nnz non-zeros
//   indices   nnz columns, in CSR order
//   values    nnz values, likewise; not read unless scaled
//   x         num_rows x width, row-major; aligned to vector elements, and so is width
//   y         K x width, likewise
//   out       nnz results
// Consecutive non-zeros mostly share their row, so the repeated reads of X hit the first-level cache; `batch`
// independent rows of Y in flight hide the latency of reads that miss.
template <typename T, int vector, int lanes, int batch, int threads>
__global__ void __launch_bounds__(threads)
    sddmm_csr(int nnz, int width, int scaled, const int* __restrict__ rows, const int* __restrict__ indices,
              const T* __restrict__ values, const T* __restrict__ x, const T* __restrict__ y, T* __restrict__ out) {
  static_assert(threads % lanes == 0 && 32 % lanes == 0, "a group is a part of one warp");
  static_assert(sizeof(T) * vector <= 16, "a vector is loaded at once");
  static_assert((threads == 128 && batch > 1) || (vector <= 4 && threads <= 8 * lanes),
                "blocks of other sizes, and groups of one non-zero, are those of SparseTIR's published space");
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * (threads / lanes) + threadIdx.x / lanes) * batch;
  batch_dots<vector, lanes, batch>(first, nnz, width, rows, indices, x, y, [&](int64_t p, float sum) {
    if (scaled) sum *= to_float(values[p]);
    out[p] = from_float<T>(sum);
  });
}
