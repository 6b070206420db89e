// The body of CSR SpMM by rows: a group of lanes walks the non-zeros of one row.
//
// As GE-SpMM without its cache of columns (Huang et al., SC 2020), which is the schedule that SparseTIR gives a CSR
// matrix (Ye et al., ASPLOS 2023, section 4.2.1). Deterministic but for shared rows.
#pragma once

#include "row_target.cuh"

namespace spmark {

// C[targets[r], j] (+)= sum_k A[r, k] B[k, j].
//
// A thread block owns threads / lanes rows and a tile of lanes * vector * coarsen columns; a lane holds `coarsen`
// vectors, `lanes * vector` columns apart.
//   indptr    num_rows + 1 offsets
//   indices   columns, in CSR order
//   values    values, likewise
//   targets   num_rows targets (see RowTarget); not read where rows are not `listed`, whose row r is row r of C
//   dense     B, row-major, `width` columns; aligned to vector elements, and so is width
template <typename T, int vector, int lanes, int coarsen, bool listed, int threads>
struct CsrRows {
  static_assert(threads % lanes == 0, "groups fill the block");
  static_assert(sizeof(T) * vector <= 16, "a vector is loaded at once");
  static constexpr int kRows = threads / lanes;
  static constexpr int kColumns = lanes * vector * coarsen;

  static __device__ __forceinline__ void run(int item, int tile, int num_rows, const int* __restrict__ indptr,
                                             const int* __restrict__ indices, const T* __restrict__ values,
                                             const int* __restrict__ targets, const T* __restrict__ dense,
                                             const RowTarget<T>& target) {
    const int row = item * kRows + threadIdx.x / lanes;
    if (row >= num_rows) return;  // no barrier follows
    const int first = tile * kColumns + threadIdx.x % lanes * vector;
    Vec<float, vector> sum[coarsen] = {};
    const int end = indptr[row + 1];
    for (int p = indptr[row]; p < end; ++p) {
      const float value = to_float(values[p]);
      const T* source = dense + static_cast<int64_t>(indices[p]) * target.width;
#pragma unroll
      for (int c = 0; c < coarsen; ++c) {
        const int column = first + c * lanes * vector;
        if (column < target.width) axpy(sum[c], value, load_read_only<vector>(source + column));
      }
    }
#pragma unroll
    for (int c = 0; c < coarsen; ++c) {
      const int column = first + c * lanes * vector;
      if (column < target.width) target.write(listed ? targets[row] : row, column, sum[c]);
    }
  }
};

}  // namespace spmark
