// CSR SpMM by one-dimensional tiles in the manner of Sputnik.
//
// Gale, Zaharia, Young and Elsen, "Sparse GPU Kernels for Deep Learning", SC 2020, sections 5.1 (hierarchical 1D
// tiling, subwarp tiling), 5.2 (reverse offset memory alignment), 5.3 (row swizzle). Deterministic: no atomics.

#include <spmark/async.cuh>
#include <spmark/half.cuh>
#include <spmark/vec.cuh>
#include <spmark/warp.cuh>

using namespace spmark;

constexpr int kCopy = 16;  // bytes that one asynchronous copy moves
constexpr int kStep = 8;   // non-zeros taken at once at the two ends of a row

// Two stages of columns and values of a row, in shared memory: one is multiplied while the other arrives.
template <typename T, typename Index, int lanes>
struct Stages {
  static constexpr int kChunk = kCopy / sizeof(T);                  // non-zeros copied by a lane at once
  static constexpr int kColumnBytes = kChunk * int(sizeof(Index));  // of their columns

  Index* columns;
  T* values;
  int depth;  // non-zeros of a stage

  // Start copying a stage from position p, which kChunk divides; whole chunks, so up to kChunk - 1 beyond `count`.
  __device__ __forceinline__ void fetch(int which, const Index* __restrict__ indices, const T* __restrict__ source,
                                        int64_t p, int64_t count, int lane) const {
    for (int at = lane * kChunk; at < depth && at < count; at += lanes * kChunk) {
#pragma unroll
      for (int b = 0; b < kColumnBytes; b += kCopy) {
        const int offset = at + b / int(sizeof(Index));
        copy_async<kCopy>(columns + which * depth + offset, indices + p + offset);
      }
      copy_async<kCopy>(values + which * depth + at, source + p + at);
    }
    commit_async();
  }
};

// sum += the products of `flight` staged non-zeros from p on, with all their rows of B on the way at once. Unless
// `all`, non-zeros before `first` and from `last` on are left out: in their place a row is read that is needed anyway.
template <int flight, bool all, typename T, typename Index, int vector, int tiles>
__device__ __forceinline__ void multiply(Vec<float, vector> (&sum)[tiles], const Index* columns, const T* values, int p,
                                         int first, int last, const T* __restrict__ dense, int width,
                                         const int (&column)[tiles]) {
  Vec<T, vector> part[flight][tiles];
#pragma unroll
  for (int f = 0; f < flight; ++f) {
    const int at = all ? p + f : min(max(p + f, first), last - 1);
    const T* source = dense + static_cast<int64_t>(columns[at]) * width;
#pragma unroll
    for (int t = 0; t < tiles; ++t) part[f][t] = load_read_only<vector>(source + column[t]);
  }
#pragma unroll
  for (int f = 0; f < flight; ++f) {
    if (!all && (p + f < first || p + f >= last)) continue;
    const float value = to_float(values[p + f]);
#pragma unroll
    for (int t = 0; t < tiles; ++t) axpy(sum[t], value, part[f][t]);
  }
}

