// Regions, shared memory and late copies: see memory.hpp, and simt.hpp for what kernels call.
#include "memory.hpp"
#include "simt.hpp"
#include "watcher.hpp"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include <sanitizer/asan_interface.h>

namespace simt {
namespace {

constexpr size_t kSharedLimit = 227 * 1024;      // of a thread block on sm_90 and sm_100
constexpr size_t kDynamicAlignment = 1024;       // the most that an instruction asks for
constexpr ptrdiff_t kNeighbourhood = 64 * 1024;  // farther away, a region says nothing about an address
constexpr unsigned short kPoison = 0x7fc1;       // NaN as half, twice NaN as float, far out of range as an index

struct Region {
  std::string name;
  char* start;
  size_t bytes;
  bool shared;
};

std::vector<Region> regions;
void* dynamic_start = nullptr;

void poison(void* start, size_t bytes) {
  std::fill_n(static_cast<unsigned short*>(start), bytes / 2, kPoison);
  if (bytes % 2 != 0) static_cast<char*>(start)[bytes - 1] = static_cast<char>(kPoison & 0xff);
}

void add_shared(const std::string& name, void* start, size_t bytes) {
  regions.push_back({name, static_cast<char*>(start), bytes, true});
  size_t total = 0;
  for (const Region& region : regions) total += region.shared ? region.bytes : 0;
  if (total > kSharedLimit) {
    fault("a thread block has at most %zu bytes of shared memory, this one uses %zu", kSharedLimit, total);
  }
  poison(start, bytes);
  watcher->shared(start, bytes);
}

}  // namespace

void name_region(const char* name, const void* start, size_t bytes) {
  regions.push_back({name, static_cast<char*>(const_cast<void*>(start)), bytes, false});
}

void write_region(FILE* stream, const void* address) {
  const Region* nearest = nullptr;
  ptrdiff_t distance = kNeighbourhood;
  const auto* at = static_cast<const char*>(address);
  for (const Region& region : regions) {
    const ptrdiff_t before = region.start - at;
    const ptrdiff_t after = at - (region.start + region.bytes);
    const ptrdiff_t away = before > 0 ? before : after >= 0 ? after : 0;
    if (away < distance) {
      distance = away;
      nearest = &region;
    }
  }
  if (nearest == nullptr) return;
  const char* side = at < nearest->start                    ? "before the start"
                     : at < nearest->start + nearest->bytes ? "inside"
                                                            : "after the end";
  fprintf(stream, "spmark: the address is %td bytes %s of %s (%zu bytes)\n", distance, side, nearest->name.c_str(),
          nearest->bytes);
}

void make_dynamic_shared(size_t bytes) {
  if (posix_memalign(&dynamic_start, kDynamicAlignment, bytes) != 0) {
    fault("no memory for %zu bytes of dynamic shared memory", bytes);
  }
  add_shared("dynamic shared memory", dynamic_start, bytes);
}

void* dynamic_shared() {
  if (dynamic_start == nullptr) fault("`extern __shared__` is expected inside a function, found at namespace scope");
  return dynamic_start;
}

void poison_shared() {
  for (const Region& region : regions) {
    if (region.shared) poison(region.start, region.bytes);
  }
}

StaticShared::StaticShared(const char* name, size_t bytes, size_t alignment) {
  // A small alignment gets an address that 16 does not divide: the device promises no more, either.
  constexpr size_t kOffset = 8;
  const size_t offset = alignment > kOffset ? 0 : kOffset;
  void* base = nullptr;
  if (posix_memalign(&base, alignment > 16 ? alignment : 16, offset + bytes) != 0) {
    fault("no memory for the shared variable %s", name);
  }
  ASAN_POISON_MEMORY_REGION(base, offset);
  address_ = static_cast<char*>(base) + offset;
  add_shared(std::string("shared variable ") + name, address_, bytes);
}

void AsyncCopies::start(void* target, const void* source, int bytes, bool valid, const void* place) {
  const auto width = static_cast<size_t>(bytes);
  if (reinterpret_cast<uintptr_t>(target) % width != 0 || (valid && reinterpret_cast<uintptr_t>(source) % width != 0)) {
    fault("copy_async: misaligned address: %d bytes from %p to %p", bytes, source, target);
  }
  char probe[16];
  if (valid) memcpy(probe, source, width);  // an illegal source shows here, where the copy is started
  if (valid) watcher->access(source, width, false, place);
  watcher->access(target, width, true, place);
  poison(target, width);
  copies_.push_back({target, source, width, valid, place, group_});
}

void AsyncCopies::wait(size_t groups_left) {
  for (; !copies_.empty() && copies_.front().group + groups_left < group_; copies_.pop_front()) {
    const Copy& copy = copies_.front();
    watcher->access(copy.target, copy.bytes, true, copy.place);  // it lands at any time between start and wait
    if (copy.valid) {
      memcpy(copy.target, copy.source, copy.bytes);
    } else {
      memset(copy.target, 0, copy.bytes);
    }
  }
}

}  // namespace simt
