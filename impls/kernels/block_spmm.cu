// SpMM over dense blocks of A on the matrix unit: operands of 16 bits, float32 sums, rounded once. Deterministic.
//
// One kernel for BSR, DBSR and, where the columns of a block are any columns instead of neighbours, SR-BCRS (Ye et al.,
// ASPLOS 2023, section 4.3.2). A's blocks come in the register layout of mma.sync, so that a lane reads its part of
// A in one piece; rows of B are read as they lie and turned by ldmatrix.

#include <spmark/arrivals.cuh>
#include <spmark/async.cuh>
#include <spmark/half.cuh>
#include <spmark/ldmatrix.cuh>
#include <spmark/mma.cuh>
#include <spmark/overlap.cuh>
#include <spmark/vec.cuh>

using namespace spmark;

// A thread block reads its head first, `kHead` integers. Four are its task: the number of its block row (its complement
// where several thread blocks share the row), the first block to take, how many, and the step to start with. Four more
// are for a row that is shared: how many thread blocks share it, the number of this one among them, the place of the
// row's first part in `partials`, and 0. Then the columns of the first blocks: short rows load no others.
constexpr int kHead = 16;
constexpr int kFirstColumns = 8;
constexpr int kHeldColumns = kHead - kFirstColumns;

// Sizes of a thread block's work.
template <typename T, int rows, int tile, int depth, int vector, bool gathered, int threads>
struct BlockConfig {
  using Element = T;
  static constexpr int kRows = rows, kTile = tile, kDepth = depth, kVector = vector, kThreads = threads;
  static constexpr bool kGathered = gathered;
  static constexpr int kRowWarps = rows >= 64 ? 2 : 1;
  // Steps in shared memory: one is used while the others arrive. Large steps are fewer, so that another thread block
  // fits.
  static constexpr int kStages = depth == 64 || (depth == 32 && (rows == 64 || rows == 96)) ? 3 : 4;
  static constexpr int kRowTiles = rows / kRowWarps / 16;  // mma tiles of a warp, down
  static constexpr int kColumnTiles = 4;                   // and across
  static constexpr int kStride = tile + 8;                 // elements from row to row: eight rows, all 32 banks
  static constexpr int kPieces = depth * tile / (vector * threads);  // copies of B of one thread and step
  static constexpr int kRowPieces = tile / vector;
  static constexpr int kApart = threads / kRowPieces;  // rows of B between two copies of a thread: same column
  static constexpr int kSizeA = rows * depth;
  static constexpr int kStage = kSizeA + depth * kStride;  // elements of a step
  static constexpr int kPart = rows * tile;                // floats of a part
  static_assert(rows * kStride <= kStages * kStage, "the result is gathered where the steps were");
};

// The copies of one thread for every step: pieces of the blocks of A, and of one column of B `vector` wide.
template <typename Config>
struct StepCopy {
  using T = typename Config::Element;
  const T* a;  // where this thread's pieces of the first step begin
  const T* b;  // this thread's column of B
  const int* __restrict__ head;
  const int* __restrict__ indices;
  int first;  // number of the first block among all blocks
  int split;  // binary logarithm of the steps of a block
  int num_cols;
  int width;
  int steps;
  int start;
  int inside;     // row within a step of this thread's first copy of B
  int column;     // within the tile
  bool in_width;  // whether C and B have that column

  // Where the rows of B of a step lie: those of this thread's copies, or the step's first row. They are looked up one
  // step ahead, so that no copy waits for the answer.
  int rows[Config::kGathered ? Config::kPieces : 1];

  __device__ __forceinline__ void find(int step) {
    if constexpr (Config::kGathered) {
      const int* columns =
          indices + (static_cast<int64_t>(first) << split) * Config::kDepth + step * Config::kDepth + inside;
#pragma unroll
      for (int p = 0; p < Config::kPieces; ++p) rows[p] = columns[p * Config::kApart];
    } else {
      const int block = step >> split;
      const int column = block < kHeldColumns ? head[kFirstColumns + block] : indices[first + block];
      rows[0] = ((column << split) + (step & ((1 << split) - 1))) * Config::kDepth;
    }
  }

