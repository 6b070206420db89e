// What the ring tells of a grid to whoever watches it. Nobody does (watcher.cpp), unless other definitions are linked
// in: those of the tests find races.
#pragma once

#include <cstddef>
#include <vector>

namespace simt::watcher {

// ---- the driver calls these ----

// An array that the kernel takes, in the order of its arguments.
void argument(const void* start, size_t bytes, bool written);
// What follows the launch in the request, and what follows its results in the answer.
void hear(const char* start, size_t bytes);
std::vector<char> answer();

// ---- the scheduler and the memory call these ----

// A shared variable; every thread block has one of its own.
void shared(const void* start, size_t bytes);
// A grid of blocks of so many threads, whose stacks no other thread touches.
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
// An access that the ring makes for the thread.
void access(const void* address, size_t bytes, bool writes, const void* place);

}  // namespace simt::watcher
