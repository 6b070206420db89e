// CUDA's language on the host, as far as the project's kernels use it: keywords, thread indices, barriers, warp
// collectives and shared memory. A kernel source is compiled behind this header unchanged; every thread is a fiber
// (scheduler.cpp), and errors that a GPU would let pass or hang on are faults here.
//
// Threads change places at barriers and collectives, in drawn orders (order.hpp) at fences and atomics too, and thread
// blocks run one after the other: a kernel that spins until another thread or block writes a flag does not end here.
// A race that shows only in another order is found where somebody watches (watcher.hpp).
//
// Kept light on purpose: it is compiled again with every kernel. ring.py turns what no macro can express into C++:
// `__shared__` declarations, to the classes at the end of this file, and `__noinline__`, a word of GCC's headers too.
#pragma once

#define SPMARK_HOST 1

#include "entry.hpp"
#include "vector_types.hpp"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>

#define __global__
#define __device__
#define __host__
#define __constant__ const
#define __managed__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(bytes) __attribute__((aligned(bytes)))

extern uint3 threadIdx;
extern uint3 blockIdx;
extern dim3 blockDim;
extern dim3 gridDim;
constexpr int warpSize = 32;

namespace simt {

// Where in the source a barrier or a collective stands: threads at different sites do not meet.
struct Site {
  const char* file;
  int line;
};

// Combines the requests of all who meet: of each lane of a warp or of each thread of a block, null for a lane that the
// mask does not name.
using Combine = void (*)(void* const* requests, size_t count);

// Blocks until every lane of the mask has made the same call; the last to arrive runs `combine` once over all requests.
// Where it is null the lanes only meet, as at __syncwarp, and then alone is memory ordered.
void collective(const char* name, Combine combine, unsigned mask, void* request,
                Site site = {__builtin_FILE(), __builtin_LINE()});

// Blocks until every thread of the block has made the same call.
void barrier(const char* name, Combine combine, void* request, Site site);

// Ends the process with a message that also names the kernel, the thread block, the thread and, unless null, the region
// that the address is in.
[[noreturn]] void fault_at(const void* address, const char* format, ...) __attribute__((format(printf, 2, 3)));

template <typename... Arguments>
[[noreturn]] void fault(const char* format, Arguments... arguments) {
  fault_at(nullptr, format, arguments...);
}

// Orders the running thread's accesses: others see its earlier writes before its later ones, and its later reads give
// values at least as new as those of its earlier reads.
void fence();

// The accesses between these two calls are one atomic access.
void start_atomic(const void* address);
void stop_atomic();

// Waits until the grid before, which may still run, has ended.
void wait_for_previous_grid();

// Index of the running thread in its warp.
int lane();

// cp.async: the target holds poison from the start of the copy until the wait for its group.
void copy_async(void* shared, const void* global, int bytes, bool valid);
void commit_async();
void wait_async(int groups);

// A statically sized shared variable: storage of its own with guard bytes on both sides, poisoned before each block.
class StaticShared {
public:
  StaticShared(const char* name, size_t bytes, size_t alignment);
  void* address() const { return address_; }

private:
  void* address_;
};

// Alignment of a shared variable: the largest of its type's and those it asks for.
template <size_t N>
constexpr size_t strictest(const size_t (&alignments)[N]) {
  size_t result = 1;
  for (size_t alignment : alignments) result = alignment > result ? alignment : result;
  return result;
}

// Start of the block's dynamic shared memory: exactly as many bytes as the launch asked for.
void* dynamic_shared();

}  // namespace simt

// ---- barriers ----

namespace simt::detail {

// Gives every participant the bits that any of them has brought.
inline void join_bits(void* const* requests, size_t count) {
  unsigned all = 0;
  for (size_t i = 0; i < count; ++i) all |= requests[i] == nullptr ? 0u : *static_cast<unsigned*>(requests[i]);
  for (size_t i = 0; i < count; ++i) {
    if (requests[i] != nullptr) *static_cast<unsigned*>(requests[i]) = all;
  }
}

}  // namespace simt::detail

#define SIMT_SITE simt::Site site = {__builtin_FILE(), __builtin_LINE()}

inline void __syncthreads(SIMT_SITE) { simt::barrier("__syncthreads", nullptr, nullptr, site); }

inline int __syncthreads_or(int predicate, SIMT_SITE) {
  unsigned bits = predicate != 0;
  simt::barrier("__syncthreads_or", simt::detail::join_bits, &bits, site);
  return static_cast<int>(bits);
}

#include "intrinsics.hpp"
#include "warp.hpp"