  __device__ __forceinline__ int turned(int step) const {
    return step + start < steps ? step + start : step + start - steps;
  }

  // Ask for a step; then look up where the rows of B of the next one lie.
  __device__ __forceinline__ void fetch(int step, T* stage) {
    const int mine = threadIdx.x * 8;
    const T* const from_a = a + static_cast<int64_t>(turned(step)) * Config::kSizeA;
#pragma unroll
    for (int at = 0; at < Config::kSizeA; at += Config::kThreads * 8)
      if (Config::kSizeA % (Config::kThreads * 8) == 0 || at + mine < Config::kSizeA)
        copy_async<16>(stage + at + mine, from_a + at);
    T* const to = stage + Config::kSizeA + inside * Config::kStride + column;
#pragma unroll
    for (int p = 0; p < Config::kPieces; ++p) {
      const int row = Config::kGathered ? rows[Config::kGathered ? p : 0] : rows[0] + inside + p * Config::kApart;
      // Past the last row or column of B zeros are multiplied: memory there may hold anything.
      const bool valid = in_width && row < num_cols;
      const T* const from = b + static_cast<int64_t>(row) * width;
      if constexpr (Config::kVector == 8)
        copy_async<16>(to + p * Config::kApart * Config::kStride, from, valid);
      else
        to[p * Config::kApart * Config::kStride] = valid ? *from : from_float<T>(0.0f);
    }
    if (step + 1 < steps) find(turned(step + 1));
  }
};

// The sums of one warp: `kRowTiles` by four mma tiles of C, as mma holds them.
template <typename Config>
struct WarpSums {
  using T = typename Config::Element;
  int lane;
  int row_tile;  // first mma tile of this warp, down
  int column;    // first column of this warp
  float sums[Config::kRowTiles][Config::kColumnTiles][4];

  // Add the product of sixteen columns of A's step, from the k-th on, and as many rows of B.
  __device__ __forceinline__ void multiply(const T* stage, int k) {
    unsigned part[Config::kRowTiles][4];
#pragma unroll
    for (int m = 0; m < Config::kRowTiles; ++m) {
      const Vec<T, 8> held = load<8>(stage + (k / 16 * (Config::kRows / 16) + row_tile + m) * 256 + lane * 8);
      memcpy(part[m], &held, sizeof(held));
    }
#pragma unroll
    for (int n = 0; n < Config::kColumnTiles; n += 2) {
      unsigned two[4];  // rows k .. k + 15 of 16 columns: two operands of mma
      load_matrices(two, stage + Config::kSizeA + (k + lane % 16) * Config::kStride + column + n * 8 + lane / 16 * 8);
      const unsigned left[2] = {two[0], two[1]};
      const unsigned right[2] = {two[2], two[3]};
#pragma unroll
      for (int m = 0; m < Config::kRowTiles; ++m) {
        mma_m16n8k16<T>(sums[m][n], part[m], left);
        mma_m16n8k16<T>(sums[m][n + 1], part[m], right);
      }
    }
  }

  // Where four sums of a thread stand in a part, from the thread's first four on: the fours of all threads stand
  // together, so that warps write and read whole lines.
  __device__ __forceinline__ static constexpr int place(int m, int n) {
    return (m * Config::kColumnTiles + n) * Config::kThreads * 4;
  }

  // Put the sums aside as one part of a block row and begin at zero; `part` is where this thread's sums go.
  __device__ __forceinline__ void put_aside(float* part) {
#pragma unroll
    for (int m = 0; m < Config::kRowTiles; ++m)
#pragma unroll
      for (int n = 0; n < Config::kColumnTiles; ++n) {
        float (&four)[4] = sums[m][n];
        store(part + place(m, n), Vec<float, 4>{four[0], four[1], four[2], four[3]});
        four[0] = four[1] = four[2] = four[3] = 0.0f;
      }
  }

