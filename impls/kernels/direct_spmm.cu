// SpMM straight from CSR, in A's order of rows: one launch, one store a row, nothing padded and nothing cleared.
//
// One group of lanes walks a row, as in GE-SpMM (Huang et al., SC 2020, section 4), and shuffles show it the row's
// elements, as in Sputnik's subwarp tiles (Gale et al., SC 2020, section 5). Deterministic: sums are never added by
// atomics, and the pieces of a very long row are added up in their order by the block that finishes last.

#include <spmark/arrivals.cuh>
#include <spmark/half.cuh>
#include <spmark/vec.cuh>
#include <spmark/warp.cuh>

using namespace spmark;

// Threads of a multiprocessor, by the loads that each has on their way: more threads would spill registers. Without
// this bound the compiler saves registers and waits for one load before it begins the next.
template <int vectors, int unroll>
constexpr int kResident = vectors * unroll >= 8 ? 768 : 1024;

// Add up the sums of a block's groups, in the order of the groups; the first lanes of the block get the total.
template <int lanes, int group, int groups, int vector, int vectors>
__device__ __forceinline__ void sum_over_block(Vec<float, vector>* parts, Vec<float, vector> (&sum)[vectors]) {
#pragma unroll
  for (int v = 0; v < vectors; ++v) {
    parts[threadIdx.x] = sum[v];
    __syncthreads();  // the first group reads the sums of all groups
    if (threadIdx.x < lanes) {
#pragma unroll 1
      for (int g = 1; g < groups; ++g) axpy(sum[v], 1.0f, parts[g * group + threadIdx.x]);
    }
    __syncthreads();  // no group overwrites sums that the first group still reads
  }
}

// Rows of one group and their elements, or one row and a part of its elements.
struct GroupRows {
  int row;    // the first
  int count;  // rows
  int begin;  // the first element
  int size;   // elements
  int end;    // in lane l: the end of row l in CSR
};

// A piece of a long row, which is the work of a block. The pieces of a row are the work of neighbouring blocks.
struct Piece {
  int row;
  int place;   // among the row's pieces
  int count;   // pieces of the row
  int shared;  // number of the row among those of several pieces
};

__device__ __forceinline__ Piece piece_of(const int* pieces, int block) {
  const Vec<int, 4> told = load<4>(pieces + 4 * static_cast<int64_t>(block));
  return {told[0], told[1], told[2], told[3]};
}

// The share of a group of block `block`: its part of a piece of a long row in the first `num_pieces` blocks, else
// `rows` rows, or none where one of these is long. Lane l reads the pointers of row l, or of the last row, so that all
// are loaded at once.
template <int lanes, int groups, bool several>
__device__ __forceinline__ GroupRows share_of(int block, int num_rows, int rows, int longest, int num_pieces,
                                              const int* __restrict__ indptr, const int* __restrict__ pieces) {
  const int group = threadIdx.x / lanes;
  const bool together = block < num_pieces;
  const Piece piece = together ? piece_of(pieces, block) : Piece{};
  GroupRows share;
  share.row = together ? piece.row : min(((block - num_pieces) * groups + group) * rows, num_rows);
  share.count = together ? 1 : min(rows, num_rows - share.row);
  const int lane_row = several ? min(static_cast<int>(threadIdx.x) % lanes, share.count - 1) : 0;
  const int own = several ? share.row + lane_row : min(share.row, num_rows - 1);
  const int from = indptr[own];
  share.end = indptr[own + 1];
  const bool is_long = share.end - from > longest;
  const bool has_long = several ? (__ballot_sync(kFullMask, is_long) & group_mask<lanes>()) != 0 : is_long;
  if (has_long && !together) share.count = 0;

  share.begin = several ? __shfl_sync(kFullMask, from, 0, lanes) : from;
  const int stop = several ? __shfl_sync(kFullMask, share.end, lanes - 1, lanes) : share.end;
  share.size = share.count > 0 ? stop - share.begin : 0;
  const auto take_part = [&](int place, int count) {
    const int part = (share.size + count - 1) / count;
    const int skipped = min(place * part, share.size);
    share.begin += skipped;
    share.size = min(part, share.size - skipped);
  };
  if (together) {
    take_part(piece.place, piece.count);
    take_part(group, groups);
  }
  return share;
}

