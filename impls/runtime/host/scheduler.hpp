// The scheduler as the driver sees it: runs a grid, and says what runs.
#pragma once

#include "entry.hpp"
#include "vector_types.hpp"

#include <cstdint>
#include <cstdio>

namespace simt {

struct Launch {
  const Instance* instance;
  dim3 grid;
  dim3 block;
  size_t shared_bytes;  // dynamic
  void* const* arguments;
  uint64_t order;  // see Order
};

// Runs all thread blocks, one after the other; returns when the last thread has exited, or ends the process on a fault.
void run(const Launch& launch);

// Writes the kernel, the thread block and the thread that runs, and the named region next to `address` unless null.
void write_where(FILE* stream, const void* address);

}  // namespace simt
