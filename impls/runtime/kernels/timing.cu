// What stands around runs that are timed: a gate that holds a stream until the host has enqueued everything, so that no
// launch waits for the host, and a kernel that empties the L2 of lines that were written and not yet stored.

#include <spmark/clock.cuh>
#include <spmark/vec.cuh>

using namespace spmark;

// Return once `opened` holds `turn`, or after `limit_ns` nanoseconds: a host that waits for the stream must not hang.
//   opened   one word that the host writes
template <int threads>
__global__ void __launch_bounds__(threads) gate(int turn, long long limit_ns, const int* opened) {
  if (threadIdx.x != 0) return;
  const long long begun = time_ns();
  while (load_now(opened) != turn && time_ns() - begun < limit_ns) {
  }
}

// Read `count` vectors of 16 bytes through the L2, grid-stride, and keep a sum that no caller looks at. Loads are
// ordinary ones: a line that is read takes the place of one that was written, which goes to memory.
//   source   4 * count floats, none negative
//   sink     one float, written only where the sum is a value that does not occur
template <int threads>
__global__ void __launch_bounds__(threads)
    read_through(int64_t count, const float* __restrict__ source, float* __restrict__ sink) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * threads;
  float sum = 0.0f;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * threads + threadIdx.x; i < count; i += stride) {
    const Vec<float, 4> part = load<4>(source + 4 * i);
#pragma unroll
    for (int e = 0; e < 4; ++e) sum += part[e];
  }
  if (sum == -1.0f) *sink = sum;  // this only keeps the loads alive
}
