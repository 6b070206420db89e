// SpMM over SR-BCRS panels of eight rows on the matrix unit: operands of 16 bits, float32 sums, rounded once.
// Deterministic.
//
// After SparseTIR (Ye et al., ASPLOS 2023, section 4.3.2), whose schedule takes m8n32k16. Here the operands change
// places, C^T = B^T A^T: the eight rows of a panel are the n of m16n8k16, and no row of the unit is idle.

#include <spmark/async.cuh>
#include <spmark/half.cuh>
#include <spmark/ldmatrix.cuh>
#include <spmark/mma.cuh>
#include <spmark/vec.cuh>
#include <spmark/warp.cuh>

using namespace spmark;

constexpr int kPanel = 8;       // rows of a panel
constexpr int kGroup = 16;      // columns of a group: the k of mma
constexpr int kResident = 640;  // threads of a multiprocessor for which the compiler leaves registers

// C[8 p + r, j] = sum over the groups q of panel p, and their columns s, of values_q[r, s] B[indices_q[s], j].
//
// A warp owns one panel and `tile` columns of C; a thread block holds as many panels as it has warps. Rows of B come to
// shared memory of the warp's own, several groups ahead, and so do the values, which fill the gaps between the rows.
//   heads     4 integers a panel: its number, first group, groups, and the group that it starts with
//   indices   kGroup columns a group
//   values    kGroup x kPanel a group, as 32 lanes hold it for mma (4 elements a lane)
//   dense     B, num_cols x width, row-major; aligned to vector elements, and so is width
//   out       C, num_rows x width, row-major; written whole, empty panels as zeros
template <typename T, int tile, int vector, int threads>
__global__ void __launch_bounds__(threads, kResident / threads)
    spmm_panels(int num_rows, int num_panels, int width, const int* __restrict__ heads, const int* __restrict__ indices,
                const T* __restrict__ values, const T* __restrict__ dense, T* __restrict__ out) {
  static_assert(tile % 64 == 0, "a warp copies whole rows of B at a time, and multiplies 16 columns");
  static_assert(vector == 8 || (vector == 1 && tile == 64), "other widths have one tile");
  constexpr int kStages = 4;                         // groups in shared memory: one is used while three arrive
  constexpr int kPad = 8;                            // elements after each row: they hold the values of the group
  constexpr int kStride = tile + kPad;               // elements from row to row: eight rows meet all 32 banks
  constexpr int kStage = kGroup * kStride;           // elements of a group
  constexpr int kRowPieces = tile / vector;          // copies of a row of B
  constexpr int kPieces = kGroup * kRowPieces / 32;  // copies of a lane and group
  constexpr int kTiles = tile / 16;                  // mma tiles
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  const int lane = lane_id();
  const int warp = threadIdx.x / 32;
  T* const stages = reinterpret_cast<T*>(shared_bytes) + warp * kStages * kStage;
  const int listed = blockIdx.x * (threads / 32) + warp;
  if (listed >= num_panels) return;  // the warp leaves together; no barrier of the block follows
  const Vec<int, 4> head = load_read_only<4>(heads + static_cast<int64_t>(listed) * 4);
  const int first_column = blockIdx.y * tile;
  const int64_t first = head[1];
  const int groups = head[2];
  const int turn = head[3];
  const auto turned = [&](int group) { return group + turn < groups ? group + turn : group + turn - groups; };

  const int* const columns = indices + first * kGroup + lane % kGroup;
  int row_of_b = groups > 0 ? columns[static_cast<int64_t>(turn) * kGroup]
                            : 0;                      // lane s holds the s-th column of the group that is fetched next
  constexpr int kUnroll = vector == 8 ? kPieces : 4;  // registers for many single elements would not fit
  const auto fetch = [&](int group) {
    T* const stage = stages + group % kStages * kStage;
#pragma unroll kUnroll
    for (int p = 0; p < kPieces; ++p) {
      const int inside = (p * 32 + lane) / kRowPieces;
      const int column = (p * 32 + lane) % kRowPieces * vector;
      const int row = __shfl_sync(kFullMask, row_of_b, inside);
      const bool valid = first_column + column < width;
      const T* const from = dense + static_cast<int64_t>(row) * width + first_column + column;
      T* const to = stage + inside * kStride + column;
      if constexpr (vector == 8)
        copy_async<16>(to, from, valid);
      else
        *to = valid ? *from : from_float<T>(0.0f);
    }
    if (lane < kGroup)
      copy_async<16>(stage + lane * kStride + tile, values + (first + turned(group)) * (kGroup * kPanel) + lane * kPad);
    if (group + 1 < groups) row_of_b = columns[static_cast<int64_t>(turned(group + 1)) * kGroup];
  };

  float sums[kTiles][4] = {};
  const auto multiply = [&](int group) {
    const T* const stage = stages + group % kStages * kStage;
    const T* const lane_values = stage + lane / 2 * kStride + tile + lane % 2 * 4;
    const auto held = load<2>(reinterpret_cast<const unsigned*>(lane_values));
    const unsigned b[2] = {held[0], held[1]};
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      unsigned a[4];  // 16 columns of B by 16 of its rows, turned
      load_matrices(a, stage + (lane / 16 * 8 + lane % 8) * kStride + m * 16 + lane / 8 % 2 * 8);
      mma_m16n8k16<T>(sums[m], a, b);
    }
  };

  // The first turns only fetch. One loop fetches and multiplies, since its code comes from a cold cache, too.
#pragma unroll 1
  for (int group = 1 - kStages; group < groups; ++group) {
    if (group >= 0) {
      wait_async<kStages - 2>();
      __syncwarp();  // all lanes' parts of this group are there; the group before, overwritten next, was read
    }
    if (group + kStages - 1 < groups) fetch(group + kStages - 1);
    commit_async();  // an empty group, too, so that groups of copies count groups
    if (group >= 0) multiply(group);
  }

  __syncwarp();  // the result is turned back where the groups were: all lanes have read them
#pragma unroll
  for (int m = 0; m < kTiles; ++m)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      stages[(lane % 4 * 2 + e % 2) * kStride + m * 16 + e / 2 * 8 + lane / 4] = from_float<T>(sums[m][e]);
  __syncwarp();  // a lane stores results of other lanes
  const int64_t first_row = static_cast<int64_t>(head[0]) * kPanel;
#pragma unroll
  for (int p = 0; p < kPanel * kRowPieces / 32; ++p) {
    const int row = (p * 32 + lane) / kRowPieces;
    const int column = (p * 32 + lane) % kRowPieces * vector;
    if (first_row + row < num_rows && first_column + column < width)
      store_streaming(out + (first_row + row) * width + first_column + column,
                      load<vector>(stages + row * kStride + column));
  }
}
