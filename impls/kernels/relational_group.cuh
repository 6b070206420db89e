// The groups of the 3-D hyb, and where the sums of their rows go.
#pragma once

#include <spmark/vec.cuh>

#include "row_target.cuh"

namespace spmark {

// A group: relation, width of its ELL rows, number of its first ELL row, slots in use (whole ELL rows).
struct Group {
  int relation, width, first_row, used;
};

__device__ __forceinline__ Group group_at(const int* __restrict__ groups, int at) {
  const Vec<int, 4> four = load_read_only<4>(groups + 4 * static_cast<int64_t>(at));
  return {four[0], four[1], four[2], four[3]};
}

// Write the sums of one ELL row, columns from `column` on. Where `ordered`, a row of Y that several ELL rows share has
// a row of `sums` for each of them, which a later launch adds up in order; else they are added up here, atomically.
template <bool ordered, int vector, typename T>
__device__ __forceinline__ void write_row(const RowTarget<T>& to, int target, int column,
                                          const Vec<float, vector>& sum) {
  if (ordered && target < 0 && target != kNoRow)
    store(to.sums + static_cast<int64_t>(-1 - target) * to.width + column, sum);
  else
    to.write(target, column, sum);
}

}  // namespace spmark
