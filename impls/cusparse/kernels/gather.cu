// Read a block-sparse product at the non-zeros of A. Deterministic.

#include <spmark/half.cuh>
#include <spmark/vec.cuh>

using namespace spmark;

// out[p] = blocks[positions[p]], times values[p] where scaled: blocks of the SDDMM hold more elements than A's pattern.
//
// A thread owns one non-zero.
//   positions   nnz places in blocks;  values   nnz, not read unless scaled;  out   nnz, in CSR order
template <typename T, bool scaled, int threads>
__global__ void __launch_bounds__(threads)
    gather_slots(int nnz, const int* __restrict__ positions, const T* __restrict__ values,
                 const float* __restrict__ blocks, T* __restrict__ out) {
  const int64_t p = static_cast<int64_t>(blockIdx.x) * threads + threadIdx.x;
  if (p >= nnz) return;  // no barrier follows
  float product = blocks[positions[p]];
  if constexpr (scaled) product *= to_float(values[p]);
  out[p] = from_float<T>(product);
}
