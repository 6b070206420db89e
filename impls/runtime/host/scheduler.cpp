// The scheduler: every thread of a block is a fiber. Fibers run until they exit or wait at a barrier or a warp
// collective, whose rules are checked when nothing else can run.
#include "scheduler.hpp"
#include "fiber.hpp"
#include "memory.hpp"
#include "order.hpp"
#include "simt.hpp"
#include "watcher.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstdlib>
#include <string>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

uint3 threadIdx;
uint3 blockIdx;
dim3 blockDim;
dim3 gridDim;

namespace simt {

static Watcher nobody;
__attribute__((weak)) Watcher* watcher = &nobody;

namespace {

constexpr int kWarp = 32;
constexpr size_t kStackBytes = 256 * 1024;  // touched only as far as a kernel goes; ends in a page that faults
constexpr size_t kGuardBytes = 64 * 1024;   // a whole page wherever pages are up to 64 KiB
constexpr int kExitFault = 3;

enum class State { kReady, kCollective, kBarrier, kExited };

// The barrier or collective that a fiber waits at.
struct Meeting {
  const char* name;
  Combine combine;
  unsigned mask;
  void* request;
  Site site;
};

struct Fiber {
  Context context;
  char* stack = nullptr;
  uint3 index{};
  int lane = 0;
  State state = State::kExited;
  Meeting at{};
  AsyncCopies copies;
};

// The one launch of this process.
struct Grid {
  const Launch* launch = nullptr;
  std::vector<Fiber> fibers;
  Fiber* running = nullptr;
  Context scheduler;
  Order order{0};
} grid;

uint3 index_in(dim3 sizes, size_t number) {
  const auto linear = static_cast<unsigned>(number);
  return {linear % sizes.x, linear / sizes.x % sizes.y, linear / (sizes.x * sizes.y)};
}

std::string text(uint3 index) {
  return "(" + std::to_string(index.x) + ", " + std::to_string(index.y) + ", " + std::to_string(index.z) + ")";
}

// The name of a barrier or collective, and its place in the source.
std::string text(const Meeting& at) {
  const char* slash = strrchr(at.site.file, '/');
  return std::string(at.name) + " (" + (slash == nullptr ? at.site.file : slash + 1) + ":" +
         std::to_string(at.site.line) + ")";
}

// The state of a fiber in words, for messages.
std::string status(const Fiber& fiber) {
  const std::string thread = "thread " + text(fiber.index);
  if (fiber.state == State::kExited) return thread + " has exited";
  return thread + " waits at " + text(fiber.at);
}

// Names are compared by their pointers: a kernel is one unit, in which equal literals are one.
bool same_place(const Fiber& a, const Fiber& b) {
  return a.state == b.state && a.at.site.line == b.at.site.line && a.at.name == b.at.name &&
         a.at.site.file == b.at.site.file;
}

// ---- switching; inlined, since the processor foresees no return on a stack that it comes back to ----

// Goes back to the scheduler until it resumes the running fiber.
__attribute__((always_inline)) inline void leave(State state) {
  Fiber& self = *grid.running;
  self.state = state;
  watcher->stop_thread();
  self.context.switch_to(grid.scheduler);
}

void fiber_main() {
  Context::enter(grid.scheduler);
  for (;;) {  // a fiber lives as long as the grid: one run of the kernel for each thread block
    grid.launch->instance->call(grid.launch->arguments);
    leave(State::kExited);
  }
}

void resume(Fiber& fiber) {
  grid.running = &fiber;
  threadIdx = fiber.index;
  watcher->run_thread(static_cast<size_t>(&fiber - grid.fibers.data()));
  grid.scheduler.switch_to(fiber.context);
}

// ---- one warp, until all its threads have exited or wait at a barrier ----

// Whether a lane of the warp has made the same call as another.
bool joins(const Fiber* warp, int count, int lane, const Fiber& other) {
  return lane < count && same_place(warp[lane], other) && warp[lane].at.mask == other.at.mask;
}

// Runs `first`'s collective and resumes its lanes, if all have arrived.
void release(Fiber* warp, int count, const Fiber& first) {
  const Meeting& at = first.at;
  void* requests[kWarp] = {};
  for (int lane = 0; lane < kWarp; ++lane) {
    if ((at.mask >> lane & 1u) == 0) continue;
    if (!joins(warp, count, lane, first)) return;
    requests[lane] = warp[lane].at.request;
  }
  if (at.combine != nullptr) {
    at.combine(requests, kWarp);
  } else {
    watcher->meet(static_cast<size_t>(warp - grid.fibers.data()), at.mask);
  }
  for (int lane = 0; lane < count; ++lane) {
    if ((at.mask >> lane & 1u) != 0) warp[lane].state = State::kReady;
  }
}

[[noreturn]] void fault_collective(const Fiber* warp, int count, Fiber& waiting) {
  grid.running = &waiting;
  const unsigned mask = waiting.at.mask;
  if (static_cast<uint64_t>(mask) >> count != 0) {
    fault("%s: mask 0x%08x names lanes that the thread block does not have: its last warp has %d",
          text(waiting.at).c_str(), mask, count);
  }
  int lane = 0;
  while ((mask >> lane & 1u) == 0 || joins(warp, count, lane, waiting)) ++lane;
  fault("%s: lane %d of mask 0x%08x does not arrive: %s", text(waiting.at).c_str(), lane, mask,
        status(warp[lane]).c_str());
}

[[noreturn]] void fault_mask(const char* name, unsigned mask, Site site) {
  fault("%s: mask 0x%08x does not name the calling lane %d", text({name, nullptr, mask, nullptr, site}).c_str(), mask,
        lane());
}

// Runs each lane that can run once, then releases every collective that is complete; false if no lane could run.
bool run_lanes(Fiber* warp, int count) {
  bool progress = false;
  for (const unsigned lane : grid.order.lanes(static_cast<size_t>(count))) {
    if (warp[lane].state != State::kReady) continue;
    resume(warp[lane]);
    progress = true;
    if (grid.order.turn_ends()) break;
  }
  for (int lane = 0; lane < count; ++lane) {
    // The lowest lane of a mask looks for the others.
    if (warp[lane].state == State::kCollective && (warp[lane].at.mask & ((1u << lane) - 1u)) == 0) {
      release(warp, count, warp[lane]);
    }
  }
  return progress;
}

// ---- one thread block ----

// Runs all warps until their threads have exited or wait at a barrier.
void run_warps() {
  const int count = static_cast<int>(grid.fibers.size());
  const auto warps = static_cast<size_t>((count + kWarp - 1) / kWarp);
  for (bool progress = true; progress;) {
    progress = false;
    for (const unsigned warp : grid.order.warps(warps)) {
      Fiber* const lanes = &grid.fibers[static_cast<size_t>(warp) * kWarp];
      const int here = min(kWarp, count - static_cast<int>(warp) * kWarp);
      while (run_lanes(lanes, here)) {
        progress = true;
        if (grid.order.drawn()) break;  // another warp's turn
      }
    }
  }
  for (size_t first = 0; first < grid.fibers.size(); first += kWarp) {
    const int here = min(kWarp, count - static_cast<int>(first));
    for (int lane = 0; lane < here; ++lane) {
      Fiber& fiber = grid.fibers[first + static_cast<size_t>(lane)];
      if (fiber.state == State::kCollective) fault_collective(&grid.fibers[first], here, fiber);
    }
  }
}

// Called when all warps have stopped: releases the barrier if every thread waits at it; false if all have exited.
bool release_barrier() {
  const auto waiting = std::find_if(grid.fibers.begin(), grid.fibers.end(),
                                    [](const Fiber& fiber) { return fiber.state == State::kBarrier; });
  if (waiting == grid.fibers.end()) return false;
  std::vector<void*> requests;
  for (const Fiber& fiber : grid.fibers) {
    if (!same_place(fiber, *waiting)) {
      grid.running = &*waiting;
      fault("barrier not reached by all threads: %s, but %s", status(*waiting).c_str(), status(fiber).c_str());
    }
    requests.push_back(fiber.at.request);
  }
  if (waiting->at.combine != nullptr) waiting->at.combine(requests.data(), requests.size());
  watcher->pass_barrier();
  for (Fiber& fiber : grid.fibers) fiber.state = State::kReady;
  return true;
}

void run_block(size_t number) {
  blockIdx = index_in(grid.launch->grid, number);
  grid.order.start_block();
  watcher->start_block(number);
  poison_shared();
  for (Fiber& fiber : grid.fibers) {
    fiber.state = State::kReady;
    fiber.copies = {};
  }
  do {
    run_warps();
    grid.order.pass_barrier();
  } while (release_barrier());
}

void make_fibers(dim3 block) {
  grid.fibers.resize(static_cast<size_t>(block.x) * block.y * block.z);
  const size_t stride = kGuardBytes + kStackBytes;
  void* stacks = mmap(nullptr, stride * grid.fibers.size(), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stacks == MAP_FAILED) fault("no memory for the stacks of %zu threads", grid.fibers.size());
  for (size_t i = 0; i < grid.fibers.size(); ++i) {
    Fiber& fiber = grid.fibers[i];
    char* guard = static_cast<char*>(stacks) + i * stride;  // stacks grow down
    mprotect(guard, kGuardBytes, PROT_NONE);
    fiber.stack = guard + kGuardBytes;
    fiber.index = index_in(block, i);
    fiber.lane = static_cast<int>(i % kWarp);
    fiber.context.prepare(fiber.stack, kStackBytes, fiber_main);
  }
}

void check_limits(const Launch& launch) {
  const dim3 block = launch.block;
  const dim3 blocks = launch.grid;
  const size_t threads = static_cast<size_t>(block.x) * block.y * block.z;
  if (threads == 0 || threads > 1024 || block.z > 64) {
    fault("a thread block has 1 to 1024 threads, at most 64 in z, got (%u, %u, %u)", block.x, block.y, block.z);
  }
  if (blocks.x == 0 || blocks.y == 0 || blocks.z == 0 || blocks.x > 0x7fffffffu || blocks.y > 65535 ||
      blocks.z > 65535) {
    fault("a grid has 1 to 2147483647 x 65535 x 65535 thread blocks, got (%u, %u, %u)", blocks.x, blocks.y, blocks.z);
  }
}

}  // namespace

void run(const Launch& launch) {
  grid.launch = &launch;
  check_limits(launch);
  blockDim = launch.block;
  gridDim = launch.grid;
  grid.order = Order(launch.order);
  make_dynamic_shared(launch.shared_bytes);
  make_fibers(launch.block);
  const char* const stacks = grid.fibers.front().stack;
  watcher->start_grid(grid.fibers.size(), stacks, static_cast<size_t>(grid.fibers.back().stack - stacks) + kStackBytes);
  const dim3 blocks = launch.grid;
  for (const unsigned number : grid.order.blocks(static_cast<size_t>(blocks.x) * blocks.y * blocks.z)) {
    run_block(number);
  }
  grid.running = nullptr;
  watcher->stop_grid();
}

void write_where(FILE* stream, const void* address) {
  if (grid.launch != nullptr) fprintf(stream, "spmark: in kernel %s", grid.launch->instance->name);
  if (grid.running != nullptr) {
    fprintf(stream, ", thread block %s, thread %s", text(blockIdx).c_str(), text(grid.running->index).c_str());
  }
  fprintf(stream, "\n");
  if (address != nullptr) write_region(stream, address);
}

// ---- what simt.hpp declares ----

void collective(const char* name, Combine combine, unsigned mask, void* request, Site site) {
  if ((mask >> lane() & 1u) == 0) fault_mask(name, mask, site);
  grid.running->at = {name, combine, mask, request, site};
  leave(State::kCollective);
}

void barrier(const char* name, Combine combine, void* request, Site site) {
  grid.running->at = {name, combine, 0, request, site};
  leave(State::kBarrier);
}

void fault_at(const void* address, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fprintf(stderr, "spmark: fault: ");
  vfprintf(stderr, format, arguments);
  fprintf(stderr, "\n");
  write_where(stderr, address);
  _exit(kExitFault);
}

void fence() {
  watcher->fence();
  if (grid.order.drawn()) leave(State::kReady);
}

void start_atomic(const void* address) {
  if (grid.order.drawn()) leave(State::kReady);
  watcher->start_atomic(address);
}

void stop_atomic() { watcher->stop_atomic(); }

void wait_for_previous_grid() { watcher->wait_for_grid_before(); }

int lane() { return grid.running->lane; }

void copy_async(void* shared, const void* global, int bytes, bool valid) {
  grid.running->copies.start(shared, global, bytes, valid, __builtin_return_address(0));
}

void commit_async() { grid.running->copies.commit(); }

void wait_async(int groups) { grid.running->copies.wait(static_cast<size_t>(groups)); }

}  // namespace simt
