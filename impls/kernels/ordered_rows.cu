// Adding up the pieces of shared rows in a fixed order (see ordered_rows.py): a launch after the grid. Deterministic.

#include <spmark/half.cuh>
#include <spmark/overlap.cuh>
#include <spmark/vec.cuh>

using namespace spmark;

constexpr int kFew = 8;  // pieces that a group of threads adds up alone

// What pieces are held in: T where they are `rounded`, else float32.
template <typename T, bool rounded>
struct PieceOf {
  using Type = float;
};
template <typename T>
struct PieceOf<T, true> {
  using Type = T;
};

// out[rows[r], j] = the sum of pieces[p, j] over p from bounds[r] to bounds[r + 1] - 1, rounded to T. As many threads
// as a row has columns are a group. Each group takes a row; all groups together take a row with many pieces, each of
// them every groups-th piece, and their sums are added up last.
//   rows    num_shared distinct rows
//   bounds  (num_shared + 1,)
//   pieces  `width` columns
//   out     row-major, `width` columns; aligned to vector elements, and so is width
template <typename T, bool rounded, int vector, int threads>
__global__ void __launch_bounds__(threads)
    sum_pieces(int num_shared, int width, const int* __restrict__ rows, const int* __restrict__ bounds,
               const typename PieceOf<T, rounded>::Type* __restrict__ pieces, T* __restrict__ out) {
  static_assert(sizeof(T) * vector <= 16, "a vector is stored at once");
  static_assert(!rounded || sizeof(T) == 2, "float32 is not rounded");
  let_next_grid_begin();  // which waits for this one where it needs to
  constexpr int kMost = rounded ? 8 : 4, kLoad = vector < kMost ? vector : kMost;  // 16 bytes
  __shared__ Vec<float, vector> partial[threads];
  const int lanes = min(threads, width / vector), groups = threads / lanes;
  const int group = static_cast<int>(threadIdx.x) / lanes, lane = static_cast<int>(threadIdx.x) % lanes;
  const auto add_up = [&](int begin, int end, int step, int column) {
    Vec<float, vector> total = zeros<float, vector>();
#pragma unroll 4
    for (int p = begin; p < end; p += step)
#pragma unroll
      for (int i = 0; i < vector; i += kLoad) {
        const auto some = load<kLoad>(pieces + static_cast<int64_t>(p) * width + column + i);
#pragma unroll
        for (int k = 0; k < kLoad; ++k) total[i + k] += to_float(some[k]);
      }
    return total;
  };
  struct Row {
    int row, begin, end;
  };
  const auto row_at = [&](int first) {  // of this thread's group
    const int own = first + group;
    return group < groups && own < num_shared ? Row{rows[own], bounds[own], bounds[own + 1]} : Row{-1, 0, 0};
  };
  int first = blockIdx.x * groups;
  Row own = row_at(first);
  wait_for_previous_grid();  // which writes what is added up, and may read what is written here
  for (; first < num_shared; first += gridDim.x * groups, own = row_at(first)) {
    const bool few = own.end - own.begin <= kFew;
    if (own.row >= 0 && few)
      for (int j = lane * vector; j < width; j += lanes * vector)
        store(out + static_cast<int64_t>(own.row) * width + j, round_to<T>(add_up(own.begin, own.end, 1, j)));
    if (!__syncthreads_or(!few)) continue;
    for (int r = first; r < min(first + groups, num_shared); ++r) {
      const int begin = bounds[r], end = bounds[r + 1];
      if (end - begin <= kFew) continue;  // for the whole thread block
      for (int from = 0; from < width; from += lanes * vector) {
        const int j = from + lane * vector;
        const bool mine = group < groups && j < width;
        Vec<float, vector> total = mine ? add_up(begin + group, end, groups, j) : zeros<float, vector>();
        partial[threadIdx.x] = total;
        __syncthreads();  // the sums of all groups are there
        if (group == 0 && mine) {
          for (int other = 1; other < groups; ++other)
#pragma unroll
            for (int i = 0; i < vector; ++i) total[i] += partial[other * lanes + lane][i];
          store(out + static_cast<int64_t>(rows[r]) * width + j, round_to<T>(total));
        }
        __syncthreads();  // all have been read
      }
    }
  }
}