// C[i, j] = sum_k A[i, k] B[k, j].
//
// A group of `lanes` threads takes `rows` neighbouring rows and a tile of vectors * lanes * vector columns; a lane owns
// `vectors` vectors of them, lanes * vector columns apart. The elements of neighbouring rows are neighbours in CSR, so
// that the group walks all of its rows as one run: each lane fetches one element of a chunk of `lanes`, one chunk
// ahead, and `unroll` rows of B are on their way at once. A row longer than `longest` is the work of whole blocks: each
// takes a piece, whose equal parts its groups take. Where a row has several pieces, the block that finishes last adds
// up their sums. No block waits for another.
//
// With several `parts` a group has lanes * parts threads. Part p takes the elements p, p + parts, ... of a row, so that
// parts * unroll rows of B are on their way, and shuffles add up the parts' sums.
//   num_rows   rows of A
//   width      columns of B and C, a multiple of `vector`
//   rows       rows of a group, at most `lanes`; 1 unless `several`, which leaves a row in one part
//   longest    elements of a row; a group that meets a longer row leaves all of its rows to the first blocks
//   num_pieces entries of `pieces`: so many blocks come first in the grid
//   indptr     num_rows + 1 offsets
//   indices    nnz columns, in CSR order
//   values     nnz values, likewise
//   pieces     of the rows that blocks take: those of every group with a row longer than `longest`
//   sums       float32 workspace, a row of `width` for each piece of rows with several, which stand first
//   counters   pieces that are there, for each row with several and each tile of columns: 0 before and after the grid
//   dense      B, num_cols x width, row-major; aligned to vector elements
//   out        C, num_rows x width, row-major; written whole, rows without elements as zeros
// Dynamic shared memory: a float32 vector of each thread where there are long rows.
template <typename T, int vector, int vectors, int lanes, int parts, int unroll, bool several, int threads>
__global__ void __launch_bounds__(threads, kResident<vectors, unroll> / threads)
    spmm_direct(int num_rows, int width, int rows, int longest, int num_pieces, const int* __restrict__ indptr,
                const int* __restrict__ indices, const T* __restrict__ values, const int* __restrict__ pieces,
                float* sums, int* counters, const T* __restrict__ dense, T* __restrict__ out) {
  static_assert(kWarpSize % (lanes * parts) == 0, "a group is a part of one warp");
  static_assert(lanes % unroll == 0, "a group holds whole steps");
  static_assert(parts == 1 || (vectors == 1 && unroll == 4 && !several), "parts are for single rows in narrow tiles");
  static_assert(unroll < 8 || (vectors == 1 && !several), "many rows of B are on their way for single rows alone");
  static_assert(sizeof(T) * vector <= 16, "a vector is loaded at once");
  static_assert(sizeof(T) * vector == 16 || (vectors == 1 && parts == 1 && unroll == 4 && threads == 128),
                "schedules are chosen where a load has 16 bytes");
  constexpr int kGroup = lanes * parts;
  constexpr int kGroups = threads / kGroup;
  constexpr int kStep = lanes * vector;  // columns between two vectors of a lane
  constexpr int kNoEnd = 0x7fffffff;
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  const int lane = threadIdx.x % lanes;
  const int lane_of_group = threadIdx.x % kGroup;
  const int part = lane_of_group / lanes;
  const int block = blockIdx.x;
  const bool together = block < num_pieces;
  const GroupRows share =
      share_of<kGroup, kGroups, several>(block, num_rows, rows, longest, num_pieces, indptr, pieces);
  // This lane's element of the chunk of `kGroup` that begins at `start`. Past the end nothing is loaded.
  const int* const own_indices = indices + share.begin;
  const T* const own_values = values + share.begin;
  int next_column;
  T next_value;
  const auto fetch = [&](int start) {
    next_column = 0;
    next_value = from_float<T>(0.0f);
    if (start + lane_of_group < share.size) {
      next_column = load_read_only<1>(own_indices + start + lane_of_group)[0];
      next_value = load_read_only<1>(own_values + start + lane_of_group)[0];
    }
  };
  // All groups of a warp make the steps of the longest run, so that shuffles find every lane.
  int steps = share.size;
#pragma unroll
  for (int distance = kGroup; distance < kWarpSize; distance *= 2)
    steps = max(steps, __shfl_xor_sync(kFullMask, steps, distance));

  // The column passes through a shuffle. Otherwise the compiler would compute it anew from the block's index in each
  // step.
  const int column = __shfl_sync(kFullMask, blockIdx.y * (kStep * vectors) + lane * vector, lane, lanes);
  const unsigned row_bytes = width * unsigned(sizeof(T));
  const T* columns = dense + column;
  int taken[vectors];  // elements for which a vector of B is loaded: 0 past the last column
  Vec<float, vector> sum[vectors];
#pragma unroll
  for (int v = 0; v < vectors; ++v) {
    taken[v] = column + v * kStep < width ? share.size : 0;
    sum[v] = zeros<float, vector>();
  }

  int done = 0;  // rows
  // End of the row at hand. A row that a block takes together ends once the sums of the groups have been added.
  const int first_end = several ? __shfl_sync(kFullMask, share.end, 0, lanes) - share.begin : kNoEnd;
  int end = together || share.count <= 0 ? kNoEnd : first_end;
  const auto finish_row = [&] {
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
      if (part == 0 && column + v * kStep < width)  // C is not read again: B stays in L2
        store_streaming(row_of(out + column + v * kStep, share.row + done, row_bytes), round_to<T>(sum[v]));
      sum[v] = zeros<float, vector>();
    }
    ++done;
    if (several) {
      end = done < share.count ? __shfl_sync(group_mask<lanes>(), share.end, done, lanes) - share.begin : kNoEnd;
    }
  };

  int now_column = 0;
  float now_value = 0.0f;
  fetch(0);
