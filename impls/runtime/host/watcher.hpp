// What the ring tells of a grid to whoever watches it. Nobody does, unless the tests link in what finds races.
#pragma once

#include <cstddef>

namespace simt {

class Watcher {
public:
  // ---- the driver and the memory tell ----

  // An array that the kernel takes, in the order of its arguments.
  virtual void argument(const void* /*start*/, size_t /*bytes*/, bool /*written*/) {}
  // A shared variable; every thread block has one of its own.
  virtual void shared(const void* /*start*/, size_t /*bytes*/) {}

  // ---- the scheduler tells ----

  // A grid of blocks of so many threads, whose stacks no other thread touches.
  virtual void start_grid(size_t /*threads*/, const void* /*stacks*/, size_t /*bytes*/) {}
  virtual void start_block(size_t /*number*/) {}
  virtual void run_thread(size_t /*thread*/) {}  // the thread's accesses follow
  virtual void stop_thread() {}                  // the thread waits or has exited
  virtual void pass_barrier() {}
  // Lanes of the warp that begins at `first_thread` have met at __syncwarp; other collectives do not order memory.
  virtual void meet(size_t /*first_thread*/, unsigned /*mask*/) {}
  virtual void stop_grid() {}

  // ---- the running thread tells ----

  virtual void fence() {}
  virtual void wait_for_grid_before() {}
  virtual void start_atomic(const void* /*address*/) {}
  virtual void stop_atomic() {}
  // An access that the ring makes for the thread.
  virtual void access(const void* /*address*/, size_t /*bytes*/, bool /*writes*/, const void* /*place*/) {}
};

extern Watcher* watcher;  // weak: another definition takes its place

}  // namespace simt