  __device__ __forceinline__ void add(const float* part) {
#pragma unroll
    for (int m = 0; m < Config::kRowTiles; ++m)
#pragma unroll
      for (int n = 0; n < Config::kColumnTiles; ++n) {
        const Vec<float, 4> four = load<4>(part + place(m, n));
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[m][n][i] += four[i];
      }
  }

  // Round the sums and lay them into rows of `kStride` elements.
  __device__ __forceinline__ void lay_rows(T* result) const {
#pragma unroll
    for (int m = 0; m < Config::kRowTiles; ++m)
#pragma unroll
      for (int n = 0; n < Config::kColumnTiles; ++n)
#pragma unroll
        for (int side = 0; side < 2; ++side) {
          const int row = (row_tile + m) * 16 + side * 8 + lane / 4;
          T* const to = result + row * Config::kStride + column + n * 8 + lane % 4 * 2;
          store(to, round_to<T>(Vec<float, 2>{sums[m][n][side * 2], sums[m][n][side * 2 + 1]}));
        }
  }
};

// Walk all steps: sums += A's blocks times their rows of B, with as many steps on their way as there are stages.
template <typename Config>
__device__ __forceinline__ void walk(StepCopy<Config>& copy, WarpSums<Config>& warp, typename Config::Element* stages) {
  using T = typename Config::Element;
  constexpr int kStages = Config::kStages;
  const auto next = [&](T* from) {
    return from == stages + (kStages - 1) * Config::kStage ? stages : from + Config::kStage;
  };
  if (copy.steps > 0) copy.find(copy.start);
  T* arriving = stages;
  T* stage = stages;
  // The first turns only fetch. One loop fetches and multiplies, since its code comes from a cold cache, too.
#pragma unroll 1
  for (int step = 1 - kStages; step < copy.steps; ++step) {
    if (step >= 0) {
      wait_async<kStages - 2>();
      __syncthreads();  // all parts of this step are there, and the step before, which is overwritten next, was read
      warp.multiply(stage, 0);  // first, so that the matrix unit is busy while addresses are computed
    }
    if (step + kStages - 1 < copy.steps) copy.fetch(step + kStages - 1, arriving);
    commit_async();  // an empty group, too, so that groups count steps
    arriving = next(arriving);
    if (step >= 0) {
#pragma unroll
      for (int k = 16; k < Config::kDepth; k += 16) warp.multiply(stage, k);
      stage = next(stage);
    }
  }
}

// Put this part of a block row aside. The last thread block of the row to arrive adds up all parts, always in the same
// order; the answer is true for that one alone.
template <typename Config>
__device__ __forceinline__ bool add_parts(WarpSums<Config>& warp, const int* head, float* partials, int* arrived) {
  const Vec<int, 4> shared = load_read_only<4>(head + 4);
  const int parts = shared[0], mine = shared[1], first_place = shared[2];
  const int64_t place = static_cast<int64_t>(first_place) * gridDim.y + static_cast<int64_t>(blockIdx.y) * parts;
  float* const first_part = partials + place * Config::kPart + threadIdx.x * 4;
  warp.put_aside(first_part + mine * Config::kPart);
  if (!last_to_arrive(arrived + place, parts)) return false;
#pragma unroll 1
  for (int part = 0; part < parts; ++part) warp.add(first_part + part * Config::kPart);
  return true;
}

