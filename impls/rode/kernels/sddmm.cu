// SDDMM by row decomposition in the manner of RoDe, in float32. Deterministic: no atomics.
//
// Pang, Fei, Qu, Zhang and Li, "A Row Decomposition-based Approach for Sparse Matrix Multiplication on GPUs", PPoPP
// 2024: residues and segments of block parts as in spmm.cu. Their results lie apart, so both grids run side by side.

#include <spmark/overlap.cuh>
#include <spmark/vec.cuh>
#include <spmark/warp.cuh>

#include "rows.cuh"

using namespace spmark;

// Give each lane of a subwarp X[row, :] . Y[column, :] for the column that it brings. All kLanes rows of Y are on their
// way together, two loads of each; only the first `count` of them are read unless `all`.
template <int vector, bool all>
__device__ __forceinline__ float dots(const float* __restrict__ x, const float* __restrict__ y, int row, int column,
                                      int count, int width) {
  const unsigned members = group_mask<kLanes>();
  const int lane = threadIdx.x % kLanes;
  const float* left = x + static_cast<int64_t>(row) * width;
  const float* right[kLanes];
#pragma unroll
  for (int b = 0; b < kLanes; ++b)
    right[b] = row_of(y, __shfl_sync(members, column, b, kLanes), width * unsigned(sizeof(float)));
  float sum[kLanes] = {};
#pragma unroll 2
  for (int j = lane * vector; j < width; j += kLanes * vector) {
    const Vec<float, vector> of_row = load_read_only<vector>(left + j);
    Vec<float, vector> part[kLanes];
#pragma unroll
    for (int b = 0; b < kLanes; ++b)
      part[b] = all ? load_read_only<vector>(right[b] + j) : load_read_only_where<vector>(b < count, right[b] + j);
#pragma unroll
    for (int b = 0; b < kLanes; ++b) sum[b] = dot(of_row, part[b], sum[b]);
  }
  transpose_sum<kLanes>(sum);
  return sum[0];
}

// D[p] = sum_j X[row of p, j] Y[indices[p], j] over the residues, times values[p] where `scaled` is not 0.
//
// A subwarp owns a row, kLanes non-zeros at a time.
//   indptr    num_rows + 1 offsets
//   indices   nnz columns, in CSR order
//   values    nnz values, likewise; not read unless scaled
//   x         num_rows x width, row-major; aligned to vector elements, and so is width
//   y         num_cols x width, likewise
//   out       nnz results
template <int vector, int threads>
__global__ void __launch_bounds__(threads, kResident / threads)
    sddmm_rode_residues(int num_rows, int width, int scaled, const int* __restrict__ indptr,
                        const int* __restrict__ indices, const float* __restrict__ values, const float* __restrict__ x,
                        const float* __restrict__ y, float* __restrict__ out) {
  static_assert(threads % 32 == 0, "subwarps fill whole warps");
  let_next_grid_begin();
  const int row = blockIdx.x * (threads / kLanes) + threadIdx.x / kLanes;
  if (row >= num_rows) return;  // the subwarp leaves together; shuffles name the subwarp alone
  const int lane = threadIdx.x % kLanes;
  const Residue residue = residue_of(indptr, row);
  for (int done = 0; done < residue.count; done += kLanes) {
    const bool exists = done + lane < residue.count;
    const int p = exists ? residue.position(done + lane) : 0;
    const float sum = dots<vector, false>(x, y, row, exists ? indices[p] : 0, residue.count - done, width);
    if (exists) out[p] = scaled ? sum * values[p] : sum;
  }
}

// The same over the block parts.
//
// A subwarp owns a segment, kLanes non-zeros at a time; the next columns are fetched while these are computed.
//   segments  num_segments x 4: row, first non-zero, non-zeros, 0
template <int vector, int threads>
__global__ void __launch_bounds__(threads, kResident / threads)
    sddmm_rode_blocks(int num_segments, int width, int scaled, const int* __restrict__ segments,
                      const int* __restrict__ indices, const float* __restrict__ values, const float* __restrict__ x,
                      const float* __restrict__ y, float* __restrict__ out) {
  static_assert(threads % 32 == 0, "subwarps fill whole warps");
  const int slot = blockIdx.x * (threads / kLanes) + threadIdx.x / kLanes;
  if (slot >= num_segments) return;  // the subwarp leaves together; shuffles name the subwarp alone
  const Segment segment = segment_of(segments, slot);
  int p = segment.first + threadIdx.x % kLanes;
  int next_column = indices[p];
  for (int left = segment.count; left > 0; left -= kLanes, p += kLanes) {
    const int column = next_column;
    if (left > kLanes) next_column = indices[p + kLanes];
    const float sum = dots<vector, true>(x, y, segment.row, column, kLanes, width);
    out[p] = scaled ? sum * values[p] : sum;
  }
  wait_for_previous_grid();  // so that this grid, after which a stream goes on, does not end before the residues' grid
}
