// What a plan of SpMM straight from CSR has to know of a matrix that is on the device already.

#include <spmark/arrivals.cuh>
#include <spmark/vec.cuh>
#include <spmark/warp.cuh>

using namespace spmark;

__device__ __forceinline__ void keep_largest(int* fact, int value) {
#pragma unroll
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2)
    value = max(value, __shfl_xor_sync(kFullMask, value, distance));
  if (lane_id() == 0 && value > 0) atomicMax(fact, value);
}

// Find out what a schedule depends on, and whether all reads by the matrix's arrays will be inside of them.
//
// Threads stride over the rows, then over the elements.
//   indptr    num_rows + 1 offsets
//   indices   nnz columns
//   counters  5 numbers, 0 before the grid and after it
//   facts     the longest row; rows with elements; num_rows - r for the first row r whose pointers are illegal, or 0;
//             nnz - p for the first place p whose column is illegal, or 0. They may be in the host's memory
template <int threads>
__global__ void __launch_bounds__(threads)
    csr_facts(int num_rows, int num_cols, int nnz, const int* __restrict__ indptr, const int* __restrict__ indices,
              int* counters, int* __restrict__ facts) {
  static_assert(threads % 32 == 0, "warps are whole");
  const int64_t first = blockIdx.x * int64_t(threads) + threadIdx.x, stride = gridDim.x * int64_t(threads);
  int longest = 0, filled = 0, wrong_row = 0, wrong_place = 0;
#pragma unroll 4
  for (int64_t row = first; row < num_rows; row += stride) {
    const int from = indptr[row], to = indptr[row + 1];
    if (from < 0 || from > to || (row == 0 && from != 0) || (row == num_rows - 1 && to != nnz)) {
      wrong_row = max(wrong_row, static_cast<int>(num_rows - row));
    } else {
      longest = max(longest, to - from);
      filled += to > from;
    }
  }
#pragma unroll 4
  for (int64_t place = first; place < nnz; place += stride)
    if (indices[place] < 0 || indices[place] >= num_cols) wrong_place = max(wrong_place, static_cast<int>(nnz - place));
  keep_largest(counters, longest);
#pragma unroll
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2)
    filled += __shfl_xor_sync(kFullMask, filled, distance);
  if (lane_id() == 0 && filled > 0) atomicAdd(counters + 1, filled);
  keep_largest(counters + 2, wrong_row);
  keep_largest(counters + 3, wrong_place);
  if (last_to_arrive(counters + 4, gridDim.x) && threadIdx.x < 4)
    facts[threadIdx.x] = atomicExch(counters + threadIdx.x, 0);
}

// List the pieces of rows that whole blocks take: those of every group of `rows` neighbouring rows of which one is
// longer than `longest`.
//
// A thread owns a group of rows. Rows of several pieces are listed from `middle` to the front, the others to the back,
// both in the order in which threads arrive.
//   piece   elements of a piece, at most
//   indptr  num_rows + 1 offsets
//   counts  0 before the grid. Then: entries behind `middle`; entries before it; rows of several pieces
//   pieces  entries of (row, place of the piece in the row, pieces of the row, number of the row among those of
//   several)
template <int threads>
__global__ void __launch_bounds__(threads)
    csr_pieces(int num_rows, int rows, int longest, int piece, int middle, const int* __restrict__ indptr, int* counts,
               int* __restrict__ pieces) {
  const int64_t first = (blockIdx.x * int64_t(threads) + threadIdx.x) * rows;
  if (first >= num_rows) return;
  const int count = min(static_cast<int64_t>(rows), num_rows - first);
  bool has_long = false;
  for (int r = 0; r < count; ++r) has_long |= indptr[first + r + 1] - indptr[first + r] > longest;
  if (!has_long) return;
  for (int r = 0; r < count; ++r) {
    const int row = static_cast<int>(first) + r, length = indptr[row + 1] - indptr[row];
    const int parts = length > piece ? (length - 1) / piece + 1 : 1;
    const int number = parts > 1 ? atomicAdd(counts + 2, 1) : 0;
    const int at = parts > 1 ? middle - atomicAdd(counts + 1, parts) - parts : middle + atomicAdd(counts, 1);
    for (int p = 0; p < parts; ++p) store(pieces + 4 * int64_t(at + p), Vec<int, 4>{row, p, parts, number});
  }
}
