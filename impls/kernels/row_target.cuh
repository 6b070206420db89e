// Where the sums of a piece of a row go. Bodies that share rows of C in one grid write through these.
#pragma once

#include <spmark/atomic.cuh>
#include <spmark/warp.cuh>

namespace spmark {

constexpr int kNoRow = -2147483647 - 1;  // target of sums that belong to no row of A

// Type and place of the sums of shared rows: C itself in float32, a float32 workspace in types of 16 bits.
__device__ __forceinline__ float* shared_sums(float* out, float*) { return out; }
template <typename T>
__device__ __forceinline__ float* shared_sums(T*, float* sums) {
  return sums;
}

// Row r of C is written whole where the target is r, and is added into where it is -1 - r: in 16 bits r then counts the
// rows of the workspace. Both are cleared before the grid.
template <typename T>
struct RowTarget {
  static constexpr bool kArrives = false;
  T* out;
  float* sums;
  int width;

  template <int vector>
  __device__ __forceinline__ void write(int target, int column, const Vec<float, vector>& sum) const {
    if (target == kNoRow) return;
    if (target >= 0)
      store_streaming(out + static_cast<int64_t>(target) * width + column, round_to<T>(sum));
    else
      atomic_add(shared_sums(out, sums) + static_cast<int64_t>(-1 - target) * width + column, sum);
  }
};

// Where the sums of block tiles go in a grid without other bodies. The warp that brings the last piece of a row adds up
// all pieces, always in the same order. No launch clears before or rounds after, and the result is deterministic.
//
// Row r of C is written whole where the target is r. Where the target is -1 - p the sums are piece p of a row: they are
// put aside, and added to the row's other pieces when all are there.
//   sums      float32 workspace, a row of `width` for each piece
//   pieces    4 integers each: row of C; first and end of the pieces of that row; the row's number among shared ones
//   counters  pieces that are there, for each shared row and tile of columns: 0 before the grid and after it
template <typename T>
struct PieceTarget {
  static constexpr bool kArrives = true;
  T* out;
  float* sums;
  const int* pieces;
  int* counters;
  int width;
  int tile;
  int tiles;

  static __device__ __forceinline__ bool shared(int target) { return target < 0 && target != kNoRow; }

  __device__ __forceinline__ Vec<int, 4> piece(int target) const {
    return shared(target) ? load_read_only<4>(pieces + 4 * static_cast<int64_t>(-1 - target)) : Vec<int, 4>{};
  }

  template <int vector>
  __device__ __forceinline__ void write(int target, int column, const Vec<float, vector>& sum) const {
    if (target == kNoRow) return;
    if (target >= 0)
      store_streaming(out + static_cast<int64_t>(target) * width + column, round_to<T>(sum));
    else
      put_aside(sums + static_cast<int64_t>(-1 - target) * width + column, sum);
  }

  // Whether the row's other pieces are there; the lanes that have written this piece take the answer of their `leader`.
  // All lanes of the warp make the call, after a __syncwarp that orders their writes before it.
  __device__ __forceinline__ bool last(int target, const Vec<int, 4>& piece, int leader) const {
    int found = 0;
    if (shared(target) && lane_id() == leader) {
      __threadfence();  // other warps see what the lanes of this one wrote before the piece is counted
      int* const counter = counters + static_cast<int64_t>(piece[3]) * tiles + tile;
      found = atomicAdd(counter, 1) == piece[2] - piece[1] - 1;
      if (found != 0) {
        *counter = 0;
        __threadfence();  // reads after this see the other pieces
      }
    }
    found = __shfl_sync(kFullMask, found, leader);
    __syncwarp();  // the leader's fence comes before the reads of its lanes: a shuffle orders no memory
    return found != 0;
  }

  template <int vector>
  __device__ __forceinline__ void add_up(int target, const Vec<int, 4>& piece, int column,
                                         const Vec<float, vector>& own) const {
    Vec<float, vector> sum = zeros<float, vector>();
#pragma unroll 1
    for (int p = piece[1]; p < piece[2]; ++p) {
      const float* const from = sums + static_cast<int64_t>(p) * width + column;
#pragma unroll
      for (int i = 0; i < vector; i += 4) {
        const Vec<float, 4> four = load<4>(from + i);
#pragma unroll
        for (int k = 0; k < 4; ++k) sum[i + k] += p == -1 - target ? own[i + k] : four[k];
      }
    }
    store_streaming(out + static_cast<int64_t>(piece[0]) * width + column, round_to<T>(sum));
  }
};

}  // namespace spmark
