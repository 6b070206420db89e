// Adds the results of the parts of A's columns (see parts.py), in a launch after the kernel's. Deterministic.

#include <spmark/overlap.cuh>
#include <spmark/vec.cuh>

using namespace spmark;

// out[i] = partial[0, i] + partial[1, i] + ..., in that order.
//
// A thread owns a vector of elements of C; its loads of all parts are under way together.
//   parts     parts that A's columns are cut into
//   vector    elements of a load
//   threads   of a thread block
//   elements  of C
//   partial   parts x elements, each part contiguous
//   out       elements; a multiple of vector, aligned to vectors
template <int parts, int vector, int threads>
__global__ void __launch_bounds__(threads) sum_parts(long long elements, const float* partial, float* out) {
  static_assert(parts > 1 && vector <= 4, "a vector is moved at once");
  const long long first = (static_cast<long long>(blockIdx.x) * threads + threadIdx.x) * vector;
  if (first >= elements) return;
  wait_for_previous_grid();
  Vec<float, vector> terms[parts];
#pragma unroll
  for (int p = 0; p < parts; ++p) terms[p] = load<vector>(partial + p * elements + first);
#pragma unroll
  for (int p = 1; p < parts; ++p) {
#pragma unroll
    for (int i = 0; i < vector; ++i) terms[0][i] += terms[p][i];
  }
  store(out + first, terms[0]);
}
