// Waiting for the host.
#pragma once

#ifdef SPMARK_HOST
#include <chrono>
#endif

namespace spmark {

// Nanoseconds since some moment, the same for the whole GPU; advances in steps of a microsecond or so.
__device__ __forceinline__ long long time_ns() {
#ifdef SPMARK_HOST
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
#else
  long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
#endif
}

// The present value of a word that the host writes while a kernel runs.
__device__ __forceinline__ int load_now(const int* p) { return *static_cast<const volatile int*>(p); }

}  // namespace spmark
