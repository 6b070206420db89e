// SDDMM over coordinates, a warp for each non-zero. Deterministic: no atomics.
//
// The schedule of Hu et al., "FeatGraph: A Flexible and Efficient Backend for Graph Neural Network Systems", SC 2020,
// section 3: edges in parallel, and a tree reduction over the feature axis. DGL's u_dot_v runs it on GPUs.

#include <spmark/half.cuh>
#include <spmark/vec.cuh>
#include <spmark/warp.cuh>

using namespace spmark;

// D[p] = sum_j X[rows[p], j] Y[columns[p], j].
//
//   T        float, half or bfloat16; products are summed in float32
//   lanes    threads of a non-zero: a warp, which adds its sums up by a tree, or one thread for narrow operands
//   threads  of a block
//   nnz      non-zeros
//   width    J
//   rows     nnz rows of A
//   columns  nnz columns of A
//   x        num_rows x width, row-major
//   y        K x width, row-major
//   out      nnz results
template <typename T, int lanes, int threads>
__global__ void __launch_bounds__(threads)
    edge_sddmm(int nnz, int width, const int* __restrict__ rows, const int* __restrict__ columns,
               const T* __restrict__ x, const T* __restrict__ y, T* __restrict__ out) {
  static_assert((lanes == kWarpSize && threads == 256) || (lanes == 1 && threads == 1024),
                "eight warps, or a thread for each of 1,024 non-zeros");
  const int64_t p = static_cast<int64_t>(blockIdx.x) * (threads / lanes) + threadIdx.x / lanes;
  if (p >= nnz) return;  // a warp leaves together
  const T* left = x + static_cast<int64_t>(rows[p]) * width;
  const T* right = y + static_cast<int64_t>(columns[p]) * width;
  const int lane = threadIdx.x % lanes;
  float sum = 0.0f;
  for (int j = lane; j < width; j += lanes) sum = fmaf(to_float(left[j]), to_float(right[j]), sum);
  if constexpr (lanes > 1) sum = warp_sum<lanes>(sum);
  if (lane == 0) out[p] = from_float<T>(sum);
}
