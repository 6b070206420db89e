// SpMM over vectors of eight rows on the matrix unit in the manner of FlashSparse: float16 operands, float32 sums,
// rounded once. Deterministic.
//
// Shi, Li, Xu, Fu, Wang and Wu, "FlashSparse: Minimizing Computation Redundancy for Fast Sparse Matrix Multiplications
// on Tensor Cores", PPoPP 2025. The operands change places, C^T = B^T A^T, so that the eight rows of a window are the n
// of mma, and a vector of A has no more than eight elements.

#include <spmark/arrivals.cuh>
#include <spmark/half.cuh>
#include <spmark/mma.cuh>
#include <spmark/vec.cuh>
#include <spmark/warp.cuh>

using namespace spmark;

constexpr int kWindow = 8;      // rows of a window
constexpr int kGroup = 8;       // vectors of a group, of which mma takes two
constexpr int kResident = 768;  // threads of a multiprocessor for which the compiler leaves registers

// The columns that a lane feeds to its mma tiles, and whose sums it then holds: `vector` neighbours, two a tile, so
// that a load brings them together; with single elements the unit's own two, eight apart.
template <int vector>
struct Columns {
  static constexpr int kTiles = vector > 2 ? vector / 2 : 1;

  int first;
  int width;

  __device__ __forceinline__ int at(int i) const { return vector == 1 ? first + 8 * i : first + i; }

  // The sum of column i in the lane's row r of two.
  static __device__ __forceinline__ float& total(float (&sum)[kTiles][4], int r, int i) {
    return sum[i / 2][i % 2 * 2 + r];
  }

  // Call visit(element, sum) for each sum of the lane's two rows, of which `row` is the first in a matrix as wide as C.
  template <typename Visit>
  __device__ __forceinline__ void visit(float* row, float (&sum)[kTiles][4], Visit visit) const {
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int i = 0; i < 2 * kTiles; ++i)
        if (at(i) < width) visit(row[r * int64_t(width) + at(i)], total(sum, r, i));
  }

  // Read a row of B as words, a word for each tile; zeros past the width, and where the row is not wanted.
  __device__ __forceinline__ Vec<unsigned, kTiles> of_row(bool wanted, const half* row) const {
    if constexpr (vector == 1) {
      Vec<half, 2> held = zeros<half, 2>();
#pragma unroll
      for (int i = 0; i < 2; ++i) held[i] = load_read_only_where<1>(wanted && at(i) < width, row + at(i))[0];
      Vec<unsigned, 1> word;
      memcpy(&word, &held, sizeof(word));
      return word;
    } else {
      return load_read_only_where<kTiles>(wanted && first < width, reinterpret_cast<const unsigned*>(row + first));
    }
  }
};

// C[8 w + r, j] = sum over the groups q of window w, and their columns s, of values_q[r, s] B[indices_q[s], j].
//
// A thread block owns a part of a window; a warp of it owns 16 columns of C for each mma tile of a lane. Rows of B go
// from memory to registers. Where a window has several parts, the block that finishes last adds up their sums in order.
//   part      groups of a part, at most
//   parts     4 integers for each block: window, place of the part in it, parts of the window, number of the window
//             among those of several parts, which come first
//   indptr    num_windows + 1 offsets of groups
//   indices   kGroup columns a group
//   values    kWindow x kGroup a group, row-major
//   sums      float32 workspace, kWindow x width for each part of windows with several
//   counters  parts that are there, for each such window and blockIdx.y: 0 before and after the grid
//   dense     B, num_cols x width, row-major; aligned to vector elements, and so is width
//   out       C, num_rows x width, row-major; written whole, empty windows as zeros
template <int vector, int threads>
__global__ void __launch_bounds__(threads, kResident / threads)
    spmm_flashsparse(int num_rows, int width, int part, const int* __restrict__ parts, const int* __restrict__ indptr,
                     const int* __restrict__ indices, const half* __restrict__ values, float* sums, int* counters,
                     const half* __restrict__ dense, half* __restrict__ out) {
  static_assert(threads % 32 == 0, "warps are whole");
  using Mine = Columns<vector>;
  constexpr int kTiles = Mine::kTiles;
  const int lane = lane_id(), row_pair = lane % 4 * 2;
  const int warp = blockIdx.y * (threads / 32) + threadIdx.x / 32;
  const Mine columns{warp * 16 * kTiles + lane / 4 * vector, width};
  const Vec<int, 4> own = load_read_only<4>(parts + 4 * static_cast<int64_t>(blockIdx.x));
  const int window = own[0], place = own[1], count = own[2];
  const int begin = indptr[window] + place * part, end = min(begin + part, indptr[window + 1]);

  // Lane (g, t) holds columns 2t and 2t + 1 of the group, and their values in row g.
  Vec<int, 2> next_rows[2];
  unsigned next_values[2];
  const auto fetch = [&](int group) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const bool exists = group + i < end;
      const int64_t q = group + i;
      next_rows[i] = load_read_only_where<2>(exists, indices + q * kGroup + row_pair);
      next_values[i] = load_read_only_where<1>(exists, reinterpret_cast<const unsigned*>(values) + q * 32 + lane)[0];
    }
  };
  float sum[kTiles][4] = {};
  fetch(begin);
#pragma unroll 1
  for (int group = begin; group < end; group += 2) {
    Vec<unsigned, kTiles> b[2][2];
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int k = 0; k < 2; ++k)
        b[i][k] = columns.of_row(group + i < end, row_of(dense, next_rows[i][k], width * unsigned(sizeof(half))));
    const unsigned of_a[2] = {next_values[0], next_values[1]};
    fetch(group + 2);
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      unsigned turned[4];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        turned[2 * i] = (b[i][0][m] & 0xffffu) | b[i][1][m] << 16;
        turned[2 * i + 1] = b[i][0][m] >> 16 | (b[i][1][m] & 0xffff0000u);
      }
      mma_m16n8k16<half>(sum[m], turned, of_a);
    }
  }

  if (count > 1) {
    const int64_t step = int64_t(kWindow) * width;
    float* const first = sums + (blockIdx.x - place) * step + row_pair * int64_t(width);
    columns.visit(first + place * step, sum, [](float& aside, float& mine) { aside = mine; });
    if (!last_to_arrive(counters + own[3] * gridDim.y + blockIdx.y, count)) return;
    columns.visit(first, sum, [](float& aside, float& mine) { mine = aside; });
    for (int p = 1; p < count; ++p)
      columns.visit(first + p * step, sum, [](float& aside, float& mine) { mine += aside; });
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = window * kWindow + row_pair + r;
    if (row >= num_rows) continue;
    half* const to = out + static_cast<int64_t>(row) * width;
    if constexpr (vector == 1) {
#pragma unroll
      for (int i = 0; i < 2; ++i)
        if (columns.at(i) < width) to[columns.at(i)] = from_float<half>(Mine::total(sum, r, i));
    } else if (columns.first < width) {
      Vec<half, vector> result;
#pragma unroll
      for (int i = 0; i < vector; ++i) result[i] = from_float<half>(Mine::total(sum, r, i));
      store_streaming(to + columns.first, result);
    }
  }
}
