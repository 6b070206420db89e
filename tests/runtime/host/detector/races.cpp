// Finds races. Two threads that access the same bytes, one of them to write, must be ordered: by a barrier, by
// __syncwarp, by the wait for the grid before, or by fences and an atomic. In the last case one thread makes a fence,
// then an atomic; the other sees this atomic, then makes a fence. Two accesses without an order are a fault, in
// whichever order the ring happened to run them.
//
// Every load and store of a kernel comes here (hooks.cpp). Bytes that a kernel only reads (pointers to const) cannot
// race within a grid.
//
// Time advances with every event that orders threads. An access keeps its time, and a thread knows up to which time the
// accesses of others are ordered before its own. host_races.py tells what the grid before has accessed, in the file
// that SPMARK_HOST_ACCESSES names, and finds there what the grid has accessed.
#include "scheduler.hpp"
#include "simt.hpp"
#include "watcher.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <sanitizer/common_interface_defs.h>
#include <sys/mman.h>

namespace simt::detector {
namespace {

constexpr size_t kWarp = 32;
constexpr size_t kGranule = 2;  // bytes of the smallest element of a kernel; single bytes are not watched
constexpr uint32_t kGridBefore = 0xffffffffu;

using Time = uint32_t;

struct Access {
  uint32_t block = 0;  // number of the thread block plus 1; 0 for none
  uint16_t thread = 0;
  bool atomic = false;
  Time time = 0;
  uint32_t place = 0;  // of the code: an executable without PIE is within the first 4 GiB
};

// The accesses to a granule since it was last ordered: the last write, and of the reads the two latest.
struct Cell {
  Access write;
  Access reads[2];
};

struct Region {
  const char* start;
  size_t bytes;
  bool shared;
  Cell* cells;
};

struct Argument {
  const char* start;
  size_t bytes;
  bool written;  // by the kernel, which does not take it as const
  bool watched = written;
};

// A piece of an argument, in bytes from its start.
struct Range {
  uint64_t start;
  uint64_t bytes;
};

// An atomic releases the accesses of its thread block that fences cover, to each thread that sees its location changed.
struct Release {
  uint32_t block;
  size_t warp;
  Time lanes[kWarp];
  Time barrier;
  std::shared_ptr<const std::vector<Time>> threads;  // as of the last barrier
};

// Locations of atomics, each with the number of releases that are known of it.
using Known = std::vector<std::pair<const void*, size_t>>;

struct Thread {
  Time seen[kWarp] = {};    // of each of the warp's lanes: earlier accesses are ordered
  Time fenced[kWarp] = {};  // of each: earlier accesses are covered by a fence, too
  Time fenced_barrier = 0;  // earlier accesses of the whole block are covered by a fence
  bool knows_fence = false;
  bool waited = false;
  Known met;       // seen by an atomic
  Known acquired;  // seen by an atomic, with a fence after it
};

// A load whose bytes the same thread may have changed since: where code loads from and stores to one address, the
// compiler checks it once, as a load.
struct Load {
  Region* region;
  const char* at;
  size_t bytes;
  uint32_t place;
  char value[16];
};

std::vector<Argument> arguments;
std::vector<Region> regions;
Region* last_region = nullptr;
std::vector<Thread> threads;
std::vector<Load> loads;
std::unordered_map<const void*, std::vector<Release>> releases;
std::shared_ptr<const std::vector<Time>> block_fenced;
uintptr_t stacks = 0;  // of all threads: only the owner accesses a stack
size_t stack_bytes = 0;
Thread* self = nullptr;  // the running thread; null while the ring itself runs
uint32_t block = 0;
Time now = 1;
Time barrier_time = 0;
bool in_atomic = false;
bool fences_in_block = false;  // a thread of the block has made a fence, or met another's release
bool fenced_since_barrier = false;
bool learnt_since_barrier = false;
bool waited = false;

size_t self_number() { return static_cast<size_t>(self - threads.data()); }

Region* region_of(const char* at) {
  if (last_region != nullptr && static_cast<size_t>(at - last_region->start) < last_region->bytes) return last_region;
  for (Region& region : regions) {
    if (static_cast<size_t>(at - region.start) < region.bytes) return last_region = &region;
  }
  return nullptr;
}

void learn(Known& known, const Known& other) {
  for (const auto& [location, count] : other) {
    bool missing = true;
    for (auto& [mine, mine_count] : known) {
      if (mine != location) continue;
      mine_count = mine_count < count ? count : mine_count;
      missing = false;
    }
    if (missing) known.emplace_back(location, count);
  }
}

void watch(const void* start, size_t bytes, bool shared) {
  if (bytes == 0) return;
  const size_t cells = (bytes + kGranule - 1) / kGranule;
  // Pages of zeros that take memory once they are touched.
  void* made =
      mmap(nullptr, cells * sizeof(Cell), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED) fault_at(start, "no address space to watch %zu bytes", bytes);
  if (regions.capacity() == 0) regions.reserve(256);  // loads point to regions
  if (regions.size() == regions.capacity()) fault_at(start, "more than %zu variables and arguments", regions.size());
  regions.push_back({static_cast<const char*>(start), bytes, shared, static_cast<Cell*>(made)});
}

void note_grid_before(const void* start, size_t bytes, bool written) {
  const Region* region = region_of(static_cast<const char*>(start));
  const auto offset = static_cast<size_t>(static_cast<const char*>(start) - region->start);
  for (size_t granule = offset / kGranule; granule * kGranule < offset + bytes; ++granule) {
    Cell& cell = region->cells[granule];
    (written ? cell.write : cell.reads[0]).block = kGridBefore;
  }
}

// What the grid has written of an argument, or only read; what it takes as const counts as read.
std::vector<Range> touched(const Argument& argument, bool written) {
  if (!argument.written) return written ? std::vector<Range>{} : std::vector<Range>{{0, argument.bytes}};
  std::vector<Range> found;
  const Region* region = region_of(argument.start);
  if (region == nullptr) return found;
  for (size_t at = 0; at < region->bytes; at += kGranule) {
    const Cell& cell = region->cells[at / kGranule];
    const uint32_t by = written ? cell.write.block : cell.reads[0].block;
    if (by == 0 || by == kGridBefore) continue;
    const size_t bytes = region->bytes - at < kGranule ? region->bytes - at : kGranule;
    if (!found.empty() && found.back().start + found.back().bytes == at) {
      found.back().bytes += bytes;
    } else {
      found.push_back({at, bytes});
    }
  }
  return found;
}

// ---- whether an earlier access is ordered before the running thread's access ----

bool released(const Access& earlier) {
  for (const auto& [location, count] : self->acquired) {
    const std::vector<Release>& arrivals = releases[location];
    for (size_t i = 0; i < count; ++i) {
      const Release& release = arrivals[i];
      if (release.block != earlier.block) continue;
      if (earlier.time < release.barrier) return true;
      if (release.threads != nullptr && earlier.time < (*release.threads)[earlier.thread]) return true;
      if (earlier.thread / kWarp == release.warp && earlier.time < release.lanes[earlier.thread % kWarp]) return true;
    }
  }
  return false;
}

bool ordered(const Access& earlier, const Region& region) {
  if (earlier.block == 0) return true;
  if (earlier.block == kGridBefore) return self->waited;
  if (earlier.block == block) {
    const size_t thread = self_number();
    if (earlier.thread == thread || earlier.time < barrier_time) return true;
    if (earlier.thread / kWarp == thread / kWarp && earlier.time < self->seen[earlier.thread % kWarp]) return true;
  } else if (region.shared) {
    return true;
  }
  return released(earlier);
}

std::string place_name(uint32_t place) {
  char text[256] = "";
  __sanitizer_symbolize_pc(reinterpret_cast<void*>(static_cast<uintptr_t>(place)), "%s:%l", text, sizeof(text));
  const char* slash = strrchr(text, '/');
  return slash == nullptr ? text : slash + 1;
}

std::string name(dim3 sizes, size_t number) {
  const auto linear = static_cast<unsigned>(number);
  const unsigned index[] = {linear % sizes.x, linear / sizes.x % sizes.y, linear / (sizes.x * sizes.y)};
  return "(" + std::to_string(index[0]) + ", " + std::to_string(index[1]) + ", " + std::to_string(index[2]) + ")";
}

[[noreturn]] void report(const Access& earlier, const char* what_earlier, const char* what, uint32_t place,
                         const void* at) {
  if (earlier.block == kGridBefore) {
    fault_at(at, "race: %s at %s without a wait for the grid before, which %s it and may still run", what,
             place_name(place).c_str(), earlier.atomic || strcmp(what_earlier, "write") == 0 ? "writes" : "reads");
  }
  const bool same_block = earlier.block == block;
  fault_at(at, "race: %s at %s, and a %s at %s by thread %s of %s before it, with no %s between", what,
           place_name(place).c_str(), what_earlier, place_name(earlier.place).c_str(),
           name(blockDim, earlier.thread).c_str(),
           same_block ? "the same thread block" : ("thread block " + name(gridDim, earlier.block - 1)).c_str(),
           same_block ? "barrier" : "fence, atomic and fence that order them");
}

void check(const Access& earlier, const char* what_earlier, const char* what, uint32_t place, const Region& region,
           const void* at) {
  if (!ordered(earlier, region)) report(earlier, earlier.atomic ? "atomic" : what_earlier, what, place, at);
}

void record(Region& region, const char* at, size_t bytes, bool writes, bool atomic, uint32_t place) {
  const Access mine{block, static_cast<uint16_t>(self_number()), atomic, now, place};
  const char* what = atomic ? "atomic" : writes ? "write" : "read";
  const auto offset = static_cast<size_t>(at - region.start);
  const size_t end = offset + bytes < region.bytes ? offset + bytes : region.bytes;
  for (size_t granule = offset / kGranule; granule * kGranule < end; ++granule) {
    Cell& cell = region.cells[granule];
    const char* here = region.start + granule * kGranule;
    if (!(atomic && cell.write.atomic)) check(cell.write, "write", what, place, region, here);
    if (writes || atomic) {
      for (const Access& read : cell.reads) check(read, "read", what, place, region, here);
      cell.write = mine;
      cell.reads[0] = cell.reads[1] = {};
    } else {
      Access& latest = cell.reads[0];
      if (latest.block != mine.block || latest.thread != mine.thread) cell.reads[1] = latest;
      latest = mine;
    }
  }
}

// Finds the stores among the loads since the running thread could last be interrupted: no other thread ran meanwhile.
void find_stores() {
  for (const Load& load : loads) {
    for (size_t i = 0; i < load.bytes; i += kGranule) {
      const Access& write = load.region->cells[(load.at + i - load.region->start) / kGranule].write;
      const bool known = write.block == block && write.thread == self_number() && write.time == now;
      if (known || memcmp(load.at + i, load.value + i, kGranule) == 0) continue;
      record(*load.region, load.at + i, kGranule, true, false, load.place);
    }
  }
  loads.clear();
}

FILE* open_file(const char* mode) {
  const char* path = getenv("SPMARK_HOST_ACCESSES");
  return path == nullptr ? nullptr : fopen(path, mode);
}

uint64_t number(FILE* told) {
  uint64_t value = 0;
  if (fread(&value, sizeof(value), 1, told) != 1) fault("the accesses of the grid before are cut off");
  return value;
}

// For each argument: what the grid before has read of it, then what it has written.
void hear(FILE* told) {
  for (Argument& argument : arguments) {
    for (const bool written : {false, true}) {
      for (uint64_t count = number(told); count > 0; --count) {
        const uint64_t start = number(told);
        const uint64_t bytes = number(told);
        if (!written && !argument.written) continue;  // both grids read it
        if (!argument.watched) watch(argument.start, argument.bytes, false);
        argument.watched = true;
        note_grid_before(argument.start + start, bytes, written);
      }
    }
  }
  fclose(told);
}

// For each argument: what the grid has read, then what it has written; at the end, whether a thread has waited.
void tell(FILE* told) {
  for (const Argument& argument : arguments) {
    for (const bool written : {false, true}) {
      const std::vector<Range> ranges = touched(argument, written);
      const uint64_t count = ranges.size();
      fwrite(&count, sizeof(count), 1, told);
      fwrite(ranges.data(), sizeof(Range), count, told);
    }
  }
  fputc(waited, told);
  if (fclose(told) != 0) fault("the accesses of the grid could not be told");
}

}  // namespace

void instrumented(const void* address, size_t bytes, bool writes, const void* place) {
  if (self == nullptr || reinterpret_cast<uintptr_t>(address) - stacks < stack_bytes || bytes % kGranule != 0) return;
  const char* at = static_cast<const char*>(address);
  Region* region = region_of(at);
  if (region == nullptr) return;
  const auto code = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(place));
  record(*region, at, bytes, writes, in_atomic, code);
  if (writes || in_atomic) return;
  for (size_t i = 0; i < bytes; i += sizeof(Load::value)) {
    Load load{region, at + i, bytes - i < sizeof(Load::value) ? bytes - i : sizeof(Load::value), code, {}};
    memcpy(load.value, load.at, load.bytes);
    loads.push_back(load);
  }
}

