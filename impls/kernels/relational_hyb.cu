// RGMS over the 3-D hyb: Y[i, :] = sum over relations r and edges (i, j) of A_r[i, j] X[j, :] W_r, one group of ELL
// rows of one relation and width for each thread block.
//
// Ye, Lai, Shao, Chen and Ceze, "SparseTIR", ASPLOS 2023, section 4.4. As there, a thread block stages its relation's
// weights, gathers rows of X, multiplies them on the matrix unit, and only then sums the products of an ELL row.

#include <spmark/half.cuh>
#include <spmark/overlap.cuh>
#include <spmark/vec.cuh>
#include <spmark/warp.cuh>

#include "relational_group.cuh"
#include "relational_tile.cuh"

using namespace spmark;

// 16 bits with float32 sums. Warps own edges: each multiplies slots / warps gathered rows by `tile` columns of W_r.
//   first                of the groups that this launch takes: blockIdx.x counts from there; blockIdx.y counts tiles
//   width_in, width_out  multiples of `vector`
//   groups               (g, 4), see Group
//   indices, values      (g, slots): row of X, or -1 and a value of 0 in padding
//   targets              of each ELL row, see RowTarget
//   x, w, out            (K, width_in), (R, width_in, width_out), (I, width_out), row-major
//   sums                 float32 rows of width_out, see write_row
// Dynamic shared memory: two stages. Not deterministic where rows are added up atomically.
template <typename T, int tile, int slots, int depth, int vector, bool ordered, int threads>
__global__ void __launch_bounds__(threads)
    rgms_hyb(int first, int width_in, int width_out, const int* __restrict__ groups, const int* __restrict__ indices,
             const T* __restrict__ values, const int* __restrict__ targets, const T* __restrict__ x,
             const T* __restrict__ w, T* __restrict__ out, float* __restrict__ sums) {
  static_assert(slots * 2 >= threads, "every warp has sixteen edges or more");
  static_assert(slots * tile <= 96 * threads, "the sums of a thread stay in registers");
  using Tile = RelationalTile<T, tile, slots, depth, vector, threads>;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  T* const stages = reinterpret_cast<T*>(shared_bytes);

  const int at = first + blockIdx.x, first_column = blockIdx.y * tile;
  const Group group = group_at(groups, at);
  const int64_t element = static_cast<int64_t>(at) * slots;
  const T* const weights = w + static_cast<int64_t>(group.relation) * width_in * width_out;
  const int lane = threadIdx.x % kWarpSize, g = lane / 4, t = lane % 4;
  const int edge = threadIdx.x / kWarpSize * Tile::kRows;  // first of this warp
  const int used = (group.used + 15) / 16 * 16;
  const unsigned live = (1u << max(0, min(Tile::kRowTiles, (used - edge) / 16))) - 1;

  const Tile relational{width_in, width_out, first_column, x};
  typename Tile::Products products = {};
  relational.fetch(stages, indices + element, used, weights, 0);
  commit_async();
  int turn = 0;
  for (int from = 0; from < width_in; from += depth, turn ^= 1) {
    wait_async<0>();
    __syncthreads();  // this step is there for all threads, and all have read the one that is overwritten next
    if (from + depth < width_in) {
      relational.fetch(stages + (turn ^ 1) * Tile::kStage, indices + element, used, weights, from + depth);
      commit_async();
    }
    relational.multiply(products, stages + turn * Tile::kStage, from, live);
  }

  wait_for_previous_grid();  // which clears the rows that are added into
  const RowTarget<T> to{out, sums, width_out};
#pragma unroll
  for (int m = 0; m < Tile::kRowTiles; ++m) {
    const int tile_edge = edge + m * 16;
    if (tile_edge >= group.used) break;
    // This lane holds products of the edges g and g + 8 of sixteen.
    const float scale[2] = {to_float(values[element + tile_edge + g]), to_float(values[element + tile_edge + g + 8])};
    const int row = group.first_row + (tile_edge + g) / group.width;
    const bool writes = g % group.width == 0;
    const int target[2] = {writes ? targets[row] : kNoRow,
                           writes && group.width < 16 ? targets[row + 8 / group.width] : kNoRow};
#pragma unroll
    for (int n = 0; n < Tile::kColumnTiles; ++n) {
      float (&four)[4] = products[m][n];
#pragma unroll
      for (int i = 0; i < 4; ++i) four[i] *= scale[i / 2];
      if (group.width == 16) four[0] += four[2], four[1] += four[3];
      for (int step = 1; step < group.width && step < 8; step *= 2)
#pragma unroll
        for (int i = 0; i < 4; ++i) four[i] += __shfl_xor_sync(kFullMask, four[i], step * 4);
      const int column = first_column + n * 8 + t * 2;
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        if constexpr (vector == 8) {
          if (column < width_out)
            write_row<ordered>(to, target[side], column, Vec<float, 2>{four[side * 2], four[side * 2 + 1]});
        } else {
#pragma unroll
          for (int i = 0; i < 2; ++i)
            if (column + i < width_out)
              write_row<ordered>(to, target[side], column + i, Vec<float, 1>{four[side * 2 + i]});
        }
      }
    }
  }
}

