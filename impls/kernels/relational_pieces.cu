// RGMS over pieces: edges of one relation that end in one row of Y. Rows of X are summed in float32, each times its
// value of A, and the sums, rounded to T, are multiplied by W_r on the matrix unit. 16 bits.
//
// Where many edges of a relation end in a row, few rows are multiplied and written. Thread blocks are small, so that
// several share a multiprocessor, and some gather rows of X while others multiply.

#include <spmark/overlap.cuh>

#include "relational_group.cuh"
#include "relational_tile.cuh"

using namespace spmark;

constexpr int kPieces = 64;  // of a thread block

// A thread block takes a tile of pieces of one relation. depth / 8 lanes sum a piece, eight columns each.
//   width_in             at most `depth`
//   width_in, width_out  multiples of 8
//   relations            relation of each tile
//   starts               (tiles kPieces + 1,) first edge of each piece, and the number of edges
//   indices, values      of each edge: its row of X, and A's value
//   targets              (tiles, kPieces) as of write_row
//   x, w, out            (K, width_in), (R, width_in, width_out), (I, width_out), row-major
//   sums                 float32 workspace, as of write_row
// Dynamic shared memory: the sums of the pieces, and the weights.
template <typename T, int tile, int depth, bool ordered, int threads>
__global__ void __launch_bounds__(threads, 1024 / threads)
    rgms_pieces(int width_in, int width_out, const int* __restrict__ relations, const int* __restrict__ starts,
                const int* __restrict__ indices, const T* __restrict__ values, const int* __restrict__ targets,
                const T* __restrict__ x, const T* __restrict__ w, T* __restrict__ out, float* __restrict__ sums) {
  constexpr int kLanes = depth / 8, kAtOnce = threads / kLanes, kTurns = kPieces / kAtOnce;
  static_assert(kPieces % kAtOnce == 0, "all lanes sum equally many pieces");
  constexpr int kTogether = 4;  // rows of X on their way to a lane
  using Tile = RelationalTile<T, tile, kPieces, depth, 8, threads, threads / kWarpSize * 16 / kPieces>;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  let_next_grid_begin();  // which waits for this one where it needs to
  T* const stage = reinterpret_cast<T*>(shared_bytes);
  T* const weights = stage + kPieces * Tile::kStrideX;
  const int lane = threadIdx.x % kLanes, own = threadIdx.x / kLanes, column = lane * 8;
  const unsigned mask = group_mask<kLanes>();
  const bool inside = column < width_in;

  const int relation = relations[blockIdx.x];
  int begin[kTurns], end[kTurns], source[kTurns];
  float value[kTurns];
#pragma unroll
  for (int turn = 0; turn < kTurns; ++turn) {
    const int* const of_piece = starts + static_cast<int>(blockIdx.x) * kPieces + turn * kAtOnce + own;
    begin[turn] = of_piece[0], end[turn] = of_piece[1];
  }
#pragma unroll
  for (int turn = 0; turn < kTurns; ++turn) {
    const int edge = begin[turn] + lane;
    source[turn] = edge < end[turn] ? indices[edge] : -1;
    value[turn] = edge < end[turn] ? to_float(values[edge]) : 0.0f;
  }
  wait_for_previous_grid();  // which may write X and W, and read what is written here
  const Tile relational{width_in, width_out, static_cast<int>(blockIdx.y) * tile, x};
  relational.fetch_w(weights, w + static_cast<int64_t>(relation) * width_in * width_out, 0);
  commit_async();
#pragma unroll
  for (int turn = 0; turn < kTurns; ++turn) {
    Vec<float, 8> sum = zeros<float, 8>();
    for (int at = begin[turn]; at < end[turn]; at += kLanes) {
      const int now = source[turn], later = at + kLanes + lane;
      const float times = value[turn];
      source[turn] = later < end[turn] ? indices[later] : -1;
      value[turn] = later < end[turn] ? to_float(values[later]) : 0.0f;
      const int count = min(kLanes, end[turn] - at);
      for (int first = 0; first < count; first += kTogether) {
        Packed<T, 8> rows[kTogether];
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
          const int of = __shfl_sync(mask, now, first + i, kLanes);
          rows[i] = load_packed_where<8>(of >= 0 && inside, x + static_cast<int64_t>(of) * width_in + column);
        }
#pragma unroll
        for (int i = 0; i < kTogether; ++i) axpy(sum, __shfl_sync(mask, times, first + i, kLanes), rows[i]);
      }
    }
    store(stage + (turn * kAtOnce + own) * Tile::kStrideX + column, round_to<T>(sum));
  }
  const int warp_lane = threadIdx.x % kWarpSize;
  const int* const to_rows = targets + static_cast<int>(blockIdx.x) * kPieces + Tile::row() + warp_lane / 4;
  const int target[2] = {to_rows[0], to_rows[8]};
  wait_async<0>();
  __syncthreads();                                          // sums and weights are there for all threads
  if (!__any_sync(kFullMask, target[0] != kNoRow)) return;  // pieces stand before what fills a tile

  float products[Tile::kColumnTiles][4] = {};
  const T* const from_x = stage + (Tile::row() + warp_lane % 16) * Tile::kStrideX + warp_lane / 16 * 8;
  const T* const from_w = weights + warp_lane % 16 * Tile::kStrideW + Tile::column() + warp_lane / 16 * 8;
#pragma unroll
  for (int k = 0; k < depth; k += 16) {
    unsigned a[4];
    load_matrices<false>(a, from_x + k);
#pragma unroll
    for (int n = 0; n < Tile::kColumnTiles; n += 2) {
      unsigned b[4];
      load_matrices(b, from_w + k * Tile::kStrideW + n * 8);
      mma_m16n8k16<T>(products[n], a, {b[0], b[1]});
      mma_m16n8k16<T>(products[n + 1], a, {b[2], b[3]});
    }
  }
  const RowTarget<T> to{out, sums, width_out};
#pragma unroll
  for (int n = 0; n < Tile::kColumnTiles; n += 2) {
    const int first = relational.first_column + Tile::column() + n * 8 + column_of_four();
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const Vec<float, 4> four = four_columns(products[n], products[n + 1], side);
      if (first < width_out) write_row<ordered>(to, target[side], first, four);
    }
  }
}