class Races final : public Watcher {
public:
  void shared(const void* start, size_t bytes) override { watch(start, bytes, true); }

  void argument(const void* start, size_t bytes, bool written) override {
    arguments.push_back({static_cast<const char*>(start), bytes, written});
    if (written) watch(start, bytes, false);
  }

  void start_grid(size_t count, const void* stack, size_t bytes) override {
    threads.resize(count);
    stacks = reinterpret_cast<uintptr_t>(stack);
    stack_bytes = bytes;
    if (FILE* told = open_file("rb")) hear(told);
  }

  void stop_grid() override {
    if (FILE* told = open_file("wb")) tell(told);
  }

  void start_block(size_t number) override {
    block = static_cast<uint32_t>(number) + 1;
    barrier_time = ++now;
    block_fenced = nullptr;
    fences_in_block = fenced_since_barrier = learnt_since_barrier = false;
    for (Thread& thread : threads) thread = {};
  }

  void run_thread(size_t thread) override { self = &threads[thread]; }

  void stop_thread() override {
    find_stores();
    self = nullptr;
  }

  void pass_barrier() override {
    barrier_time = ++now;
    if (fenced_since_barrier) {
      auto fenced = std::make_shared<std::vector<Time>>(threads.size());
      for (size_t i = 0; i < threads.size(); ++i) {
        for (size_t lane = 0; lane < kWarp && i / kWarp * kWarp + lane < threads.size(); ++lane) {
          const Time time = threads[i].fenced[lane];
          Time& latest = (*fenced)[i / kWarp * kWarp + lane];
          latest = latest < time ? time : latest;
        }
      }
      block_fenced = std::move(fenced);
    }
    const bool any = fenced_since_barrier || learnt_since_barrier;
    fenced_since_barrier = learnt_since_barrier = false;
    if (!any) return;
    Thread all;
    for (const Thread& thread : threads) {
      all.fenced_barrier = all.fenced_barrier < thread.fenced_barrier ? thread.fenced_barrier : all.fenced_barrier;
      all.knows_fence |= thread.knows_fence;
      all.waited |= thread.waited;
      learn(all.met, thread.met);
      learn(all.acquired, thread.acquired);
    }
    for (Thread& thread : threads) {
      thread.fenced_barrier = all.fenced_barrier;
      thread.knows_fence = all.knows_fence;
      thread.waited = all.waited;
      thread.met = all.met;
      thread.acquired = all.acquired;
    }
  }

