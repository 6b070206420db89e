// Launches before and after a grid that adds into shared rows (see shared_rows.py). Deterministic.

#include <spmark/half.cuh>
#include <spmark/overlap.cuh>
#include <spmark/vec.cuh>

using namespace spmark;

// out[rows[r], j] = 0 for every listed row and j < width.
//
// A group of `lanes` threads owns one listed row at a time (grid-stride over rows) and strides over vectors of columns.
//   lanes  threads of a group, which divides `threads`
//   rows   num_listed distinct rows
//   out    row-major, `width` columns; aligned to vector elements, and so is width
template <typename T, int vector, int threads>
__global__ void __launch_bounds__(threads)
    zero_rows(int num_listed, int width, int lanes, const int* __restrict__ rows, T* __restrict__ out) {
  static_assert(sizeof(T) * vector <= 16, "a vector is stored at once");
  let_next_grid_begin();
  const int groups = threads / lanes, group = threadIdx.x / lanes, lane = threadIdx.x % lanes;
  for (int r = blockIdx.x * groups + group; r < num_listed; r += gridDim.x * groups) {
    T* target = out + static_cast<int64_t>(rows[r]) * width;
    for (int j = lane * vector; j < width; j += lanes * vector) store(target + j, zeros<T, vector>());
  }
}

// out[rows[r], j] = sums[r, j] rounded to T: shared rows that were added up in float32.
//   rows   num_shared distinct rows
//   sums   num_shared x width
//   out    row-major, `width` columns
template <typename T, int vector, int threads>
__global__ void __launch_bounds__(threads) round_shared_rows(int num_shared, int width, const int* __restrict__ rows,
                                                             const float* __restrict__ sums, T* __restrict__ out) {
  static_assert(sizeof(T) * vector <= 16, "a vector is stored at once");
  wait_for_previous_grid();
  for (int r = blockIdx.x; r < num_shared; r += gridDim.x) {
    for (int j = threadIdx.x * vector; j < width; j += threads * vector) {
      Vec<float, vector> sum;
#pragma unroll
      for (int i = 0; i < vector; ++i) sum[i] = sums[static_cast<int64_t>(r) * width + j + i];
      store(out + static_cast<int64_t>(rows[r]) * width + j, round_to<T>(sum));
    }
  }
}
