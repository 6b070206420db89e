// Conversion of CSR to ELL buckets: the elements, once the host has laid out the rows. Deterministic.

#include <spmark/half.cuh>
#include <spmark/vec.cuh>

using namespace spmark;

constexpr int kUnit = 8;  // bases of spans are counted in so many elements

// out[base + r * width + s] = element starts[r] + s of CSR, or, past the row's length, column -1 and the value 0.
//
// A thread block owns a span of one bucket's ELL rows. Threads take the span's elements in turn, so that neighbouring
// threads write neighbouring elements, and read them within a row.
//   spans        4 integers a block: first ELL row of all; units, or ELL rows where these are longer than a unit; base
//                of their elements over kUnit; slots of an ELL row, negative where rows are shared
//   starts       of every ELL row, the position of its first non-zero in CSR
//   lengths      of every ELL row, its non-zeros
//   indices      CSR's columns
//   values       CSR's values
//   out_indices  columns of all slots
//   out_values   values of all slots
template <typename T, int threads>
__global__ void __launch_bounds__(threads)
    fill_ell_buckets(const int* __restrict__ spans, const int* __restrict__ starts, const int* __restrict__ lengths,
                     const int* __restrict__ indices, const T* __restrict__ values, int* __restrict__ out_indices,
                     T* __restrict__ out_values) {
  const Vec<int, 4> span = load_read_only<4>(spans + 4 * static_cast<int64_t>(blockIdx.x));
  const int width = span[3] < 0 ? -span[3] : span[3];
  const int slots = span[1] * (width < kUnit ? kUnit : width);
  const int64_t base = static_cast<int64_t>(span[2]) * kUnit;
  for (int e = threadIdx.x; e < slots; e += threads) {
    const int row = span[0] + e / width;
    const int slot = e % width;
    const bool real = slot < lengths[row];
    const int from = starts[row] + slot;
    out_indices[base + e] = real ? indices[from] : -1;
    out_values[base + e] = real ? values[from] : from_float<T>(0.0f);
  }
}
