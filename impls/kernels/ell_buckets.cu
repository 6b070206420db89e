// SpMM over ELL buckets: many formats at once in one compute grid.
//
// The mapping is that of SparseTIR's hyb schedule (Ye et al., ASPLOS 2023, section 4.2.1), with blocks of equal work
// that look up which bucket they belong to. Where several ELL rows share a row of A, their sums are added atomically,
// in an order that varies; all other results are deterministic.

#include <spmark/half.cuh>
#include <spmark/vec.cuh>

#include "ell_buckets.cuh"

using namespace spmark;

// One grid over all buckets of a matrix: a block for every range and tile of columns (EllBuckets lists the parameters).
template <typename T, int vector, int vectors, int lanes, int threads>
__global__ void __launch_bounds__(threads, kResident<vector, vectors> / threads)
    spmm_ell_buckets(int width, const int* __restrict__ ranges, const int* __restrict__ rows,
                     const int* __restrict__ indices, const T* __restrict__ values, const T* __restrict__ dense, T* out,
                     float* sums) {
  static_assert(sizeof(T) * vector <= 16, "a vector is loaded at once");
  static_assert(threads == 128 || (vectors == 2 && sizeof(T) * vector == 16), "large blocks where a thread takes most");
  using Buckets = EllBuckets<T, vector, vectors, lanes, threads>;
  __shared__ typename Buckets::Shared memory;
  Buckets::run(memory, blockIdx.x, blockIdx.y, width, ranges, rows, indices, values, dense, out, sums);
}
