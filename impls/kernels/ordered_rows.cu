// Adding up the pieces of shared rows in a fixed order (see ordered_rows.py): a launch after the grid. Deterministic.

#include <spmark/half.cuh>
#include <spmark/overlap.cuh>
#include <spmark/vec.cuh>

using namespace spmark;

// out[rows[r], j] = the sum of sums[p, j] over p from bounds[r] to bounds[r + 1] - 1, rounded to T. Threads that a row's
// columns leave over take other pieces: each adds up every groups-th one, and their sums are added up last.
//   rows    num_shared distinct rows
//   bounds  (num_shared + 1,)
//   sums    float32, `width` columns
//   out     row-major, `width` columns; aligned to vector elements, and so is width
template <typename T, int vector, int threads>
__global__ void __launch_bounds__(threads)
    sum_pieces(int num_shared, int width, const int* __restrict__ rows, const int* __restrict__ bounds,
               const float* __restrict__ sums, T* __restrict__ out) {
  static_assert(sizeof(T) * vector <= 16, "a vector is stored at once");
  __shared__ Vec<float, vector> partial[threads];
  const int lanes = min(threads, width / vector), groups = threads / lanes;
  const int group = static_cast<int>(threadIdx.x) / lanes, lane = static_cast<int>(threadIdx.x) % lanes;
  wait_for_previous_grid();
  for (int r = blockIdx.x; r < num_shared; r += gridDim.x) {
    const int begin = bounds[r], end = bounds[r + 1], used = min(groups, end - begin);
    for (int first = 0; first < width; first += lanes * vector) {
      const int j = first + lane * vector;
      Vec<float, vector> total = zeros<float, vector>();
      if (group < used && j < width) {
#pragma unroll 4
        for (int p = begin + group; p < end; p += groups)
#pragma unroll
          for (int i = 0; i < vector; ++i) total[i] += sums[static_cast<int64_t>(p) * width + j + i];
      }
      if (used > 1) {  // for the whole thread block
        partial[threadIdx.x] = total;
        __syncthreads();  // the sums of all groups are there
        if (group == 0)
          for (int other = 1; other < used; ++other)
#pragma unroll
            for (int i = 0; i < vector; ++i) total[i] += partial[other * lanes + lane][i];
        __syncthreads();  // all have been read
      }
      if (group == 0 && j < width) store(out + static_cast<int64_t>(rows[r]) * width + j, round_to<T>(total));
    }
  }
}
