// Finds races. Two threads that access the same bytes, one of them to write, must be ordered: by a barrier, by
// __syncwarp, by the wait for the grid before, or by fences and an atomic. In the last case one thread makes a fence,
// then an atomic; the other sees this atomic, then makes a fence. Two accesses without an order are a fault, in
// whichever order the ring happened to run them.
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

// Watches memory that a kernel may write. Every thread block has a shared memory of its own.
void watch(const void* start, size_t bytes, bool shared);

// Notes that a grid that may still run has written, or read, a piece of memory.
void note_grid_before(const void* start, size_t bytes, bool written);

// The pieces that the grid has written, or only read, of the watched memory that begins at `start`.
std::vector<Range> touched(const void* start, bool written);

// Whether a thread has waited for the grid before.
bool anyone_waited();

// ---- the scheduler calls these ----

// A grid of blocks of so many threads, whose own memory no other thread touches.
void start_grid(size_t threads, const void* stacks, size_t bytes);
void start_block(size_t number);
void run_thread(size_t thread);  // the thread's accesses follow
void stop_thread();              // the thread waits or has exited
void pass_barrier();
// Lanes of the warp that begins at `first_thread` have met; only __syncwarp orders memory, other collectives do not.
void meet(size_t first_thread, unsigned mask, bool orders_memory);

// ---- the running thread calls these ----

void fence();
void wait_for_grid_before();
void start_atomic(const void* address);
void stop_atomic();
// An access of the kernel's code, after AddressSanitizer has let it pass.
void instrumented(const void* address, size_t bytes, bool writes, const void* place);
// An access that the ring makes for the running thread.
void access(const void* address, size_t bytes, bool writes, const void* place);

}  // namespace simt::races
