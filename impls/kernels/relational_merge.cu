// RGMS over runs of edges of one relation, sorted by row: A's values times rows of X are summed first, and the sums are
// multiplied by W_r. Where many edges of a relation end in a row, few rows are multiplied.
//
// Both are products on the matrix unit: the first has a matrix of A's values, in which each edge is in the row that it
// ends in. float16 with float32 sums.

#include <spmark/overlap.cuh>
#include <spmark/warp.cuh>

#include "relational_group.cuh"
#include "relational_sums.cuh"
#include "relational_tile.cuh"

using namespace spmark;

// An edge of the relation; `tag` has A's value in the lower half, and the number of its row among those of the warp.
struct Edge {
  int source, target;
  unsigned tag;
};

// A warp takes 32 edges at a time, a lane looks after one. Arguments as of rgms_hyb, with a width of 1 for all groups;
// targets, one for each edge, are alike for edges of the 32 that end in one row, and differ where the row does.
//   width_in             at most `depth`
//   width_in, width_out  multiples of 8
// Dynamic shared memory: the weights, and for each warp two stages of rows of X.
template <int tile, int slots, int depth, bool ordered, int threads>
__global__ void __launch_bounds__(threads)
    rgms_merge(int first, int width_in, int width_out, const int* __restrict__ groups, const int* __restrict__ indices,
               const half* __restrict__ values, const int* __restrict__ targets, const half* __restrict__ x,
               const half* __restrict__ w, half* __restrict__ out, float* __restrict__ sums) {
  static_assert(slots % threads == 0, "all warps take equally many edges of a whole group");
  using Tile = RelationalTile<half, tile, slots, depth, 8, threads>;
  constexpr int kStage = kWarpSize * Tile::kStrideX;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  __shared__ int places[threads];
  if constexpr (ordered) let_next_grid_begin();  // which waits for this one where it needs to
  const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize, g = lane / 4;
  half* const weights = reinterpret_cast<half*>(shared_bytes);
  half* const stages = weights + depth * Tile::kStrideW + warp * 2 * kStage;
  int* const places_of_warp = places + warp * kWarpSize;

  const int at = first + blockIdx.x;
  const Group group = group_at(groups, at);
  const int64_t element = static_cast<int64_t>(at) * slots + lane;
  const Tile relational{width_in, width_out, static_cast<int>(blockIdx.y) * tile, x};
  const auto edge_at = [&](int from) {
    Edge edge{-1, kNoRow, 0};
    if (from + lane < group.used) {
      edge.source = indices[element + from], edge.target = targets[element + from];
      memcpy(&edge.tag, values + element + from, sizeof(half));
    }
    return edge;
  };
  const auto gather = [&](half* stage, int source) {
    constexpr int kPieces = depth / 8, kAtOnce = kWarpSize / kPieces;
    const int column = lane % kPieces * 8;
#pragma unroll
    for (int row = lane / kPieces; row < kWarpSize; row += kAtOnce) {
      const int from = __shfl_sync(kFullMask, source, row);
      copy_async<16>(stage + row * Tile::kStrideX + column, x + static_cast<int64_t>(from) * width_in + column,
                     from >= 0 && column < width_in);
    }
    commit_async();
  };

  int from = warp * kWarpSize, turn = 0;
  Edge next = edge_at(from), later = edge_at(from + threads);
  if constexpr (ordered) wait_for_previous_grid();  // which may write X and W, and read what is written here
  relational.fetch_w(weights, w + static_cast<int64_t>(group.relation) * width_in * width_out, 0);
  commit_async();
  gather(stages, next.source);
  wait_async<1>();
  __syncthreads();                                   // the weights are there for all threads
  if constexpr (!ordered) wait_for_previous_grid();  // which clears the rows that are added into
  const RowTarget<half> to{out, sums, width_out};
  for (; from < group.used; from += threads, turn ^= 1) {
    const Edge edge = next;
    next = later, later = edge_at(from + 2 * threads);
    gather(stages + (turn ^ 1) * kStage, next.source);

    const int before = __shfl_up_sync(kFullMask, edge.target, 1);
    const bool opens = edge.target != kNoRow && (lane == 0 || edge.target != before);
    const unsigned openings = __ballot_sync(kFullMask, opens);
    const int rows = __popc(openings), row = __popc(openings & ((2u << lane) - 1)) - 1;
    if (opens) places_of_warp[row] = edge.target;
    const unsigned tag = edge.target == kNoRow ? 0xffff0000u : static_cast<unsigned>(row) << 16 | edge.tag;
    const int middle = __shfl_sync(kFullMask, row, 16);
    wait_async<1>();
    __syncwarp();  // this stage and the places are there for all lanes
    const half* const stage = stages + turn * kStage + lane % 16 * Tile::kStrideX + lane / 16 * 8;

    for (int top = 0; top < rows; top += 16) {
      float merged[depth / 8][4] = {};
#pragma unroll
      for (int upper = 0; upper < 2; ++upper) {
        if (upper == 0 ? top > 0 : middle > top + 15) continue;  // the first row of an edge is at most its own number
        add_edges<depth>(merged, stage + upper * 16 * Tile::kStrideX, tag, upper * 16, top);
      }
      const Halves<depth> halves(merged);
      const int place[2] = {top + g < rows ? places_of_warp[top + g] : kNoRow,
                            top + g + 8 < rows ? places_of_warp[top + g + 8] : kNoRow};
      const half* const from_w = weights + lane % 16 * Tile::kStrideW + lane / 16 * 8;
      constexpr int kAtOnce = 2;  // times sixteen columns
#pragma unroll 1
      for (int first = 0; first < tile; first += kAtOnce * 16) {
        float products[kAtOnce * 2][4] = {};
        halves.template multiply<Tile::kStrideW>(products, from_w + first);
#pragma unroll
        for (int n = 0; n < kAtOnce; ++n) {
          const int column = relational.first_column + first + n * 16 + column_of_four();
#pragma unroll
          for (int side = 0; side < 2; ++side) {
            const Vec<float, 4> four = four_columns(products[n * 2], products[n * 2 + 1], side);
            if (column < width_out) write_row<ordered>(to, place[side], column, four);
          }
        }
      }
    }
    __syncwarp();  // all lanes are done with this stage and the places
  }
}
