// RGMS, output-stationary, for graphs in which many rows have edges of the same relations: a thread block owns tiles of
// rows of Y whose sets of relations are alike and walks over these relations. float16 with float32 sums. No atomics.
//
// A warp owns sixteen rows of a tile, or of a part of it that has some of its relations. For each relation it sums A's
// values times rows of X, multiplies the sums by W_r and keeps the products in registers, so that a row of Y is written
// once. Loads for the next part are on their way while the last one is finished.

#include <spmark/async.cuh>
#include <spmark/overlap.cuh>
#include <spmark/warp.cuh>

#include "relational_steps.cuh"
#include "relational_sums.cuh"

using namespace spmark;

// A step is a relation of a part, a chunk 32 edges of a relation that end in sixteen rows of a warp.
struct Chunk {
  int step;
  unsigned tag;
};

// blockIdx.x counts thread blocks, blockIdx.y tiles of columns of Y.
//   width_in             at most `depth`;  width_in, width_out  multiples of 8
//   bounds               (blocks + 1, 2) first step and first part of each thread block
//   steps                relation of each step, and kLast
//   chunk_starts         (blocks * warps + 1,) first chunk of each warp
//   chunk_steps          step of each chunk, counted from the thread block's first; rising for a warp
//   indices              (chunks, 32) row of X, or -1
//   tags                 (chunks, 32) A's value in the lower half, the row out of sixteen, or 0xffff, in the upper one
//   targets              (parts, warps * 16) r where the piece is all of row r of Y; -1 - p where its sums are row p of
//                        `sums`; or kNoRow
//   x, w, out            (K, width_in), (R, width_in, width_out), (I, width_out), row-major
// Dynamic shared memory: stages of weights, and as many of rows of X for each warp; 1024 bytes more where `together`:
// warpgroups multiply by weights out of shared memory.
template <int tile, int depth, bool together, int threads>
__global__ void __launch_bounds__(threads, tile + depth <= 64 ? 768 / threads : 1)
    rgms_sets(int width_in, int width_out, const int* __restrict__ bounds, const int* __restrict__ steps,
              const int* __restrict__ chunk_starts, const int* __restrict__ chunk_steps,
              const int* __restrict__ indices, const unsigned* __restrict__ tags, const int* __restrict__ targets,
              const half* __restrict__ x, const half* __restrict__ w, half* __restrict__ out,
              float* __restrict__ sums) {
  static_assert(!together || (tile == 128 && depth == 128), "two blocks of weights by two");
  using Tile = RelationalTile<half, tile, threads, depth, 8, threads>;
  constexpr int kStages = depth == 128 ? 2 : 3;  // one is multiplied, the others are on their way
  constexpr int kWarps = threads / kWarpSize, kStageX = kWarpSize * Tile::kStrideX;
  constexpr int kStageW = together ? 4 * kBlock : depth * Tile::kStrideW;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  let_next_grid_begin();  // which waits for this one where it needs to
  const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
  half* const weights = reinterpret_cast<half*>(together ? first_block(shared_bytes) : shared_bytes);
  half* const stages = weights + kStages * kStageW + warp * kStages * kStageX;
  const Tile relational{width_in, width_out, static_cast<int>(blockIdx.y) * tile, x};

  const int begin = bounds[2 * blockIdx.x], count = bounds[2 * blockIdx.x + 2] - begin;
  // Where a stage has the weights already, of the step kStages before, they are not read again.
  const auto fetch_weights = [&](int step) {
    if (step >= count) return;
    const int relation = steps[begin + step] & kRelation;
    if (step >= kStages && (steps[begin + step - kStages] & kRelation) == relation) return;
    half* const stage = weights + step % kStages * kStageW;
    const half* const from_w = w + static_cast<int64_t>(relation) * width_in * width_out;
    if constexpr (together) {
      for (int k = 0; k < depth; k += kBlockSide)
        copy_blocks<tile, threads>(stage + k / kBlockSide * (2 * kBlock),
                                   from_w + static_cast<int64_t>(k) * width_out + relational.first_column, width_out,
                                   width_in - k, width_out - relational.first_column);
    } else {
      relational.fetch_w(stage, from_w, 0);
    }
  };
  int from = chunk_starts[blockIdx.x * kWarps + warp];
  const int end = chunk_starts[blockIdx.x * kWarps + warp + 1];
  const auto edge_of = [&](int at) { return static_cast<int64_t>(at) * kWarpSize + lane; };
  const auto chunk_at = [&](int at) { return at < end ? Chunk{chunk_steps[at], tags[edge_of(at)]} : Chunk{-1, 0}; };
  const auto source_at = [&](int at) { return at < end ? indices[edge_of(at)] : -1; };
  const auto gather = [&](int into, int source) {
    constexpr int kPieces = depth / 8, kAtOnce = kWarpSize / kPieces;
    const int column = lane % kPieces * 8;
    half* const to = stages + into * kStageX + column;
    const bool both = __shfl_sync(kFullMask, source, 16) >= 0;  // sixteen edges and more
#pragma unroll
    for (int first = 0; first < kWarpSize; first += kAtOnce) {
      if (first >= 16 && !both) break;  // for the whole warp
      const int row = first + lane / kPieces, of = __shfl_sync(kFullMask, source, row);
      copy_async<16>(to + row * Tile::kStrideX, x + static_cast<int64_t>(of) * width_in + column,
                     of >= 0 && column < width_in);
    }
  };
  const int* to = targets + static_cast<int64_t>(bounds[2 * blockIdx.x + 1]) * (threads / 2) + warp * 16 + lane / 4;

  int first_sources[kStages - 1];
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) first_sources[i] = source_at(from + i);
  Chunk chunk = chunk_at(from), following = chunk_at(from + 1);
  int source = source_at(from + kStages - 1);
  wait_for_previous_grid();  // which may write X and W, and read what is written here
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) {
    fetch_weights(i);
    gather(i, first_sources[i]);
    commit_async();
  }
  int turn = 0;
  float products[tile / 8][4] = {};
  for (int step = 0; step < count; ++step) {
    wait_async<kStages - 2>();
    if constexpr (together) show_to_matrix_unit();
    __syncthreads();  // this step's weights are there for all threads, and all have read those of the last one
    fetch_weights(step + kStages - 1);
    const bool last = steps[begin + step] & kLast;
    const bool has_edges = chunk.step == step;
    if (!has_edges) commit_async();  // none of this warp's rows has the relation
    float merged[depth / 8][4] = {};
    while (chunk.step == step) {
      gather(turn == 0 ? kStages - 1 : turn - 1, source);
      commit_async();
      const Chunk later = chunk_at(from + 2);
      source = source_at(from + kStages);
      wait_async<kStages - 1>();
      __syncwarp();  // this chunk's rows of X are there for all lanes
      const half* const stage = stages + turn * kStageX + lane % 16 * Tile::kStrideX + lane / 16 * 8;
      const bool both = __shfl_sync(kFullMask, chunk.tag, 16) >> 16 != 0xffffu;
#pragma unroll
      for (int first = 0; first < kWarpSize; first += 16)
        if (first == 0 || both) add_edges<depth>(merged, stage + first * Tile::kStrideX, chunk.tag, first, 0);
      __syncwarp();  // all lanes are done with this stage
      chunk = following, following = later;
      ++from, turn = turn + 1 == kStages ? 0 : turn + 1;
    }
    const half* const from_w = weights + step % kStages * kStageW;
    if constexpr (together) {
      Halves<depth>(merged).multiply_together(products, from_w);
    } else if (has_edges) {
      Halves<depth>(merged).template multiply<Tile::kStrideW>(products,
                                                              from_w + lane % 16 * Tile::kStrideW + lane / 16 * 8);
    }
    if (!last) continue;

    const int target[2] = {to[0], to[8]};
    leave<8>(products, target, relational.first_column, OwnedRows<half, float>{out, sums, width_out});
    to += threads / 2;
  }
}