#pragma unroll 1
  for (int step = 0; step < steps; step += parts * unroll) {
    const int place = lanes == unroll ? 0 : step % kGroup;
    if (place == 0) {
      now_column = next_column;
      now_value = to_float(next_value);
      fetch(step + kGroup);
    }
    int from_row[unroll];
    float value[unroll];
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      from_row[u] = __shfl_sync(kFullMask, now_column, place + u * parts + part, kGroup);
      value[u] = __shfl_sync(kFullMask, now_value, place + u * parts + part, kGroup);
    }
    Packed<T, vector> rows_of_b[unroll][vectors];
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      const T* source = row_of(columns, from_row[u], row_bytes);
#pragma unroll
      for (int v = 0; v < vectors; ++v)
        rows_of_b[u][v] = load_packed_where<vector>(step + u * parts + part < taken[v], source + v * kStep);
    }
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      if (several) {
        while (step + u == end) finish_row();
      }
#pragma unroll
      for (int v = 0; v < vectors; ++v) axpy(sum[v], value[u], rows_of_b[u][v]);
    }
  }
  sum_parts_of_group<lanes, kGroup>(sum);
  if (together) {
    sum_over_block<lanes, kGroup, kGroups>(reinterpret_cast<Vec<float, vector>*>(shared_bytes), sum);
    const bool has_sum = threadIdx.x < lanes;
    const Piece piece = piece_of(pieces, block);  // again: it need not stay in registers all the while
    if (piece.count > 1) {
      float* const first = sums + (block - piece.place) * static_cast<int64_t>(width) + column;
#pragma unroll
      for (int v = 0; v < vectors; ++v)
        if (has_sum && column + v * kStep < width)
          put_aside(first + piece.place * static_cast<int64_t>(width) + v * kStep, sum[v]);
      if (!last_to_arrive(counters + piece.shared * gridDim.y + blockIdx.y, piece.count)) return;
#pragma unroll
      for (int v = 0; v < vectors; ++v) {
        sum[v] = zeros<float, vector>();
        if (has_sum && column + v * kStep < width) {
#pragma unroll 1
          for (int p = 0; p < piece.count; ++p) add_aside(sum[v], first + p * static_cast<int64_t>(width) + v * kStep);
        }
      }
    }
    if (!has_sum) return;
  }
  if (several) {
#pragma unroll 1
    while (done < share.count) finish_row();
  } else if (share.count > 0) {
    finish_row();
  }
}
