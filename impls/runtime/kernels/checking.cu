// What the check of a result needs: operands that are a function of positions, and the elements that are compared.

#include <spmark/vec.cuh>

using namespace spmark;

// Draw `size` values, grid-stride; `spmark.impls.core.operators` says which.
//   key      of the operand
//   values   (size,), written
template <typename T, int threads>
__global__ void __launch_bounds__(threads) draw(int64_t size, unsigned long long key, T* __restrict__ values) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * threads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * threads + threadIdx.x; i < size; i += step) {
    unsigned long long bits = static_cast<unsigned long long>(i) * 0x9E3779B97F4A7C15ULL + key;
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9ULL;
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBULL;
    bits ^= bits >> 31;
    const unsigned sign = static_cast<unsigned>(bits) << 31;
    values[i] = from_float<T>(__uint_as_float(static_cast<unsigned>(bits >> 41 & 0x7FFFFE) | 0x3F000000u | sign));
  }
}

// Copy `count` rows of `width` elements, grid-stride.
//   rows     (count,) rows of `source`
//   source   (., width)
//   taken    (count, width), written
template <typename T, int threads>
__global__ void __launch_bounds__(threads) take(int64_t count, int64_t width, const int64_t* __restrict__ rows,
                                                const T* __restrict__ source, T* __restrict__ taken) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * threads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * threads + threadIdx.x; i < count * width; i += step)
    taken[i] = source[rows[i / width] * width + i % width];
}