// C[b R + r, j] = sum over the blocks q of block row b, and their columns s, of A_q[r, s] B[column of s, j].
//
// A thread block owns one listed block row, or a part of its blocks, and `tile` columns of C; `rows` is R. The thread
// block walks the blocks `depth` columns at a time (a step). A warp multiplies all rows, or half of them, by 32
// columns. Block rows may start at different steps and go round, so that they do not all ask for the same rows of B at
// once.
//   num_rows  of A and C
//   num_cols  of A: rows of B
//   width     J
//   split     binary logarithm of the steps of a block
//   heads     the head of each listed block row or part, those with many blocks first: the longest work starts first
//   indices   block columns (each `depth << split` wide), or where gathered the columns of all blocks one by one
//   values    blocks in 16 x 16 pieces, each as 32 lanes hold it for mma (8 elements a lane), pieces of 16 columns
//             after each other, rows fastest
//   dense     B, num_cols x width, row-major; aligned to vector elements, and so is width
//   out       C, num_rows x width, row-major: the rows of every listed block row are written, zeros where it is empty
//   partials  float32 sums of parts, `rows * tile` for each part and tile of columns
//   arrived   a counter for each part and tile of columns: 0, and 0 again after the grid
template <typename T, int rows, int tile, int depth, int vector, bool gathered, int threads>
__global__ void __launch_bounds__(threads)
    spmm_blocks(int num_rows, int num_cols, int width, int split, const int* __restrict__ heads,
                const int* __restrict__ indices, const T* __restrict__ values, const T* __restrict__ dense,
                T* __restrict__ out, float* partials, int* arrived) {
  static_assert(rows % 16 == 0 && tile % 32 == 0 && depth % 16 == 0, "a warp's part is whole mma tiles");
  static_assert(threads == tile * (1 + (rows >= 64)), "a warp takes 32 columns, and half the rows of tall blocks");
  static_assert(vector == 8 || (vector == 1 && tile == 64), "other widths have one tile per height");
  static_assert(vector == 8 || depth == 16, "single elements are copied in shallow steps");
  static_assert(vector == 1 || (depth == 16) == (rows == 16 && !gathered), "low blocks take shallow steps");
  static_assert(depth != 64 || rows >= 64 || (gathered && rows >= 32), "tall blocks take deep steps");
  static_assert(!gathered || (rows <= 64 && (rows < 64 || depth != 32)), "taller panels are as full as blocks");
  using Config = BlockConfig<T, rows, tile, depth, vector, gathered, threads>;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  T* const stages = reinterpret_cast<T*>(shared_bytes);
  const int thread = threadIdx.x;
  const int* const head = heads + static_cast<int64_t>(blockIdx.x) * kHead;
  const Vec<int, 4> task = load_read_only<4>(head);
  const int block_row = task[0], first_block = task[1], blocks = task[2], first_step = task[3];
  const int first_column = blockIdx.y * tile;
  const int inside = thread / Config::kRowPieces;
  const int column = thread % Config::kRowPieces * vector;
  const bool in_width = first_column + column < width;

  StepCopy<Config> copy{values + (static_cast<int64_t>(first_block) << split) * Config::kSizeA + thread * 8,
                        dense + first_column + column,
                        head,
                        indices,
                        first_block,
                        split,
                        num_cols,
                        width,
                        blocks << split,
                        first_step,
                        inside,
                        column,
                        in_width,
                        {}};
  WarpSums<Config> warp{
      thread % 32, thread / 32 % Config::kRowWarps * Config::kRowTiles, thread / 32 / Config::kRowWarps * 32, {}};
  walk(copy, warp, stages);
  if (block_row < 0 && !add_parts(warp, head, partials, arrived)) return;

  __syncthreads();  // the steps make room for the result, which leaves in whole rows
  warp.lay_rows(stages);
  __syncthreads();           // a thread stores results of other threads
  wait_for_previous_grid();  // which clears other rows of C: the result must be complete when this grid has ended
  const int64_t first_row = static_cast<int64_t>(block_row < 0 ? ~block_row : block_row) * rows;
#pragma unroll 2
  for (int row = inside; row < rows; row += Config::kApart)
    if (first_row + row < num_rows && in_width)
      store_streaming(out + (first_row + row) * width + first_column + column,
                      load<vector>(stages + row * Config::kStride + column));
}
