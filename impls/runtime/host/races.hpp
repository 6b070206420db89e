// Two threads that access the same bytes, one of them to write, must be ordered: by a barrier, by __syncwarp, by a
// fence before an atomic that the other has seen before a fence of its own, or by the wait for the grid before. What is
// not ordered is a fault in whichever order the ring happened to run it.
//
// Every load and store of a kernel comes here (hooks.cpp). Bytes that a kernel only reads (pointers to const) cannot
// race within a grid.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace simt::races {

// A piece of an argument, in bytes from its start.
struct Range {
  uint64_t start;
  uint64_t bytes;
};

// Watches memory that a kernel may write. Shared memory is another one for every thread block.
void watch(const void* start, size_t bytes, bool shared);

// A grid that may still run has written, or read, a piece of memory.
void note_grid_before(const void* start, size_t bytes, bool written);

// What the grid has written, or only read, of watched memory that starts there.
std::vector<Range> touched(const void* start, bool written);

// Whether a thread has waited for the grid before.
bool anyone_waited();

// ---- what the scheduler tells ----

// A grid of blocks of so many threads, whose own memory no other thread touches.
void start_grid(size_t threads, const void* stacks, size_t bytes);
void start_block(size_t number);
void run_thread(size_t thread);  // its accesses follow
void stop_thread();              // it waits or has exited
void pass_barrier();
// Lanes of the warp that begins at a thread have met; a collective other than __syncwarp does not order memory.
void meet(size_t first_thread, unsigned mask, bool orders_memory);

// ---- what the running thread does ----

void fence();
void wait_for_grid_before();
void start_atomic(const void* address);
void stop_atomic();
// An access of the kernel's code, after AddressSanitizer has let it pass.
void instrumented(const void* address, size_t bytes, bool writes, const void* place);
// An access that the ring makes for it.
void access(const void* address, size_t bytes, bool writes, const void* place);

}  // namespace simt::races
