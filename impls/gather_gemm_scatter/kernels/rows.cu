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

// Sums of values[p] * products[slots[p], j] over the edges p of a piece of a row. A thread owns `vector` columns of a
// piece; rows are cut into pieces so that one with many edges is not one thread's.
//   pieces    width / vector
//   starts    first edge of each piece, num_pieces + 1
//   targets   r where the piece is all of row r of `out`; -1 - p where its sums are row p of `sums`
//   slots     row of `products` of each edge;  values  of each edge
//   products  row-major, `width` columns; aligned to vector elements
template <typename T, typename Product, int vector, int threads>
__global__ void __launch_bounds__(threads)
    scatter_rows(int num_pieces, int pieces, const int* __restrict__ starts, const int* __restrict__ targets,
                 const int* __restrict__ slots, const T* __restrict__ values, const Product* __restrict__ products,
                 T* __restrict__ out, float* __restrict__ sums) {
  static_assert(sizeof(Product) * vector <= 16 && sizeof(T) * vector <= 16, "a vector is loaded or stored at once");
  const int64_t at = static_cast<int64_t>(blockIdx.x) * threads + threadIdx.x;
  const int64_t piece = at / pieces;
  if (piece >= num_pieces) return;  // no barrier follows
  const int64_t column = at % pieces;
  Vec<float, vector> sum = zeros<float, vector>();
  const int end = starts[piece + 1];
#pragma unroll 4
  for (int p = starts[piece]; p < end; ++p) {
    const int64_t from = static_cast<int64_t>(slots[p]) * pieces + column;
    axpy(sum, to_float(values[p]), load_read_only<vector>(products + from * vector));
  }
  const int target = targets[piece];
  if (target >= 0) {
    store(out + (static_cast<int64_t>(target) * pieces + column) * vector, round_to<T>(sum));
    return;
  }
  float* const to = sums + (static_cast<int64_t>(-1 - target) * pieces + column) * vector;
  constexpr int kAtOnce = vector < 4 ? vector : 4;
#pragma unroll
  for (int i = 0; i < vector; i += kAtOnce) {
    Vec<float, kAtOnce> some;
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) some[k] = sum[i + k];
    store(to + i, some);
  }
}
