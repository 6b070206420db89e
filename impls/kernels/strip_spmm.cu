// SpMM over 16 x 16 blocks on the matrix unit, without shared memory: float16 operands, float32 sums, rounded once.
// Deterministic.
//
// For matrices whose block rows are short, as attention masks' are (SparseTIR, Ye et al., ASPLOS 2023, section 4.3.1):
// a pipeline through shared memory would end before it has filled. One warp takes a block row. What column of the
// result is column n of which mma may be chosen freely, so that lane g of a quad's eight takes the eight columns 8 g to
// 8 g + 7 of B, one for each of eight mma: 16 bytes a load, and two rows interleaved are what the unit wants. Sums of a
// lane then stand together in memory.

#include <spmark/half.cuh>
#include <spmark/mma.cuh>
#include <spmark/vec.cuh>
#include <spmark/warp.cuh>

using namespace spmark;

constexpr int kSide = 16;          // rows and columns of a block
constexpr int kTile = 64;          // columns of B that a warp takes
constexpr int kMmas = kTile / 8;   // n of mma is 8
constexpr int kChunk = kWarpSize;  // blocks whose columns the lanes hold

// What a lane multiplies of one block: its part of A, and eight columns of four rows of B, two halves a word.
struct Operands {
  Vec<unsigned, 4> a;
  Vec<unsigned, 4> b[4];
};

// Lower or upper halves of two words, the first word's below.
template <bool upper>
__device__ __forceinline__ unsigned interleave(unsigned first, unsigned second) {
  return upper ? first >> 16 | (second & 0xffff0000u) : (first & 0xffffu) | second << 16;
}

// C[16 s + r, j] = sum over the blocks q of block row s, and their columns c, of A_q[r, c] B[16 indices[q] + c, j].
//
// A warp owns a block row and 64 columns; the block rows of a thread block are neighbours, which mostly meet the same
// rows of B in the first-level cache. The next block's operands are on their way while one's are multiplied. Block rows
// without blocks give zeros.
//   indptr, indices   block_rows + 1 offsets of blocks, block columns
//   pieces            each block's 256 halves as lanes hold them for mma_m16n8k16, eight a lane
//   dense, out        B and C, num_cols x width and num_rows x width, row-major; width is a multiple of 8
template <int threads>
__global__ void __launch_bounds__(threads)
    spmm_strips(int num_rows, int num_cols, int width, int block_rows, const int* __restrict__ indptr,
                const int* __restrict__ indices, const half* __restrict__ pieces, const half* __restrict__ dense,
                half* __restrict__ out) {
  const int strip = blockIdx.x * (threads / kWarpSize) + threadIdx.x / kWarpSize;
  if (strip >= block_rows) return;  // all of the warp
  const int lane = lane_id(), g = lane / 4, t = lane % 4;
  const int from = blockIdx.y * kTile + 8 * g;  // the first of this lane's columns of B
  const int begin = indptr[strip], end = indptr[strip + 1];

  const auto fetch = [&](int q, int block_column) {
    Operands held = {};
    held.a =
        load_streaming<4>(reinterpret_cast<const unsigned*>(pieces) + (static_cast<int64_t>(q) * kChunk + lane) * 4);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = block_column * kSide + 2 * t + i % 2 + i / 2 * 8;
      if (row < num_cols && from < width)
        held.b[i] =
            load_read_only<4>(reinterpret_cast<const unsigned*>(dense + static_cast<int64_t>(row) * width + from));
    }
    return held;
  };

  float sums[kMmas][4] = {};
  int columns = begin + lane < end ? indices[begin + lane] : 0;
  Operands next = {};
  if (begin < end) next = fetch(begin, shuffle(kFullMask, columns, 0));
  for (int q = begin; q < end; ++q) {
    const Operands held = next;
    const int place = (q + 1 - begin) % kChunk;
    if (place == 0) columns = q + 1 + lane < end ? indices[q + 1 + lane] : 0;
    const int column = shuffle(kFullMask, columns, place);
    if (q + 1 < end) next = fetch(q + 1, column);
    const unsigned a[4] = {held.a[0], held.a[1], held.a[2], held.a[3]};
#pragma unroll
    for (int m = 0; m < kMmas; ++m) {
      unsigned b[2];
#pragma unroll
      for (int k = 0; k < 2; ++k)
        b[k] = m % 2 == 0 ? interleave<false>(held.b[2 * k][m / 2], held.b[2 * k + 1][m / 2])
                          : interleave<true>(held.b[2 * k][m / 2], held.b[2 * k + 1][m / 2]);
      mma_m16n8k16(sums[m], a, b);
    }
  }

  // This lane's sums are of rows g and g + 8, and of columns 16 t to 16 t + 15.
#pragma unroll
  for (int part = 0; part < 4; ++part) {
    const int row = strip * kSide + g + part / 2 * 8;
    const int column = blockIdx.y * kTile + 16 * t + part % 2 * 8;
    Vec<float, 8> sum;
#pragma unroll
    for (int m = 0; m < kMmas; ++m) sum[m] = sums[m][part];
    if (row < num_rows && column < width)
      store_streaming(out + static_cast<int64_t>(row) * width + column, round_to<half>(sum));
  }
}
