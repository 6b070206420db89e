// The steps around the products of RGMS as frameworks have it: rows of X for edges, and sums of products.
// Deterministic.

#include <spmark/half.cuh>
#include <spmark/vec.cuh>

using namespace spmark;

// out[e, j] = x[sources[e], j]. A thread owns `vector` columns of an edge.
//   pieces   width / vector
//   sources  rows of X, num_edges
//   x, out   row-major, `width` columns; aligned to vector elements
template <typename T, int vector, int threads>
__global__ void __launch_bounds__(threads) gather_rows(int num_edges, int pieces, const int* __restrict__ sources,
                                                       const T* __restrict__ x, T* __restrict__ out) {
  static_assert(sizeof(T) * vector <= 16, "a vector is loaded at once");
  const int64_t at = static_cast<int64_t>(blockIdx.x) * threads + threadIdx.x;
  const int64_t edge = at / pieces;
  if (edge >= num_edges) return;  // no barrier follows
  const int64_t column = at % pieces;
  const int64_t from = static_cast<int64_t>(sources[edge]) * pieces + column;
  store(out + at * vector, load_read_only<vector>(x + from * vector));
}

// out[i, j] = sum of values[p] * products[slots[p], j] over the edges p of row i, rounded to T. A thread owns `vector`
// columns of a row, rows without edges included.
//   pieces    width / vector
//   indptr    edges of each row, num_rows + 1
//   slots     row of `products` of each edge;  values  of each edge
//   products  float32, row-major, `width` columns; aligned to vector elements
template <typename T, int vector, int threads>
__global__ void __launch_bounds__(threads)
    scatter_rows(int num_rows, int pieces, const int* __restrict__ indptr, const int* __restrict__ slots,
                 const T* __restrict__ values, const float* __restrict__ products, T* __restrict__ out) {
  static_assert(vector <= 4, "a vector of products is loaded at once");
  const int64_t at = static_cast<int64_t>(blockIdx.x) * threads + threadIdx.x;
  const int64_t row = at / pieces;
  if (row >= num_rows) return;  // no barrier follows
  const int64_t column = at % pieces;
  Vec<float, vector> sum = zeros<float, vector>();
  const int end = indptr[row + 1];
#pragma unroll 4
  for (int p = indptr[row]; p < end; ++p) {
    const int64_t from = static_cast<int64_t>(slots[p]) * pieces + column;
    axpy(sum, to_float(values[p]), load_read_only<vector>(products + from * vector));
  }
  store(out + at * vector, round_to<T>(sum));
}
