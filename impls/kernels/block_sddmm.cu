// SDDMM over BSR blocks on the matrix unit: blocks of X Y^T, accumulated in float32, written in A's CSR order.
// Deterministic: every non-zero is computed and written once.
//
// After the block formats of SparseTIR (Ye et al., ASPLOS 2023, section 4.3.1). Fragments are loaded straight from
// global memory. Two orders may be chosen freely, so that every access has 16 bytes. A sum over J may run in any order:
// lane t of a quad takes columns 8 t .. 8 t + 7 of X and of Y and feeds them to two mma as if they were the unit's own.
// The columns of the result are dealt out so that a lane's results stand together in memory.

#include <spmark/half.cuh>
#include <spmark/vec.cuh>

#include "narrow_words.cuh"

using namespace spmark;

constexpr int kUnitColumns = 32;  // columns of A at a time: four n of mma, so that eight of a row are one lane's
constexpr int kDepth = 2;         // chunks loaded at once
constexpr int kStep = kDepth * kChunk;
constexpr int kHead = 8;  // integers of a task

// Round and store the results of eight neighbouring columns of a row, all of them non-zeros of A; 8 divides p.
template <typename T>
__device__ __forceinline__ void store_all(T* __restrict__ out, const T* __restrict__ values, int scaled, int p,
                                          Vec<float, 8> sums) {
  if (scaled) {
    const Vec<T, 8> factors = load_read_only<8>(values + p);
#pragma unroll
    for (int i = 0; i < 8; ++i) sums[i] *= to_float(factors[i]);
  }
  store_streaming(out + p, round_to<T>(sums));
}

// Round and store the results of those of eight columns that are non-zeros of A: the bits of `present`. They stand
// together from position p on.
template <typename T>
__device__ __forceinline__ void store_some(T* __restrict__ out, const T* __restrict__ values, int scaled, int p,
                                           unsigned present, const Vec<float, 8>& sums) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if ((present >> i & 1u) == 0) continue;
    out[p] = from_float<T>(scaled ? sums[i] * to_float(values[p]) : sums[i]);
    ++p;
  }
}

// D[p] = sum_j X[i, j] Y[k, j] at the non-zeros (i, k) of A, times values[p] where `scaled` is not 0.
//
// A warp does one task: a strip of 16 rows of a block row, against a run of its blocks. The X of the strip stays in
// registers where J is at most 64; Y comes through L1, which the warps of a thread block share: neighbouring strips
// mostly meet the same columns. The next unit's Y is on its way while a unit's results are written.
//   tasks     num_tasks x 8: first row of the strip, first block, end of the blocks, non-zeros of a row of the strip
//             that stand before the first block (read where `full`), columns of the blocks of the first two units
//   starts    where `full`, A's indptr; else nblocks x block, the position of the first non-zero in a row of a block
//   masks     nblocks x block, bit c of a row of a block is set where column c is a non-zero; not read where `full`:
//             then all are
//   indices   nblocks block columns
//   values    nnz, in CSR order; not read unless scaled
//   x         num_rows x width, row-major; aligned to vector elements, and so is width
//   y         num_cols x width, likewise
//   out       nnz results
template <typename T, int block, int vector, bool full, int threads>
__global__ void __launch_bounds__(threads, vector == 8 ? 640 / threads : 1)
    block_sddmm(int num_rows, int num_cols, int width, int scaled, int num_tasks, const int* __restrict__ tasks,
                const int* __restrict__ starts, const unsigned* __restrict__ masks, const int* __restrict__ indices,
                const T* __restrict__ values, const T* __restrict__ x, const T* __restrict__ y, T* __restrict__ out) {
  static_assert(block == 16 || block == 32, "a unit is made of whole blocks");
  static_assert(vector == 8 || (threads == 128 && !full), "narrow loads are not worth a variant");
  constexpr int kPerUnit = kUnitColumns / block;
  const int warp = blockIdx.x * (threads / 32) + threadIdx.x / 32;
  if (warp >= num_tasks) return;  // the whole warp leaves
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;

  // Where in a unit the rows of Y that this lane loads begin, and the columns that it stores.
  // Column 2 t + e of the unit's n-tile i, in mma's order, is column 8 t + 2 i + e of the unit.
  const int load_at = 8 * (g / 2) + g % 2, store_at = 8 * t;

  const int* head = tasks + static_cast<int64_t>(kHead) * warp;
  const Vec<int, 4> task = load_read_only<4>(head);
  int column = head[4 + load_at / block], ahead = head[4 + kPerUnit + load_at / block];
  const int first = task[1], end = task[2], top = task[0] + g;  // this lane's other row is top + 8

  Words left[kDepth][2], right[kDepth][4];
  const auto fetch_left = [&](int j) {
    const T* from = x + static_cast<int64_t>(full ? top : min(top, num_rows - 1)) * width + j + 8 * t;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int below = full || top + 8 * h < num_rows ? 8 * h * width : 0;
#pragma unroll
      for (int d = 0; d < kDepth; ++d) {
        left[d][h] = load_words<vector>(from + below + d * kChunk, width - j - 8 * t - d * kChunk);
      }
    }
  };
  const auto fetch_right = [&](int j) {
    const int row = column * block + load_at % block;
    const T* from = y + static_cast<int64_t>(full ? row : min(row, num_cols - 1)) * width + j + 8 * t;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      // Columns past A's last have no results: the lane reads its first row of Y again in place of rows past the last.
      const int below = full || row + 2 * i < num_cols ? 2 * i * width : 0;
#pragma unroll
      for (int d = 0; d < kDepth; ++d) {
        right[d][i] = load_words<vector>(from + below + d * kChunk, width - j - 8 * t - d * kChunk);
      }
    }
  };
  fetch_left(0);
  fetch_right(0);
  int position[2];
  unsigned present[2];
  if constexpr (full) {
#pragma unroll
    for (int h = 0; h < 2; ++h) position[h] = starts[top + 8 * h] + task[3] + store_at;
  }

  for (int b = first; b < end; b += kPerUnit) {
    const int stored = b + store_at / block;
    if constexpr (!full) {
      if (stored < end) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int64_t run = static_cast<int64_t>(stored) * block + (top + 8 * h) % block;
          const unsigned mask = masks[run], before = mask & ((1u << store_at % block) - 1u);
          position[h] = starts[run] + __popc(before);
          present[h] = mask >> store_at % block & 0xffu;
        }
      }
    }

    float sum[4][4] = {};
    for (int j = 0; j < width; j += kStep) {
      add_products<T>(sum, left, right);
      const bool last = j + kStep >= width;
      if (last) {
        const int later = b + 2 * kPerUnit + load_at / block;
        column = ahead;
        if (later < end) ahead = indices[later];
      }
      if (!last || b + kPerUnit < end) {
        if (width > kStep) fetch_left(last ? 0 : j + kStep);
        fetch_right(last ? 0 : j + kStep);
      }
    }

    if (stored < end) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        Vec<float, 8> eight;
#pragma unroll
        for (int i = 0; i < 8; ++i) eight[i] = sum[i / 2][2 * h + i % 2];
        if constexpr (full) {
          store_all(out, values, scaled, position[h], eight);
          position[h] += kUnitColumns;
        } else if (present[h] == 0xffu && reinterpret_cast<size_t>(out + position[h]) % 16 == 0 &&
                   position[h] % 8 == 0) {
          store_all(out, values, scaled, position[h], eight);
        } else {
          store_some(out, values, scaled, position[h], present[h], eight);
        }
      }
    }
  }
}
