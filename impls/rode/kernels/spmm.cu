// SpMM by row decomposition in the manner of RoDe, in float32.
//
// Pang, Fei, Qu, Zhang and Li, "A Row Decomposition-based Approach for Sparse Matrix Multiplication on GPUs", PPoPP
// 2024. The residues are stored first; segments of block parts are added to them atomically, so that results are
// deterministic where no row has several segments.

#include <spmark/async.cuh>
#include <spmark/atomic.cuh>
#include <spmark/overlap.cuh>
#include <spmark/vec.cuh>
#include <spmark/warp.cuh>

#include "rows.cuh"

using namespace spmark;

// The columns of C that a lane owns: `vectors` vectors, kLanes vectors apart. Past the width the last columns are
// computed again, and not written.
template <int vector, int vectors>
struct Columns {
  int at[vectors];
  int width;

  __device__ __forceinline__ explicit Columns(int num_columns) : width(num_columns) {
#pragma unroll
    for (int v = 0; v < vectors; ++v) at[v] = min(wanted(v), width - vector);
  }

  __device__ __forceinline__ int wanted(int v) const {
    return ((blockIdx.y * vectors + v) * kLanes + threadIdx.x % kLanes) * vector;
  }

  // Call write(pointer, sum) for each vector of row `row` of C that exists.
  template <typename Write>
  __device__ __forceinline__ void write_to(float* out, int row, const Vec<float, vector> (&sum)[vectors],
                                           Write write) const {
#pragma unroll
    for (int v = 0; v < vectors; ++v)
      if (wanted(v) < width) write(out + static_cast<int64_t>(row) * width + at[v], sum[v]);
  }
};

// C[i, j] = sum_k A[i, k] B[k, j] over the residue of row i; zeros where it is empty.
//
// A subwarp owns a row and a tile of kLanes * vectors * vector columns. A lane fetches one of kLanes non-zeros, and has
// kLanes loads of B on their way: of so many rows, or of half as many with two loads each.
//   indptr    num_rows + 1 offsets
//   indices   nnz columns, in CSR order
//   values    nnz values, likewise
//   dense     B, num_cols x width, row-major; aligned to vector elements, and so is width
//   out       C, num_rows x width, row-major; written whole
template <int vector, int vectors, int threads>
__global__ void __launch_bounds__(threads, kResidueThreads / threads)
    spmm_rode_residues(int num_rows, int width, const int* __restrict__ indptr, const int* __restrict__ indices,
                       const float* __restrict__ values, const float* __restrict__ dense, float* __restrict__ out) {
  static_assert(threads % 32 == 0, "subwarps fill whole warps");
  constexpr int kFlight = kLanes / vectors;  // rows of B
  let_next_grid_begin();
  const int row = blockIdx.x * (threads / kLanes) + threadIdx.x / kLanes;
  if (row >= num_rows) return;  // the subwarp leaves together; shuffles name the subwarp alone
  const int lane = threadIdx.x % kLanes;
  const unsigned members = group_mask<kLanes>();
  const Columns<vector, vectors> columns(width);
  const Residue residue = residue_of(indptr, row);

  Vec<float, vector> sum[vectors] = {};
  int next_column = 0;
  float next_value = 0.0f;  // and where a lane has no non-zero
  const auto fetch = [&](int e) {
    const bool exists = e < residue.count;
    next_column = exists ? indices[residue.position(e)] : 0;
    next_value = exists ? values[residue.position(e)] : 0.0f;
  };
  fetch(lane);
  for (int done = 0; done < residue.count; done += kLanes) {
    const int column = next_column;
    const float value = next_value;
    fetch(done + kLanes + lane);
#pragma unroll
    for (int first = 0; first < kLanes; first += kFlight) {
      if (done + first >= residue.count) break;
      Vec<float, vector> part[kFlight][vectors];
#pragma unroll
      for (int b = 0; b < kFlight; ++b) {
        const int k = __shfl_sync(members, column, first + b, kLanes);
#pragma unroll
        for (int v = 0; v < vectors; ++v)
          part[b][v] = load_read_only_where<vector>(done + first + b < residue.count,
                                                    row_of(dense + columns.at[v], k, width * unsigned(sizeof(float))));
      }
#pragma unroll
      for (int b = 0; b < kFlight; ++b) {
        const float factor = __shfl_sync(members, value, first + b, kLanes);
#pragma unroll
        for (int v = 0; v < vectors; ++v) axpy(sum[v], factor, part[b][v]);
      }
    }
  }
  columns.write_to(out, row, sum, [&](float* to, const Vec<float, vector>& total) {
    if (residue.block > 0)
      store(to, total);  // the grid of the block parts finds it in L2
    else
      store_streaming(to, total);
  });
}

