// SDDMM over vectors of eight rows on the matrix unit in the manner of FlashSparse: float16 operands, float32 sums,
// rounded once. Deterministic.
//
// Shi, Li, Xu, Fu, Wang and Wu, "FlashSparse", PPoPP 2025: as in spmm.cu the operands change places, so that the eight
// rows of a window are the n of mma, and sixteen vectors its m.

#include <spmark/half.cuh>
#include <spmark/mma.cuh>
#include <spmark/vec.cuh>
#include <spmark/warp.cuh>

using namespace spmark;

constexpr int kWindow = 8;      // rows of a window
constexpr int kGroup = 8;       // vectors of a group, of which mma takes two
constexpr int kResident = 768;  // threads of a multiprocessor for which the compiler leaves registers

// What lane t of a quad holds of a row: kHeld neighbouring columns of 4 kHeld, two to a word. Sums run in any order, so
// that mma may take the words of both operands as if these were the unit's own columns.
template <int vector>
struct Part {
  static constexpr int kHeld = vector == 8 ? 8 : 4;
  using Words = Vec<unsigned, kHeld / 2>;

  // Read the lane's columns from `column` on; zeros past the width, and where the row is not wanted.
  static __device__ __forceinline__ Words of_row(bool wanted, const half* row, int column, int width) {
    Vec<half, kHeld> held;
#pragma unroll
    for (int i = 0; i < kHeld; i += vector) {
      const auto part = load_read_only_where<vector>(wanted && column + i < width, row + column + i);
      memcpy(&held[i], &part, sizeof(part));
    }
    Words words;
    memcpy(&words, &held, sizeof(words));
    return words;
  }
};

// D[n] = sum_j X[i, j] Y[k, j] for the non-zero n in row i and column k, times factors[n] where `scaled` is not 0.
//
// A thread block owns a part of a window, whose groups its warps take two at a time, by turns.
//   part     groups of a part, at most
//   parts    4 integers for each block: window, place of the part in it, unused
//   indptr   num_windows + 1 offsets of groups
//   indices  kGroup columns a group
//   places   kGroup x kWindow a group: the non-zero of a vector and a row of the window, or -1
//   factors  nnz values of A, not read unless scaled
//   x        num_rows x width, row-major; aligned to vector elements, and so is width
//   y        num_cols x width, likewise
//   out      nnz results
template <int vector, int threads>
__global__ void __launch_bounds__(threads, kResident / threads)
    sddmm_flashsparse(int num_rows, int width, int scaled, int part, const int* __restrict__ parts,
                      const int* __restrict__ indptr, const int* __restrict__ indices, const int* __restrict__ places,
                      const half* __restrict__ factors, const half* __restrict__ x, const half* __restrict__ y,
                      half* __restrict__ out) {
  static_assert(threads % 32 == 0, "warps are whole");
  using Mine = Part<vector>;
  constexpr int kStep = 4 * Mine::kHeld;
  const int lane = lane_id(), g = lane / 4, t = lane % 4;
  const Vec<int, 4> own = load_read_only<4>(parts + 4 * static_cast<int64_t>(blockIdx.x));
  const int begin = indptr[own[0]] + own[1] * part, end = min(begin + part, indptr[own[0] + 1]);
  const unsigned row_bytes = width * unsigned(sizeof(half));
  // The last window may lack rows: another row stands for them, and no non-zero names its results.
  const half* const of_x = row_of(x, min(own[0] * kWindow + g, num_rows - 1), row_bytes);

  for (int group = begin + threadIdx.x / 32 * 2; group < end; group += threads / 32 * 2) {
    const bool both = group + 1 < end;
    const int64_t first = static_cast<int64_t>(group) * kGroup + g;  // this lane's vector of the first group
    const half* const of_y[2] = {row_of(y, indices[first], row_bytes),
                                 row_of(y, both ? indices[first + kGroup] : 0, row_bytes)};
    float sum[4] = {};
#pragma unroll 2
    for (int j = t * Mine::kHeld; j - t * Mine::kHeld < width; j += kStep) {
      const auto right = Mine::of_row(true, of_x, j, width);
      const auto one = Mine::of_row(true, of_y[0], j, width), other = Mine::of_row(both, of_y[1], j, width);
#pragma unroll
      for (int k = 0; k < Mine::kHeld / 2; k += 2) {
        const unsigned a[4] = {one[k], other[k], one[k + 1], other[k + 1]};
        const unsigned b[2] = {right[k], right[k + 1]};
        mma_m16n8k16<half>(sum, a, b);
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (i == 1 && !both) continue;
      const Vec<int, 2> named = load_read_only<2>(places + (first + i * kGroup) * kWindow + 2 * t);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int n = named[r];
        if (n >= 0) out[n] = from_float<half>(scaled ? sum[2 * i + r] * to_float(factors[n]) : sum[2 * i + r]);
      }
    }
  }
}