// C[i, j] = sum_k A[i, k] B[k, j].
//
// A subwarp of `lanes` threads owns one row and `tiles` times lanes * vector columns; a block holds threads / lanes
// rows that follow each other in `order`, so that their lengths are alike.
//   order     the num_rows rows, longest first
//   indptr    num_rows + 1 offsets
//   indices   nnz columns, in CSR order, with room for kChunk - 1 more; 16-byte aligned
//   values    nnz values, likewise
//   dense     B, num_cols x width, row-major; aligned to vector elements, and so is width
//   out       C, num_rows x width, row-major; written whole, empty rows as zeros
// Dynamic shared memory: kCopy + 2 depth (sizeof(Index) + sizeof(T)) bytes a row, depth a multiple of kChunk.
// A row starts anywhere, but its copies start at the 16-byte boundary before it (reverse offset memory alignment): the
// elements of the row before are passed over.
template <typename T, typename Index, int vector, int lanes, int tiles, int threads>
__global__ void __launch_bounds__(threads)
    spmm_rowsplit(int num_rows, int width, int depth, const int* __restrict__ order, const int* __restrict__ indptr,
                  const Index* __restrict__ indices, const T* __restrict__ values, const T* __restrict__ dense,
                  T* __restrict__ out) {
  static_assert(threads % 32 == 0 && 32 % lanes == 0, "a subwarp is a part of one warp");
  static_assert(sizeof(T) * vector <= 16, "a vector is loaded at once");
  static_assert(tiles == 1 || sizeof(T) * vector == 16, "loads are made wide before there are two of them");
  static_assert(sizeof(Index) == 4 || (sizeof(T) == 2 && vector >= 4), "short columns go with wide loads of halves");
  using Held = Stages<T, Index, lanes>;
  static_assert(kStep % Held::kChunk == 0, "a step passes over all that stands before the row");
  constexpr int kRows = threads / lanes;
  constexpr int kFlight = tiles == 1 ? 16 : 4;  // non-zeros whose rows of B are on their way, held in registers
  extern __shared__ __align__(16) unsigned char staged[];

  const int group = threadIdx.x / lanes;
  const int lane = threadIdx.x % lanes;
  const int slot = blockIdx.x * kRows + group;
  if (slot >= num_rows) return;  // the subwarp leaves together; no barrier of the block follows
  const unsigned members = group_mask<lanes>();

  // kCopy bytes more a row: subwarps that read the same place of their stages then use different banks.
  unsigned char* mine = staged + group * (kCopy + 2 * depth * int(sizeof(Index) + sizeof(T)));
  const Held stages{reinterpret_cast<Index*>(mine), reinterpret_cast<T*>(mine + 2 * depth * int(sizeof(Index))), depth};

  int column[tiles];
#pragma unroll
  for (int t = 0; t < tiles; ++t)  // past the width the last columns are computed again, and not stored
    column[t] = min(static_cast<int>((blockIdx.y * tiles + t) * lanes + lane) * vector, width - vector);
  Vec<float, vector> sum[tiles] = {};

  const int row = order[slot];
  const int first = indptr[row];
  const int end = indptr[row + 1];
  int before = first % Held::kChunk;  // staged non-zeros of the row before
  int64_t start = first < end ? first - before : end;
  stages.fetch(0, indices, values, start, end - start, lane);
  for (int turn = 0; start < end; turn ^= 1) {
    stages.fetch(turn ^ 1, indices, values, start + depth, end - start - depth, lane);
    wait_async<1>();
    __syncwarp(members);  // the whole subwarp reads what each lane copied
    const int last = static_cast<int>(min(static_cast<int64_t>(depth), end - start));
    const Index* columns = stages.columns + turn * depth;
    const T* factors = stages.values + turn * depth;
    int p = 0;
    if (before > 0) {
      multiply<kStep, false>(sum, columns, factors, p, before, last, dense, width, column);
      p = kStep;
    }
    for (; p + kFlight <= last; p += kFlight)
      multiply<kFlight, true>(sum, columns, factors, p, 0, last, dense, width, column);
    if constexpr (kFlight > kStep)
      for (; p + kStep <= last; p += kStep)
        multiply<kStep, true>(sum, columns, factors, p, 0, last, dense, width, column);
    if (p + kStep / 2 < last)
      multiply<kStep, false>(sum, columns, factors, p, 0, last, dense, width, column);
    else if (p < last)
      multiply<kStep / 2, false>(sum, columns, factors, p, 0, last, dense, width, column);
    __syncwarp(members);  // all lanes have read before the next copies land
    start += depth;
    before = 0;
  }

  T* target = out + static_cast<int64_t>(row) * width;
#pragma unroll
  for (int t = 0; t < tiles; ++t)
    if (static_cast<int>((blockIdx.y * tiles + t) * lanes + lane) * vector < width)
      store_streaming(target + column[t], round_to<T>(sum[t]));
}
