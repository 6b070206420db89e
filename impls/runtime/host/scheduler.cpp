// The scheduler: every thread of a block is a fiber, announced to AddressSanitizer; fibers run until they exit or wait
// at a barrier or a warp collective, whose rules are checked when nothing else can run.
#include "scheduler.hpp"
#include "fiber.hpp"
#include "memory.hpp"
#include "order.hpp"
#include "simt.hpp"
#include "watcher.hpp"

#include <cstdarg>
#include <cstdlib>
#include <string>
#include <vector>

#include <sanitizer/common_interface_defs.h>
#include <sys/mman.h>
#include <unistd.h>

uint3 threadIdx;
uint3 blockIdx;
dim3 blockDim;
dim3 gridDim;

namespace simt {
namespace {

constexpr int kWarp = 32;
constexpr size_t kStackBytes = 256 * 1024;  // touched only as far as a kernel goes; ends in a page that faults
constexpr size_t kGuardBytes = 64 * 1024;   // a whole page wherever pages are up to 64 KiB
constexpr int kExitFault = 3;

enum class State { kReady, kCollective, kBarrier, kExited };

struct Fiber {
  Context context;
  char* stack = nullptr;
  void* fake_stack = nullptr;
  uint3 index{};
  int lane = 0;
  State state = State::kExited;
  // The barrier or collective that the fiber waits at.
  const char* name = nullptr;
  Combine combine = nullptr;
  unsigned mask = 0;
  bool orders_memory = false;
  void* request = nullptr;
  Site site{};
  AsyncCopies copies;
};

// The one launch of this process.
struct Grid {
  const Launch* launch = nullptr;
  std::vector<Fiber> fibers;
  Fiber* running = nullptr;
  Context scheduler;
  const void* scheduler_stack = nullptr;
  size_t scheduler_stack_bytes = 0;
  Order order{0};
} grid;

std::string text(uint3 index) {
  return "(" + std::to_string(index.x) + ", " + std::to_string(index.y) + ", " + std::to_string(index.z) + ")";
}

const char* base_name(const char* path) {
  const char* slash = strrchr(path, '/');
  return slash == nullptr ? path : slash + 1;
}

// The state of a fiber in words, for messages.
std::string status(const Fiber& fiber) {
  std::string out = "thread " + text(fiber.index) + " ";
  if (fiber.state == State::kExited) return out + "has exited";
  if (fiber.state == State::kReady) return out + "runs";
  return out + "waits at " + fiber.name + " (" + base_name(fiber.site.file) + ":" + std::to_string(fiber.site.line) +
         ")";
}

// Compares pointers first, since both are mostly one literal: the sanitizer checks every byte that strcmp reads.
bool same_text(const char* a, const char* b) { return a == b || strcmp(a, b) == 0; }

bool same_place(const Fiber& a, const Fiber& b) {
  return a.state == b.state && a.site.line == b.site.line && same_text(a.name, b.name) &&
         same_text(a.site.file, b.site.file);
}

// ---- switching; each switch is announced, so that the sanitizer knows whose stack is in use ----

void fiber_main() {
  __sanitizer_finish_switch_fiber(nullptr, &grid.scheduler_stack, &grid.scheduler_stack_bytes);
  for (;;) {  // a fiber lives as long as the grid: one run of the kernel for each thread block
    grid.launch->instance->call(grid.launch->arguments);
    Fiber& self = *grid.running;
    self.state = State::kExited;
    watcher::stop_thread();
    __sanitizer_start_switch_fiber(&self.fake_stack, grid.scheduler_stack, grid.scheduler_stack_bytes);
    self.context.switch_to(grid.scheduler);
    __sanitizer_finish_switch_fiber(self.fake_stack, &grid.scheduler_stack, &grid.scheduler_stack_bytes);
  }
}

void resume(Fiber& fiber) {
  grid.running = &fiber;
  threadIdx = fiber.index;
  watcher::run_thread(static_cast<size_t>(&fiber - grid.fibers.data()));
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&fake_stack, fiber.stack, kStackBytes);
  grid.scheduler.switch_to(fiber.context);
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
}

// Goes back to the scheduler until it resumes the running fiber.
void leave(State state) {
  Fiber& self = *grid.running;
  self.state = state;
  watcher::stop_thread();
  __sanitizer_start_switch_fiber(&self.fake_stack, grid.scheduler_stack, grid.scheduler_stack_bytes);
  self.context.switch_to(grid.scheduler);
  __sanitizer_finish_switch_fiber(self.fake_stack, &grid.scheduler_stack, &grid.scheduler_stack_bytes);
}

void wait(State state, const char* name, Combine combine, unsigned mask, bool orders_memory, void* request, Site site) {
  Fiber& self = *grid.running;
  self.name = name;
  self.combine = combine;
  self.mask = mask;
  self.orders_memory = orders_memory;
  self.request = request;
  self.site = site;
  leave(state);
}

// ---- one warp, until all its threads have exited or wait at a barrier ----

// Runs `first`'s collective and resumes its lanes if all have arrived; says whether it did.
bool release(Fiber* warp, int count, Fiber& first) {
  void* requests[kWarp] = {};
  for (int lane = 0; lane < kWarp; ++lane) {
    if ((first.mask >> lane & 1u) == 0) continue;
    if (lane >= count || warp[lane].mask != first.mask || !same_place(warp[lane], first)) return false;
    requests[lane] = warp[lane].request;
  }
  first.combine(requests, first.mask);
  watcher::meet(static_cast<size_t>(warp - grid.fibers.data()), first.mask, first.orders_memory);
  for (int lane = 0; lane < count; ++lane) {
    if ((first.mask >> lane & 1u) != 0) warp[lane].state = State::kReady;
  }
  return true;
}

[[noreturn]] void fault_collective(Fiber* warp, int count, Fiber& waiting) {
  grid.running = &waiting;
  if (count < kWarp && waiting.mask >> count != 0) {
    fault("%s (%s:%d): mask 0x%08x names lanes that the thread block does not have: its last warp has %d", waiting.name,
          base_name(waiting.site.file), waiting.site.line, waiting.mask, count);
  }
  for (int lane = 0; lane < count; ++lane) {
    if ((waiting.mask >> lane & 1u) == 0) continue;
    if (warp[lane].mask != waiting.mask || !same_place(warp[lane], waiting)) {
      fault("%s (%s:%d): lane %d of mask 0x%08x does not arrive: %s", waiting.name, base_name(waiting.site.file),
            waiting.site.line, lane, waiting.mask, status(warp[lane]).c_str());
    }
  }
  fault("%s: the collective was not released", waiting.name);
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
    if (warp[lane].state == State::kCollective && (warp[lane].mask & ((1u << lane) - 1u)) == 0) {
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
bool release_barrier(std::vector<void*>& requests) {
  Fiber* waiting = nullptr;
  for (Fiber& fiber : grid.fibers) {
    if (fiber.state == State::kBarrier && waiting == nullptr) waiting = &fiber;
  }
  if (waiting == nullptr) return false;
  for (Fiber& fiber : grid.fibers) {
    if (!same_place(fiber, *waiting)) {
      grid.running = waiting;
      fault("barrier not reached by all threads: %s, but %s", status(*waiting).c_str(), status(fiber).c_str());
    }
  }
  for (size_t i = 0; i < requests.size(); ++i) requests[i] = grid.fibers[i].request;
  waiting->combine(requests.data(), static_cast<unsigned>(requests.size()));
  watcher::pass_barrier();
  for (Fiber& fiber : grid.fibers) fiber.state = State::kReady;
  return true;
}

void run_block(size_t number) {
  std::vector<void*> requests(grid.fibers.size());
  grid.order.start_block();
  watcher::start_block(number);
  poison_shared();
  for (Fiber& fiber : grid.fibers) {
    fiber.state = State::kReady;
    fiber.copies = {};
  }
  do {
    run_warps();
    grid.order.pass_barrier();
  } while (release_barrier(requests));
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
    const auto linear = static_cast<unsigned>(i);
    fiber.index = {linear % block.x, linear / block.x % block.y, linear / (block.x * block.y)};
    fiber.lane = static_cast<int>(linear % kWarp);
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

uint3 block_index(size_t number) {
  const auto linear = static_cast<unsigned>(number);
  const dim3 blocks = grid.launch->grid;
  return {linear % blocks.x, linear / blocks.x % blocks.y, linear / (blocks.x * blocks.y)};
}

[[noreturn]] void end(const void* address, const char* format, va_list arguments) {
  fprintf(stderr, "spmark: fault: ");
  vfprintf(stderr, format, arguments);
  fprintf(stderr, "\n");
  write_where(stderr, address);
  fflush(stderr);
  _exit(kExitFault);
}

}  // namespace

std::string thread_name(size_t number) { return text(grid.fibers[number].index); }
std::string block_name(size_t number) { return text(block_index(number)); }

void run(const Launch& launch) {
  grid.launch = &launch;
  check_limits(launch);
  blockDim = launch.block;
  gridDim = launch.grid;
  grid.order = Order(launch.order);
  make_dynamic_shared(launch.shared_bytes);
  make_fibers(launch.block);
  const char* const stacks = grid.fibers.front().stack;
  watcher::start_grid(grid.fibers.size(), stacks, static_cast<size_t>(grid.fibers.back().stack - stacks) + kStackBytes);
  const dim3 blocks = launch.grid;
  for (const unsigned number : grid.order.blocks(static_cast<size_t>(blocks.x) * blocks.y * blocks.z)) {
    blockIdx = block_index(number);
    run_block(number);
  }
  grid.running = nullptr;
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

void collective(const char* name, Combine combine, unsigned mask, void* request, Site site, bool orders_memory) {
  if ((mask >> lane() & 1u) == 0) {
    fault("%s (%s:%d): mask 0x%08x does not name the calling lane %d", name, base_name(site.file), site.line, mask,
          lane());
  }
  wait(State::kCollective, name, combine, mask, orders_memory, request, site);
}

void barrier(const char* name, Combine combine, void* request, Site site) {
  wait(State::kBarrier, name, combine, 0, true, request, site);
}

void fault(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  end(nullptr, format, arguments);
}

void fault_at(const void* address, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  end(address, format, arguments);
}

void fence() {
  watcher::fence();
  if (grid.order.drawn()) leave(State::kReady);
}

void start_atomic(const void* address) {
  if (grid.order.drawn()) leave(State::kReady);
  watcher::start_atomic(address);
}

void stop_atomic() { watcher::stop_atomic(); }

void wait_for_previous_grid() { watcher::wait_for_grid_before(); }

int lane() { return grid.running->lane; }

void copy_async(void* shared, const void* global, int bytes, bool valid) {
  grid.running->copies.start(shared, global, bytes, valid, __builtin_return_address(0));
}

void commit_async() { grid.running->copies.commit(); }

void wait_async(int groups) { grid.running->copies.wait(static_cast<size_t>(groups)); }

}  // namespace simt
