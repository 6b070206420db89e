// CSR SpMM after GE-SpMM: coalesced row caching and coarsened columns.
//
// Huang, Dai, Wang and Yang, "GE-SpMM: General-Purpose Sparse Matrix-Matrix Multiplication on GPUs for Graph Neural
// Networks", SC 2020, sections 4.1 (coalesced row caching) and 4.2 (coarse-grained warp merging). Deterministic: no
// atomics.

#include <spmark/half.cuh>
#include <spmark/vec.cuh>
#include <spmark/warp.cuh>

using namespace spmark;

// C[i, j] = sum_k A[i, k] B[k, j].
//
// A group of `lanes` threads owns one row and a tile of lanes * vector * coarsen columns; a block holds threads / lanes
// rows.
//   indptr   num_rows + 1 offsets
//   indices  nnz columns, in CSR order
//   values   nnz values, likewise
//   dense    B, num_cols x width, row-major; aligned to vector elements, and so is width
//   out      C, num_rows x width, row-major; written whole, empty rows as zeros
// The group stages 32 non-zeros in shared memory with coalesced loads, then every lane walks them with several rows
// of B on their way at once. A long row is a chain of such trips, and its time is their latency.
template <typename T, int vector, int lanes, int coarsen, int threads>
__global__ void __launch_bounds__(threads)
    spmm_csr(int num_rows, int width, const int* __restrict__ indptr, const int* __restrict__ indices,
             const T* __restrict__ values, const T* __restrict__ dense, T* __restrict__ out) {
  static_assert(threads % 32 == 0 && 32 % lanes == 0, "a group is a part of one warp");
  static_assert(sizeof(T) * vector <= 16, "a vector is loaded at once");
  constexpr int kRows = threads / lanes;
  constexpr int kStage = 32;                               // non-zeros in shared memory at once
  constexpr int kEach = kStage / lanes;                    // staged by one lane
  constexpr int kStep = lanes * vector;                    // columns between two vectors of one lane
  constexpr int kFlight = (vector < 8 ? 8 : 4) / coarsen;  // rows of B on their way, held in registers
  __shared__ int staged_columns[kRows][kStage];
  __shared__ float staged_values[kRows][kStage];

  const int group = threadIdx.x / lanes;
  const int lane = threadIdx.x % lanes;
  const int row = blockIdx.x * kRows + group;
  if (row >= num_rows) return;  // the group leaves together; no barrier of the block follows
  const unsigned members = group_mask<lanes>();

  int column[coarsen];
  bool active[coarsen];
#pragma unroll
  for (int c = 0; c < coarsen; ++c) {
    column[c] = (blockIdx.y * coarsen + c) * kStep + lane * vector;
    active[c] = column[c] < width;
  }
  Vec<float, vector> sum[coarsen] = {};

  const unsigned end = indptr[row + 1];  // without a sign: the step after the last may pass 2^31
  int next_column[kEach];
  T next_value[kEach];
  const auto fetch = [&](unsigned start) {
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      const unsigned p = start + e * lanes + lane;
      if (p < end) {
        next_column[e] = indices[p];
        next_value[e] = values[p];
      }
    }
  };
  unsigned start = indptr[row];
  fetch(start);
  for (; start < end; start += kStage) {
    const int count = min(kStage, static_cast<int>(end - start));
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      if (e * lanes + lane < count) {
        staged_columns[group][e * lanes + lane] = next_column[e];
        staged_values[group][e * lanes + lane] = to_float(next_value[e]);
      }
    }
    __syncwarp(members);    // the whole group reads what each lane staged
    fetch(start + kStage);  // the next trip's non-zeros arrive during this trip's arithmetic
    for (int p = 0; p < count; p += kFlight) {
      Vec<T, vector> part[kFlight][coarsen];
#pragma unroll
      for (int f = 0; f < kFlight; ++f) {
        // Past the end the last row is read again, from a cache, and left out of the sum: all loads stay in flight.
        const int at = min(p + f, count - 1);
        const T* source = dense + static_cast<int64_t>(staged_columns[group][at]) * width;
#pragma unroll
        for (int c = 0; c < coarsen; ++c)
          if (active[c]) part[f][c] = load_read_only<vector>(source + column[c]);
      }
#pragma unroll
      for (int f = 0; f < kFlight; ++f)
        if (p + f < count)
#pragma unroll
          for (int c = 0; c < coarsen; ++c)
            if (active[c]) axpy(sum[c], staged_values[group][p + f], part[f][c]);
    }
    __syncwarp(members);  // all lanes have read before the next non-zeros are staged
  }

  T* target = out + static_cast<int64_t>(row) * width;
#pragma unroll
  for (int c = 0; c < coarsen; ++c)
    if (active[c]) store(target + column[c], round_to<T>(sum[c]));
}
