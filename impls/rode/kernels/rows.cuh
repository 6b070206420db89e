// The two parts of a row. The block part is a multiple of kTile non-zeros and begins at a boundary of 16 bytes, so that
// whole chunks of its columns and values are copied without a test. What stands before and behind it is the residue.
#pragma once

#include <spmark/vec.cuh>
#include <spmark/warp.cuh>

namespace spmark {

constexpr int kLanes = 8;  // threads of a subwarp, which takes a segment of a block part, or a residue
constexpr int kChunk = 4;  // columns, or values, in 16 bytes
constexpr int kTile = 32;  // non-zeros of a block part that are staged at once

// Threads of a multiprocessor that leave each the registers for the loads that it has on their way. Without this bound
// the compiler saves registers in large thread blocks, and waits for one load before it begins the next.
constexpr int kResident = 512;
constexpr int kResidueThreads = 1024;  // of SpMM's residues, which wait for pointers, columns and rows of B in turn

// A piece of a block part: at most as many non-zeros as a subwarp shall have, a multiple of kTile.
struct Segment {
  int row;
  int first;
  int count;
};

// Segment s of (n, 4) int32: row, first non-zero, non-zeros, 0.
__device__ __forceinline__ Segment segment_of(const int* __restrict__ segments, int s) {
  const Vec<int, 4> told = load_read_only<4>(segments + 4 * static_cast<int64_t>(s));
  return {told[0], told[1], told[2]};
}

// A row without its block part.
struct Residue {
  int first;
  int head;   // non-zeros before the block part, fewer than kChunk
  int block;  // non-zeros of the block part
  int count;

  // Position in CSR of non-zero e of the residue.
  __device__ __forceinline__ int position(int e) const { return first + e + (e < head ? 0 : block); }
};

__device__ __forceinline__ Residue residue_of(const int* __restrict__ indptr, int row) {
  const int first = indptr[row], stop = indptr[row + 1];
  const int head = -first & (kChunk - 1);
  const int block = max(stop - first - head, 0) / kTile * kTile;
  return {first, head, block, stop - first - block};
}

}  // namespace spmark
