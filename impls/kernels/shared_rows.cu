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

// out[rows[r], j] = sums[r, j] rounded to T: shared rows that were added up in float32. Where `clears`, sums[r, j] = 0
// then for the next run. Listed rows behind these have no sums and are cleared. Groups of threads as of zero_rows.
//   rows   num_listed distinct rows, `num_shared` shared ones first
//   sums   num_shared x width
//   out    row-major, `width` columns; aligned to vector elements, and so is width
template <typename T, int vector, int threads>
__global__ void __launch_bounds__(threads)
    round_shared_rows(int num_listed, int width, int lanes, const int* __restrict__ rows, int num_shared, int clears,
                      float* __restrict__ sums, T* __restrict__ out) {
  static_assert(sizeof(T) * vector <= 16, "a vector is stored at once");
  let_next_grid_begin();  // which waits for this one where it needs to
  constexpr int kLoad = vector < 4 ? vector : 4;
  const int groups = threads / lanes, group = threadIdx.x / lanes, lane = threadIdx.x % lanes;
  wait_for_previous_grid();
  for (int r = blockIdx.x * groups + group; r < num_listed; r += gridDim.x * groups) {
    const int64_t row = rows[r];
    for (int j = lane * vector; j < width; j += lanes * vector) {
      Vec<float, vector> sum = zeros<float, vector>();
      if (r < num_shared) {
        float* const from = sums + static_cast<int64_t>(r) * width + j;
#pragma unroll
        for (int i = 0; i < vector; i += kLoad) {
          const Vec<float, kLoad> some = load<kLoad>(from + i);
#pragma unroll
          for (int k = 0; k < kLoad; ++k) sum[i + k] = some[k];
          if (clears) store(from + i, zeros<float, kLoad>());
        }
      }
      store(out + row * width + j, round_to<T>(sum));
    }
  }
}
