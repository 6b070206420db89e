// SDDMM over strips of rows in the manner of Sputnik. Deterministic: no atomics.
//
// Gale, Zaharia, Young and Elsen, "Sparse GPU Kernels for Deep Learning", SC 2020, section 6: a subwarp computes
// consecutive non-zeros of one row, its threads share out the inner dimension and add up their partial sums at the end.

#include <spmark/half.cuh>
#include <spmark/vec.cuh>
#include <spmark/warp.cuh>

using namespace spmark;

constexpr int kStrip = 8;  // lanes of a subwarp, and non-zeros of its strip: each lane ends with one sum

// D[p] = sum_j X[row of p, j] Y[indices[p], j], times values[p] where `scaled` is not 0.
//
// A subwarp owns a strip of up to kStrip consecutive non-zeros of one row; a block holds threads / kStrip strips that
// follow each other in `strips`, so that their lengths are alike.
//   strips    of each strip row, first non-zero and number of non-zeros, at least one, then 0; longest first
//   indices   nnz columns, in CSR order
//   values    nnz values, likewise; not read unless scaled
//   x         num_rows x width, row-major; aligned to vector elements, and so is width
//   y         num_cols x width, likewise
//   out       nnz results
template <typename T, int vector, int threads>
__global__ void __launch_bounds__(threads)
    sddmm_rowsplit(int num_strips, int width, int scaled, const int* __restrict__ strips,
                   const int* __restrict__ indices, const T* __restrict__ values, const T* __restrict__ x,
                   const T* __restrict__ y, T* __restrict__ out) {
  static_assert(sizeof(T) * vector <= 16, "a vector is loaded at once");
  const int slot = blockIdx.x * (threads / kStrip) + threadIdx.x / kStrip;
  const int lane = threadIdx.x % kStrip;
  if (slot >= num_strips) return;  // the subwarp leaves together; shuffles name the subwarp alone
  const Vec<int, 4> mine = load_read_only<4>(strips + 4 * static_cast<int64_t>(slot));
  const int count = mine[2];
  const T* left = x + static_cast<int64_t>(mine[0]) * width;

  float sum[kStrip] = {};
  const T* right[kStrip];
#pragma unroll
  for (int i = 0; i < kStrip; ++i)  // past the end the last row is read again, from a cache, and not written
    right[i] = y + static_cast<int64_t>(indices[mine[1] + min(i, count - 1)]) * width;
  for (int j = lane * vector; j < width; j += kStrip * vector) {
    const Vec<T, vector> of_row = load_read_only<vector>(left + j);
#pragma unroll
    for (int i = 0; i < kStrip; ++i) sum[i] = dot(of_row, load_read_only<vector>(right[i] + j), sum[i]);
  }

  transpose_sum<kStrip>(sum);
  if (lane >= count) return;
  const int p = mine[1] + lane;
  out[p] = from_float<T>(scaled ? sum[0] * to_float(values[p]) : sum[0]);
}
