// Several thread blocks make parts of one result, and the last of them to finish puts the parts together.
#pragma once

namespace spmark {

// Whether this thread block is the last of `count` that call this; the last one sees what all of them wrote before.
// Every thread of the block makes the call. The counter is 0 before the first call, and again after the last.
__device__ __forceinline__ bool last_to_arrive(int* counter, int count) {
  __threadfence();  // others see this thread's writes before its block is counted
  __syncthreads();
  bool last = false;
  if (threadIdx.x == 0) {
    last = atomicAdd(counter, 1) == count - 1;
    if (last) *counter = 0;
  }
  last = __syncthreads_or(last);
  if (last) __threadfence();  // reads after this see what the other blocks wrote
  return last;
}

}  // namespace spmark