  void meet(size_t first_thread, unsigned mask) override {
    ++now;
    if (mask == 0xffffffffu && !fences_in_block) {
      for (size_t lane = 0; lane < kWarp; ++lane) std::fill_n(threads[first_thread + lane].seen, kWarp, now);
      return;
    }
    Thread all;
    const auto each = [&](auto act) {
      for (size_t lane = 0; lane < kWarp; ++lane) {
        if ((mask >> lane & 1u) != 0) act(threads[first_thread + lane], lane);
      }
    };
    each([&](const Thread& thread, size_t) {
      for (size_t lane = 0; lane < kWarp; ++lane) {
        all.seen[lane] = all.seen[lane] < thread.seen[lane] ? thread.seen[lane] : all.seen[lane];
        all.fenced[lane] = all.fenced[lane] < thread.fenced[lane] ? thread.fenced[lane] : all.fenced[lane];
      }
      all.fenced_barrier = all.fenced_barrier < thread.fenced_barrier ? thread.fenced_barrier : all.fenced_barrier;
      all.knows_fence |= thread.knows_fence;
      all.waited |= thread.waited;
      learn(all.met, thread.met);
      learn(all.acquired, thread.acquired);
    });
    each([&](const Thread&, size_t lane) { all.seen[lane] = now; });
    each([&](Thread& thread, size_t) { thread = all; });
  }

