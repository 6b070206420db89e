// Several thread blocks make parts of one result, and the last of them to finish puts the parts together.
#pragma once

namespace spmark {

// Whether this thread block is the last of `count` that come here; it then sees what all of them wrote before. Every
// thread of the block makes the call. The counter is 0 before the first comes, and again after the last.
__device__ __forceinline__ bool last_to_arrive(int* counter, int count) {
  __threadfence();  // what this thread has written is seen before it is counted
  __syncthreads();
  bool last = false;
  if (threadIdx.x == 0) {
    last = atomicAdd(counter, 1) == count - 1;
    if (last) *counter = 0;
  }
  last = __syncthreads_or(last);
  if (last) __threadfence();  // nothing is read that was there before the others came
  return last;
}

}  // namespace spmark
