// Bits for each column, one for each power of two that the length of a piece touching the column has, and how many
// columns of every range have each bit. Deterministic: bits are only ever set, and counts are whole numbers.

#include <spmark/atomic.cuh>
#include <spmark/warp.cuh>

using namespace spmark;

constexpr int kPowers = 11;  // of lengths up to 1,024; longer pieces count as these

// First position in [low, high) whose column is at least `bound`.
__device__ __forceinline__ int first_at_least(const int* __restrict__ indices, int low, int high, int64_t bound) {
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (indices[middle] < bound) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// marks[column] |= 2^p for every piece that touches the column: the non-zeros of one row in one range of `width`
// columns, of which there are more than 2^(p-1) and up to 2^p, or more than 2^9 for the highest p.
//
// A warp takes a row at a time, and a lane a non-zero. Where rows are cut, the lane bisects for both ends of its piece.
//   indptr    offsets of the rows
//   indices   columns, rising within a row
//   marks     a word for each column, zero before
template <bool cut, int threads>
__global__ void __launch_bounds__(threads) mark_columns(int num_rows, int width, const int* __restrict__ indptr,
                                                        const int* __restrict__ indices, unsigned* __restrict__ marks) {
  static_assert(threads % kWarpSize == 0, "whole warps take rows");
  constexpr int warps = threads / kWarpSize;
  const int lane = threadIdx.x % kWarpSize;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * warps + threadIdx.x / kWarpSize; row < num_rows;
       row += static_cast<int64_t>(gridDim.x) * warps) {
    const int begin = indptr[row];
    const int end = indptr[row + 1];
    for (int at = begin + lane; at < end; at += kWarpSize) {
      const int column = indices[at];
      int length = end - begin;
      if constexpr (cut) {
        const int64_t first = static_cast<int64_t>(column / width) * width;
        length = first_at_least(indices, at + 1, end, first + width) - first_at_least(indices, begin, at, first);
      }
      // Bits of length - 1 are the power that holds it: 1 needs 2^0 slots, 3 and 4 need 2^2.
      const unsigned bit = 1u << min(kWarpSize - __clz(length - 1), kPowers - 1);
      // Most columns have the bit already; a value that is out of date costs only one atomic more.
      if ((load_unordered(marks + column) & bit) == 0) atomic_or(marks + column, bit);
    }
  }
}

// counts[q][0][p] += columns of range q that have bit p; counts[q][1][p] += columns that have bit p or a higher one.
//
// A warp takes 32 neighbouring columns of its range at a time, lane p counts for power p and lane 16 + p for p and
// above.
//   marks      of mark_columns, `num_cols` words
//   counts     ranges x 2 x kPowers, zero before; blockIdx.y is the range
template <int threads>
__global__ void __launch_bounds__(threads)
    count_marks(int num_cols, int width, const unsigned* __restrict__ marks, int* __restrict__ counts) {
  static_assert(threads % kWarpSize == 0 && kPowers <= 16, "a warp has a lane for every counter");
  constexpr int warps = threads / kWarpSize;
  const int lane = threadIdx.x % kWarpSize;
  const int64_t first = static_cast<int64_t>(blockIdx.y) * width;
  const int64_t stop = min(first + width, static_cast<int64_t>(num_cols));
  int total = 0;
  // All lanes of a warp have one bound, so that every lane takes part in the ballots.
  for (int64_t base = first + (static_cast<int64_t>(blockIdx.x) * warps + threadIdx.x / kWarpSize) * kWarpSize;
       base < stop; base += static_cast<int64_t>(gridDim.x) * threads) {
    const unsigned own = base + lane < stop ? marks[base + lane] : 0u;
    const unsigned above = own == 0 ? 0u : 0xffffffffu >> __clz(static_cast<int>(own));
#pragma unroll
    for (int power = 0; power < kPowers; ++power) {
      const unsigned with = ballot(kFullMask, (own >> power & 1u) != 0);
      const unsigned up = ballot(kFullMask, (above >> power & 1u) != 0);
      if (lane == power) total += __popc(with);
      if (lane == 16 + power) total += __popc(up);
    }
  }
  const int power = lane % 16;
  if (power < kPowers && total > 0) {
    atomic_add(counts + (static_cast<int64_t>(blockIdx.y) * 2 + lane / 16) * kPowers + power, total);
  }
}
