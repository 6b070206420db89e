// CSR SpMM with a row for each group of threads, reduced one after the other or in parallel.
//
// Two of the four kernels that Dai, Huang, Yang, Yu, Zhang, Ding, Xie, Yang and Wang, "Heuristic Adaptability to Input
// Dynamics for SpMM on GPUs" (DA-SpMM), DAC 2022, have for row-major operands. Deterministic: no atomics.

#include <spmark/half.cuh>
#include <spmark/vec.cuh>
#include <spmark/warp.cuh>

using namespace spmark;

constexpr int kFlight = 8;  // rows of B on their way, held in registers

// C[i, j] = sum_k A[i, k] B[k, j], the terms of a row one after the other.
//
// A group of `lanes` threads owns one row and a tile of lanes * vector columns, one vector a lane.
//   indptr   num_rows + 1 offsets
//   indices  nnz columns, in CSR order
//   values   nnz values, likewise
//   dense    B, num_cols x width, row-major; aligned to vector elements, and so is width
//   out      C, num_rows x width, row-major; written whole, empty rows as zeros
template <typename T, int vector, int lanes, int threads>
__global__ void __launch_bounds__(threads)
    spmm_rows_sequential(int num_rows, int width, const int* __restrict__ indptr, const int* __restrict__ indices,
                         const T* __restrict__ values, const T* __restrict__ dense, T* __restrict__ out) {
  static_assert(threads % lanes == 0, "groups fill the block");
  static_assert(sizeof(T) * vector <= 16, "a vector is loaded at once");
  const int row = blockIdx.x * (threads / lanes) + threadIdx.x / lanes;
  const int column = (blockIdx.y * lanes + threadIdx.x % lanes) * vector;
  if (row >= num_rows || column >= width) return;  // no collective follows

  Vec<float, vector> sum = {};
  const int end = indptr[row + 1];
  for (int p = indptr[row]; p < end; p += kFlight) {
    Vec<T, vector> part[kFlight];
    float value[kFlight];
#pragma unroll
    for (int f = 0; f < kFlight; ++f) {
      // Past the end the last row is read again, from a cache, and left out of the sum: all loads stay in flight.
      const int at = min(p + f, end - 1);
      value[f] = to_float(values[at]);
      part[f] = load_read_only<vector>(dense + static_cast<int64_t>(indices[at]) * width + column);
    }
#pragma unroll
    for (int f = 0; f < kFlight; ++f)
      if (p + f < end) axpy(sum, value[f], part[f]);
  }
  store_streaming(out + static_cast<int64_t>(row) * width + column, round_to<T>(sum));
}

// The same product with the terms of a row shared out among the lanes.
//
// A group of `lanes` threads owns one row and `vector` columns: each lane adds up every lanes-th term, and the lanes'
// sums are added by a butterfly.
template <typename T, int vector, int lanes, int threads>
__global__ void __launch_bounds__(threads)
    spmm_rows_parallel(int num_rows, int width, const int* __restrict__ indptr, const int* __restrict__ indices,
                       const T* __restrict__ values, const T* __restrict__ dense, T* __restrict__ out) {
  static_assert(threads % 32 == 0 && 32 % lanes == 0, "a group is a part of one warp");
  static_assert(sizeof(T) * vector <= 16, "a vector is loaded at once");
  const int row = blockIdx.x * (threads / lanes) + threadIdx.x / lanes;
  const int lane = threadIdx.x % lanes;
  const int column = blockIdx.y * vector;
  if (row >= num_rows) return;  // the group leaves together; shuffles name the group alone

  Vec<float, vector> sum = {};
  const int end = indptr[row + 1];
#pragma unroll 2
  for (int64_t p = indptr[row] + lane; p < end; p += lanes)
    axpy(sum, to_float(values[p]), load_read_only<vector>(dense + static_cast<int64_t>(indices[p]) * width + column));
#pragma unroll
  for (int i = 0; i < vector; ++i) sum[i] = warp_sum<lanes>(sum[i]);
  if (lane == 0) store(out + static_cast<int64_t>(row) * width + column, round_to<T>(sum));
}