  void fence() override {
    find_stores();
    ++now;
    for (size_t lane = 0; lane < kWarp; ++lane) {
      self->fenced[lane] = self->fenced[lane] < self->seen[lane] ? self->seen[lane] : self->fenced[lane];
    }
    self->fenced[self_number() % kWarp] = now;
    self->fenced_barrier = barrier_time;
    self->knows_fence = fences_in_block = fenced_since_barrier = true;
    learn(self->acquired, self->met);
  }

  void wait_for_grid_before() override {
    find_stores();
    self->waited = waited = fences_in_block = learnt_since_barrier = true;
  }

  void start_atomic(const void* address) override {
    find_stores();
    in_atomic = true;
    if (self->knows_fence) {
      Release release{block, self_number() / kWarp, {}, self->fenced_barrier, block_fenced};
      memcpy(release.lanes, self->fenced, sizeof(release.lanes));
      releases[address].push_back(release);
    }
    const auto arrivals = releases.find(address);
    if (arrivals == releases.end()) return;
    learn(self->met, {{address, arrivals->second.size()}});
    fences_in_block = learnt_since_barrier = true;
  }

  void stop_atomic() override { in_atomic = false; }

  void access(const void* address, size_t bytes, bool writes, const void* place) override {
    if (self == nullptr) return;
    find_stores();
    Region* region = region_of(static_cast<const char*>(address));
    if (region == nullptr) return;
    record(*region, static_cast<const char*>(address), bytes, writes, false,
           static_cast<uint32_t>(reinterpret_cast<uintptr_t>(place)));
  }
};

static Races races;

}  // namespace simt::detector

simt::Watcher* simt::watcher = &simt::detector::races;
