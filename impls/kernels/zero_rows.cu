// Zero listed rows of a dense matrix, for rows that a compute grid adds into or never touches. Deterministic.

#include <spmark/half.cuh>
#include <spmark/overlap.cuh>
#include <spmark/vec.cuh>

using namespace spmark;

// out[rows[r], j] = 0 for every listed row and j < width.
//
// A block owns one listed row at a time (grid-stride over rows), its threads stride over vectors of columns.
//   rows   num_listed distinct rows
//   out    row-major, `width` columns; aligned to vector elements, and so is width
template <typename T, int vector, int threads>
__global__ void __launch_bounds__(threads)
    zero_rows(int num_listed, int width, const int* __restrict__ rows, T* __restrict__ out) {
  static_assert(sizeof(T) * vector <= 16, "a vector is stored at once");
  let_next_grid_begin();
  for (int r = blockIdx.x; r < num_listed; r += gridDim.x) {
    T* target = out + static_cast<int64_t>(rows[r]) * width;
    for (int j = threadIdx.x * vector; j < width; j += threads * vector) store(target + j, zeros<T, vector>());
  }
}
