// Zero listed rows of a dense matrix, for rows that a compute grid adds into or never touches. Deterministic.

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
