// The memory that kernels see: regions with names, shared memory that is poisoned before each block, and copies that
// land late.
#pragma once

#include <cstddef>
#include <cstdio>
#include <deque>

namespace simt {

// Names bytes, so that a report of an illegal access can say where the access went.
void name_region(const char* name, const void* start, size_t bytes);

// Writes the named region next to the address, if there is one.
void write_region(FILE* stream, const void* address);

// Makes the dynamic shared memory of every block of the launch; static variables add themselves when first met.
void make_dynamic_shared(size_t bytes);

// Fills all shared memory with patterns that are NaN as float and half, and far out of range as an index.
void poison_shared();

// One thread's cp.async copies: the target holds poison from the start until the wait for the copy's group.
class AsyncCopies {
public:
  void start(void* target, const void* source, int bytes, bool valid, const void* place);
  void commit() { ++group_; }
  void wait(size_t groups_left);

private:
  struct Copy {
    void* target;
    const void* source;
    size_t bytes;
    bool valid;
    const void* place;  // in the code, of the call that started it
    size_t group;
  };
  std::deque<Copy> copies_;  // in order of issue
  size_t group_ = 0;         // that is open
};

}  // namespace simt