// C[i, j] += sum_k A[i, k] B[k, j] over the block part of row i, after the grid of the residues.
//
// A subwarp owns a segment and a tile of columns. Columns and values of A are staged kTile at a time, the next while
// these are multiplied; rows of B are loaded kFlight at a time into registers, the next while these are multiplied.
//   segments  num_segments x 4: row, first non-zero, non-zeros, 0
//   indices, values, dense, out   as above; arrays of A aligned to 16 bytes
template <int vector, int vectors, int threads>
__global__ void __launch_bounds__(threads)
    spmm_rode_blocks(int num_segments, int width, const int* __restrict__ segments, const int* __restrict__ indices,
                     const float* __restrict__ values, const float* __restrict__ dense, float* __restrict__ out) {
  static_assert(threads % 32 == 0, "subwarps fill whole warps");
  constexpr int kFlight = kChunk;  // rows of B whose columns are one load from shared memory
  // kChunk words more a subwarp: subwarps that read the same place of their stages then use different banks.
  constexpr int kWords = 4 * kTile + kChunk;
  __shared__ __align__(16) int staged[threads / kLanes][kWords];
  const int group = threadIdx.x / kLanes, lane = threadIdx.x % kLanes;
  const int slot = blockIdx.x * (threads / kLanes) + group;
  if (slot >= num_segments) return;  // the subwarp leaves together; no barrier of the block follows
  const unsigned members = group_mask<kLanes>();
  const Columns<vector, vectors> columns(width);
  const Segment segment = segment_of(segments, slot);

  // Two stages, each of kTile columns and then as many values.
  const auto stage = [&](int turn) { return staged[group] + turn * 2 * kTile; };
  const auto fetch = [&](int turn, int done) {
    static_assert(kTile == kLanes * kChunk, "a lane copies one chunk of columns and one of values");
    copy_async<16>(stage(turn) + lane * kChunk, indices + segment.first + done + lane * kChunk);
    copy_async<16>(stage(turn) + kTile + lane * kChunk, values + segment.first + done + lane * kChunk);
    commit_async();
  };
  const auto arrive = [&] {
    wait_async<0>();
    __syncwarp(members);  // the whole subwarp reads what each lane copied
  };
  Vec<float, vector> rows[2][kFlight][vectors];
  const auto load_rows = [&](int into, bool wanted, int turn, int p) {
    const Vec<int, kFlight> k = load<kFlight>(stage(turn) + p);
#pragma unroll
    for (int f = 0; f < kFlight; ++f)
#pragma unroll
      for (int v = 0; v < vectors; ++v)
        rows[into][f][v] =
            load_read_only_where<vector>(wanted, row_of(dense + columns.at[v], k[f], width * unsigned(sizeof(float))));
  };

  Vec<float, vector> sum[vectors] = {};
  fetch(0, 0);
  arrive();
  load_rows(0, true, 0, 0);
  for (int done = 0, turn = 0; done < segment.count; done += kTile, turn ^= 1) {
    const bool goes_on = done + kTile < segment.count;
    if (goes_on) fetch(turn ^ 1, done + kTile);
#pragma unroll
    for (int p = 0; p < kTile; p += kFlight) {
      const int held = p / kFlight % 2;
      if (p + kFlight < kTile) {
        load_rows(held ^ 1, true, turn, p + kFlight);
      } else {  // without a branch, behind which the compiler would move the loads before it
        arrive();
        load_rows(held ^ 1, goes_on, goes_on ? turn ^ 1 : turn, 0);
      }
      const Vec<float, kFlight> factor = load<kFlight>(reinterpret_cast<const float*>(stage(turn) + kTile + p));
#pragma unroll
      for (int f = 0; f < kFlight; ++f)
#pragma unroll
        for (int v = 0; v < vectors; ++v) axpy(sum[v], factor[f], rows[held][f][v]);
    }
    __syncwarp(members);  // all lanes have read this stage before the copies after the next land in it
  }

  wait_for_previous_grid();  // which stores the residues
  columns.write_to(out, segment.row, sum, [](float* to, const Vec<float, vector>& total) { atomic_add(to, total); });
}