// float32. A warp owns ELL rows, a lane one column of Y. Rows of X are summed first and their sum is multiplied by W_r:
// in float32 this rounds no worse, and takes 2 width_in width_out operations for an ELL row instead of for an edge.
// Arguments as of rgms_hyb.
template <int slots, bool ordered, int threads>
__global__ void __launch_bounds__(threads)
    rgms_hyb_float(int first, int width_in, int width_out, const int* __restrict__ groups,
                   const int* __restrict__ indices, const float* __restrict__ values, const int* __restrict__ targets,
                   const float* __restrict__ x, const float* __restrict__ w, float* __restrict__ out,
                   float* __restrict__ sums) {
  static_assert(slots * 32 >= threads, "every warp may have an ELL row");
  constexpr int kRows = slots * kWarpSize / threads;  // of a warp at most
  __shared__ __align__(16) float shared[slots][kWarpSize];
  const int at = first + blockIdx.x, lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
  const int column = blockIdx.y * kWarpSize + lane;
  const Group group = group_at(groups, at);
  const int64_t element = static_cast<int64_t>(at) * slots;
  const float* const weights = w + static_cast<int64_t>(group.relation) * width_in * width_out;
  constexpr int kWarps = threads / kWarpSize;
  const int used = group.used / group.width;  // ELL rows

  float acc[kRows] = {};
  for (int from = 0; from < width_in; from += kWarpSize) {
    for (int i = 0; i < kRows; ++i) {
      const int row = i * kWarps + warp;
      if (row >= used) break;
      float sum = 0.0f;
      for (int e = row * group.width; e < (row + 1) * group.width; ++e) {
        const int source = indices[element + e];
        if (source >= 0 && from + lane < width_in)
          sum = fmaf(values[element + e], x[static_cast<int64_t>(source) * width_in + from + lane], sum);
      }
      shared[row][lane] = sum;
    }
    __syncwarp();  // the sums of this warp's rows are there for its lanes
#pragma unroll 2
    for (int k = 0; k < kWarpSize && from + k < width_in; k += 4) {
      float weight[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        weight[i] = from + k + i < width_in && column < width_out
                        ? weights[static_cast<int64_t>(from + k + i) * width_out + column]
                        : 0.0f;
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const int row = i * kWarps + warp;
        if (row >= used) break;
        const Vec<float, 4> four = load<4>(&shared[row][k]);
#pragma unroll
        for (int j = 0; j < 4; ++j) acc[i] = fmaf(four[j], weight[j], acc[i]);
      }
    }
    __syncwarp();  // all lanes have read the sums
  }

  wait_for_previous_grid();  // which clears the rows that are added into
  if (column >= width_out) return;
  const RowTarget<float> to{out, sums, width_out};
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int row = i * kWarps + warp;
    if (row < used) write_row<ordered>(to, targets[group.first_row + row], column, Vec<float, 1>{acc[i]});
  }
}
