// The scheduler: every thread of a block is a fiber, announced to AddressSanitizer; fibers run until they exit or wait
// at a barrier or a warp collective, whose rules are checked when nothing else can run.
#include "scheduler.hpp"
#include "fiber.hpp"
#include "memory.hpp"
#include "simt.hpp"

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
  // What it waits for.
  const char* name = nullptr;
  Combine combine = nullptr;
  unsigned mask = 0;
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
  bool block_reversed = false;  // order in which threads run up to the next block's first barrier
  bool reversed = false;        // and up to the next barrier of this one
} grid;

std::string text(uint3 index) {
  return "(" + std::to_string(index.x) + ", " + std::to_string(index.y) + ", " + std::to_string(index.z) + ")";
}

const char* base_name(const char* path) {
  const char* slash = strrchr(path, '/');
  return slash == nullptr ? path : slash + 1;
}

// What a fiber does, for messages.
std::string status(const Fiber& fiber) {
  std::string out = "thread " + text(fiber.index) + " ";
  if (fiber.state == State::kExited) return out + "has exited";
  if (fiber.state == State::kReady) return out + "runs";
  return out + "waits at " + fiber.name + " (" + base_name(fiber.site.file) + ":" + std::to_string(fiber.site.line) +
         ")";
}

// Most often one literal: the sanitizer looks at every byte that strcmp reads.
bool same_text(const char* a, const char* b) { return a == b || strcmp(a, b) == 0; }

bool same_place(const Fiber& a, const Fiber& b) {
  return a.state == b.state && a.site.line == b.site.line && same_text(a.name, b.name) &&
         same_text(a.site.file, b.site.file);
}

// ---- switching; each switch is announced, so that the sanitizer knows whose stack it looks at ----

void fiber_main() {
  __sanitizer_finish_switch_fiber(nullptr, &grid.scheduler_stack, &grid.scheduler_stack_bytes);
  for (;;) {  // a fiber lives as long as the grid: one run of the kernel for each thread block
    grid.launch->instance->call(grid.launch->arguments);
    Fiber& self = *grid.running;
    self.state = State::kExited;
    __sanitizer_start_switch_fiber(&self.fake_stack, grid.scheduler_stack, grid.scheduler_stack_bytes);
    self.context.switch_to(grid.scheduler);
    __sanitizer_finish_switch_fiber(self.fake_stack, &grid.scheduler_stack, &grid.scheduler_stack_bytes);
  }
}

void resume(Fiber& fiber) {
  grid.running = &fiber;
  threadIdx = fiber.index;
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&fake_stack, fiber.stack, kStackBytes);
  grid.scheduler.switch_to(fiber.context);
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
}

void wait(State state, const char* name, Combine combine, unsigned mask, void* request, Site site) {
  Fiber& self = *grid.running;
  self.state = state;
  self.name = name;
  self.combine = combine;
  self.mask = mask;
  self.request = request;
  self.site = site;
  __sanitizer_start_switch_fiber(&self.fake_stack, grid.scheduler_stack, grid.scheduler_stack_bytes);
  self.context.switch_to(grid.scheduler);
  __sanitizer_finish_switch_fiber(self.fake_stack, &grid.scheduler_stack, &grid.scheduler_stack_bytes);
}

// ---- one warp, until all its threads have exited or wait at a barrier ----

// Lets the lanes of `first`'s collective go if all have arrived.
bool release(Fiber* warp, int count, Fiber& first) {
  void* requests[kWarp] = {};
  for (int lane = 0; lane < kWarp; ++lane) {
    if ((first.mask >> lane & 1u) == 0) continue;
    if (lane >= count || warp[lane].mask != first.mask || !same_place(warp[lane], first)) return false;
    requests[lane] = warp[lane].request;
  }
  first.combine(requests, first.mask);
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

void run_warp(Fiber* warp, int count) {
  for (bool progress = true; progress;) {
    progress = false;
    for (int i = 0; i < count; ++i) {
      Fiber& fiber = warp[grid.reversed ? count - 1 - i : i];
      if (fiber.state != State::kReady) continue;
      resume(fiber);
      progress = true;
    }
    for (int lane = 0; lane < count; ++lane) {
      // The lowest lane of a mask looks for the others.
      if (warp[lane].state == State::kCollective && (warp[lane].mask & ((1u << lane) - 1u)) == 0) {
        release(warp, count, warp[lane]);
      }
    }
  }
  for (int lane = 0; lane < count; ++lane) {
    if (warp[lane].state == State::kCollective) fault_collective(warp, count, warp[lane]);
  }
}

// ---- one thread block ----

// All warps have come to a stop: lets them through the barrier if every thread stands at it; false if all have exited.
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
  for (Fiber& fiber : grid.fibers) fiber.state = State::kReady;
  return true;
}

void run_block() {
  const int count = static_cast<int>(grid.fibers.size());
  const int warps = (count + kWarp - 1) / kWarp;
  std::vector<void*> requests(grid.fibers.size());
  // The order of threads changes from block to block and at every barrier, so that a missing barrier shows whichever
  // of the writer and the reader has the lower index.
  grid.reversed = grid.block_reversed;
  grid.block_reversed = !grid.block_reversed;
  poison_shared();
  for (Fiber& fiber : grid.fibers) {
    fiber.state = State::kReady;
    fiber.copies = {};
  }
  do {
    for (int i = 0; i < warps; ++i) {
      const int warp = grid.reversed ? warps - 1 - i : i;
      run_warp(&grid.fibers[static_cast<size_t>(warp) * kWarp], min(kWarp, count - warp * kWarp));
    }
    grid.reversed = !grid.reversed;
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

}  // namespace

void run(const Launch& launch) {
  grid.launch = &launch;
  check_limits(launch);
  blockDim = launch.block;
  gridDim = launch.grid;
  make_dynamic_shared(launch.shared_bytes);
  make_fibers(launch.block);
  for (unsigned z = 0; z < launch.grid.z; ++z) {
    for (unsigned y = 0; y < launch.grid.y; ++y) {
      for (unsigned x = 0; x < launch.grid.x; ++x) {
        blockIdx = {x, y, z};
        run_block();
      }
    }
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

void collective(const char* name, Combine combine, unsigned mask, void* request, Site site) {
  if ((mask >> lane() & 1u) == 0) {
    fault("%s (%s:%d): mask 0x%08x does not name the calling lane %d", name, base_name(site.file), site.line, mask,
          lane());
  }
  wait(State::kCollective, name, combine, mask, request, site);
}

void barrier(const char* name, Combine combine, void* request, Site site) {
  wait(State::kBarrier, name, combine, 0, request, site);
}

void fault(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fprintf(stderr, "spmark: fault: ");
  vfprintf(stderr, format, arguments);
  fprintf(stderr, "\n");
  va_end(arguments);
  write_where(stderr, nullptr);
  fflush(stderr);
  _exit(kExitFault);
}

int lane() { return grid.running->lane; }

void copy_async(void* shared, const void* global, int bytes, bool valid) {
  grid.running->copies.start(shared, global, bytes, valid);
}

void commit_async() { grid.running->copies.commit(); }

void wait_async(int groups) { grid.running->copies.wait(static_cast<size_t>(groups)); }

}  // namespace simt
