// SDDMM over coordinates in the manner of dgSPARSE. Deterministic: no atomics.
//
// dgSPARSE-Lib (https://github.com/dgSPARSE/dgSPARSE-Lib, src/sddmm) after PRedS (Yu et al., "Exploiting Online
// Locality and Reduction Parallelism for Sampled Dense Matrix Multiplication on GPUs", ICCD 2021). A group of lanes
// takes four non-zeros; the lanes add up their own products over J, then each other's.

#include <spmark/vec.cuh>
#include <spmark/warp.cuh>

using namespace spmark;

constexpr int kTaken = 4;     // non-zeros of a group
constexpr int kGroups = 4;    // groups of a block
constexpr int kColumns = 32;  // columns that a group reads at once

// D[p] = sum_j X[rows[p], j] Y[columns[p], j].
//
// A block takes 16 non-zeros, each group of lanes four of them. Each non-zero that is left over has a block of its own,
// whose first warp computes it.
//   vector   elements of a load; a group has 32 / vector lanes
//   rows     nnz rows; aligned to 16 bytes
//   columns  nnz columns, likewise
//   x        num_rows x width, row-major; aligned to vector elements, and so is width
//   y        K x width, likewise
//   out      nnz results; aligned to 16 bytes
template <int vector, int threads>
__global__ void __launch_bounds__(threads)
    sddmm_coo(int nnz, int width, const int* __restrict__ rows, const int* __restrict__ columns,
              const float* __restrict__ x, const float* __restrict__ y, float* __restrict__ out) {
  constexpr int lanes = kColumns / vector;
  static_assert(threads * vector == 128, "a block has four groups of lanes that read 32 columns");
  const int whole_blocks = nnz / (kGroups * kTaken);

  if (blockIdx.x >= whole_blocks) {
    if (threadIdx.x >= kWarpSize) return;  // a warp leaves together, and no barrier follows
    const int p = whole_blocks * kGroups * kTaken + (blockIdx.x - whole_blocks);
    const float* left = x + static_cast<int64_t>(rows[p]) * width;
    const float* right = y + static_cast<int64_t>(columns[p]) * width;
    float sum = 0.0f;
    for (int j = threadIdx.x; j < width; j += kWarpSize) sum = fmaf(left[j], right[j], sum);
    sum = warp_sum(sum);
    if (threadIdx.x == 0) out[p] = sum;
    return;
  }

  const int lane = threadIdx.x % lanes;
  const int first = (blockIdx.x * kGroups + threadIdx.x / lanes) * kTaken;
  const Vec<int, kTaken> row = load_read_only<kTaken>(rows + first);
  const Vec<int, kTaken> column = load_read_only<kTaken>(columns + first);
  Vec<float, kTaken> sum = zeros<float, kTaken>();
  for (int j = lane * vector; j < width; j += kColumns) {
#pragma unroll
    for (int i = 0; i < kTaken; ++i) {
      const auto left = load_read_only<vector>(x + static_cast<int64_t>(row[i]) * width + j);
      sum[i] = dot(left, load_read_only<vector>(y + static_cast<int64_t>(column[i]) * width + j), sum[i]);
    }
  }
#pragma unroll
  for (int i = 0; i < kTaken; ++i) sum[i] = warp_sum<lanes>(sum[i]);
  if (lane == 0) store(out + first, sum);
}
