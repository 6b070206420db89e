// The row of a non-zero, looked up in the row pointers of CSR.
#pragma once

namespace spmark {

// Row that holds position p: the last one that starts at or before it. O(log num_rows) dependent loads.
__device__ __forceinline__ int row_at(const int* __restrict__ indptr, int num_rows, int p) {
  int low = 0, high = num_rows - 1;
  while (low < high) {
    const int middle = low + (high - low + 1) / 2;
    if (indptr[middle] <= p)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

}  // namespace spmark
