// A gate that holds a stream until the host has enqueued all runs that are timed, so that no launch waits for the host.

#include <spmark/clock.cuh>

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
