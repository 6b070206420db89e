// Adding up the pieces of shared rows in a fixed order (see ordered_rows.py): a launch after the grid. Deterministic.

#include <spmark/half.cuh>
#include <spmark/overlap.cuh>
#include <spmark/vec.cuh>

using namespace spmark;

// out[rows[r], j] = the sum of sums[p, j] over p from bounds[r] to bounds[r + 1] - 1, rounded to T.
//   rows    num_shared distinct rows
//   bounds  (num_shared + 1,)
//   sums    float32, `width` columns
//   out     row-major, `width` columns; aligned to vector elements, and so is width
template <typename T, int vector, int threads>
__global__ void __launch_bounds__(threads)
    sum_pieces(int num_shared, int width, const int* __restrict__ rows, const int* __restrict__ bounds,
               const float* __restrict__ sums, T* __restrict__ out) {
  static_assert(sizeof(T) * vector <= 16, "a vector is stored at once");
  wait_for_previous_grid();
  for (int r = blockIdx.x; r < num_shared; r += gridDim.x) {
    const int end = bounds[r + 1];
    for (int j = threadIdx.x * vector; j < width; j += threads * vector) {
      Vec<float, vector> total = zeros<float, vector>();
      for (int p = bounds[r]; p < end; ++p)
#pragma unroll
        for (int i = 0; i < vector; ++i) total[i] += sums[static_cast<int64_t>(p) * width + j + i];
      store(out + static_cast<int64_t>(rows[r]) * width + j, round_to<T>(total));
    }
  }
}
