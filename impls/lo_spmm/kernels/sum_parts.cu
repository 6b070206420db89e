// Sums of what parts of the columns of A gave (see parts.py): a launch after the grid. Deterministic.

#include <spmark/overlap.cuh>
#include <spmark/vec.cuh>

using namespace spmark;

// out[i] = partial[0, i] + partial[1, i] + ..., in that order.
//
// A thread owns a vector of elements of C; its loads of all parts are under way together.
//   partial   parts x elements, each part contiguous
//   out       elements; a multiple of vector, aligned to vectors
template <int parts, int vector, int threads>
__global__ void __launch_bounds__(threads) sum_parts(long long elements, const float* partial, float* out) {
  static_assert(parts > 1 && vector <= 4, "a vector is moved at once");
  const long long first = (static_cast<long long>(blockIdx.x) * threads + threadIdx.x) * vector;
  if (first >= elements) return;
  wait_for_previous_grid();
  Vec<float, vector> held[parts];
#pragma unroll
  for (int p = 0; p < parts; ++p) held[p] = load<vector>(partial + p * elements + first);
#pragma unroll
  for (int p = 1; p < parts; ++p) {
#pragma unroll
    for (int i = 0; i < vector; ++i) held[0][i] += held[p][i];
  }
  store(out + first, held[0]);
}
