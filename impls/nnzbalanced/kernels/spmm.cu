// SpMM with a row, or a span of consecutive non-zeros, for each group of threads, reduced one after the other or in
// parallel.
//
// The four kernels that Dai, Huang, Yang, Yu, Zhang, Ding, Xie, Yang and Wang, "Heuristic Adaptability to Input
// Dynamics for SpMM on GPUs" (DA-SpMM), DAC 2022, have for row-major operands. Rows that several spans share are added
// up atomically, in an order that is not fixed; all others are stored once.

#include <spmark/warp.cuh>

#include "../../kernels/row_target.cuh"

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

// C[i, j] (+)= sum_k A[i, k] B[k, j] over spans of the non-zeros, the terms of a span one after the other.
//
// A group of `lanes` threads owns `span` consecutive non-zeros and a tile of lanes * vector columns, one vector a
// lane, and has `flight` rows of B on their way.
//   marks     nnz: the row of each non-zero, or where spans share the row the complement of the row (float32) or of the
//             row's number among the shared rows (float16)
//   indices   nnz columns, in CSR order
//   values    nnz values, likewise
//   dense     B, num_cols x width, row-major; aligned to vector elements, and so is width
//   out       C, num_rows x width, row-major; shared rows are cleared before this grid, and so are empty ones
//   sums      float16 only: float32 of `width` columns for each shared row, cleared before this grid
template <typename T, int vector, int lanes, int flight, int threads>
__global__ void __launch_bounds__(threads)
    spmm_spans_sequential(int nnz, int width, int span, const int* __restrict__ marks, const int* __restrict__ indices,
                          const T* __restrict__ values, const T* __restrict__ dense, T* out, float* sums) {
  static_assert(threads % lanes == 0, "groups fill the block");
  static_assert(sizeof(T) * vector <= 16, "a vector is loaded at once");
  static_assert(flight == 8 || sizeof(T) * vector == 16, "fewer loads are on their way where they are wide");
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * (threads / lanes) + threadIdx.x / lanes) * span;
  const int column = (blockIdx.y * lanes + threadIdx.x % lanes) * vector;
  if (first >= nnz || column >= width) return;  // no collective follows
  const int end = static_cast<int>(min(first + span, static_cast<int64_t>(nnz)));

  const RowTarget<T> to{out, sums, width};
  Vec<float, vector> sum = {};
  int mark = marks[first];
  for (int64_t p = first; p < end; p += flight) {
    Vec<T, vector> part[flight];
    float value[flight];
    int of[flight];
#pragma unroll
    for (int f = 0; f < flight; ++f) {
      // Past the end the last row is read again, from a cache, and left out of the sum: all loads stay in flight.
      const int at = static_cast<int>(min(p + f, static_cast<int64_t>(end - 1)));
      of[f] = marks[at];
      value[f] = to_float(values[at]);
      part[f] = load_read_only<vector>(dense + static_cast<int64_t>(indices[at]) * width + column);
    }
#pragma unroll
    for (int f = 0; f < flight; ++f) {
      if (p + f >= end) continue;
      if (of[f] != mark) {
        to.write(mark, column, sum);
        sum = {};
        mark = of[f];
      }
      axpy(sum, value[f], part[f]);
    }
  }
  to.write(mark, column, sum);
}

// The same product with a lane for each non-zero: sums over equal marks by a segmented scan of the warp.
//
// A warp owns `span` consecutive non-zeros, a multiple of 32, and `vector` columns.
template <typename T, int vector, int threads>
__global__ void __launch_bounds__(threads)
    spmm_spans_parallel(int nnz, int width, int span, const int* __restrict__ marks, const int* __restrict__ indices,
                        const T* __restrict__ values, const T* __restrict__ dense, T* out, float* sums) {
  static_assert(threads % kWarpSize == 0, "warps fill the block");
  static_assert(sizeof(T) * vector <= 16, "a vector is loaded at once");
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * (threads / kWarpSize) + threadIdx.x / kWarpSize) * span;
  const int lane = threadIdx.x % kWarpSize;
  const int column = blockIdx.y * vector;
  if (first >= nnz) return;  // the warp leaves together
  const int64_t end = min(first + span, static_cast<int64_t>(nnz));

  const RowTarget<T> to{out, sums, width};
  Vec<float, vector> carried = {};  // sum of the last row so far, in lane 0
  int carried_mark = kNoRow;
  for (int64_t start = first; start < end; start += kWarpSize) {
    const int64_t p = start + lane;
    Vec<float, vector> sum = {};
    int mark = kNoRow;  // past the end: a segment of its own that is never written
    if (p < end) {
      mark = marks[p];
      axpy(sum, to_float(values[p]), load_read_only<vector>(dense + static_cast<int64_t>(indices[p]) * width + column));
    }
    if (lane == 0) {
      if (carried_mark == mark)
        axpy(sum, 1.0f, carried);
      else
        to.write(carried_mark, column, carried);
    }
#pragma unroll
    for (int step = 1; step < kWarpSize; step *= 2) {
      const int before = __shfl_up_sync(kFullMask, mark, step);
#pragma unroll
      for (int i = 0; i < vector; ++i) {
        const float other = __shfl_up_sync(kFullMask, sum[i], step);
        if (lane >= step && before == mark) sum[i] += other;
      }
    }
    const int after = __shfl_down_sync(kFullMask, mark, 1);
    if (lane < kWarpSize - 1 && after != mark) to.write(mark, column, sum);
    // The last segment may go on: its sum is carried to the next trip.
    carried_mark = __shfl_sync(kFullMask, mark, kWarpSize - 1);
#pragma unroll
    for (int i = 0; i < vector; ++i) carried[i] = __shfl_sync(kFullMask, sum[i], kWarpSize - 1);
  }
  if (lane == 0) to.write(carried_mark, column, carried);
}
