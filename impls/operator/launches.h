// What both extensions share: a plan's launches, the buffers that its kernels write beside the result, and the order of
// calls on several streams. The driver is found at run time, so that g++ alone compiles this.
#pragma once
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace spmark {
constexpr char kPlan[] = "spmark.launches.plan";  // of capsules: a Plan behind a std::shared_ptr
constexpr size_t kMostWords = 128;                // arguments of a kernel
constexpr size_t kMostSources = 16;               // operands, result and buffers
constexpr uintptr_t kAlignment = 16;

// ---- the driver ----
struct LaunchAttribute {  // CUlaunchAttribute
  int id;
  char pad[4];
  int value;
  char rest[60];
};
static_assert(sizeof(LaunchAttribute) == 72);
struct LaunchConfig {  // CUlaunchConfig
  unsigned grid[3], block[3], shared_bytes;
  void* stream;
  const LaunchAttribute* attributes;
  unsigned num_attributes;
};
constexpr LaunchAttribute kOverlap{6, {}, 1, {}};  // programmatic stream serialization

struct Symbol {
  void* library;
  const char* name;
  template <typename F>
  operator F*() const {
    auto* function = reinterpret_cast<F*>(dlsym(library, name));
    if (!function) throw std::runtime_error(std::string("expected the function ") + name + ", found none");
    return function;
  }
};

struct Driver {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  int (*launch)(const LaunchConfig*, void*, void**, void**) = Symbol{library, "cuLaunchKernelEx"};
  int (*retain_context)(void**, int) = Symbol{library, "cuDevicePrimaryCtxRetain"};
  int (*get_context)(void**) = Symbol{library, "cuCtxGetCurrent"};
  int (*set_context)(void*) = Symbol{library, "cuCtxSetCurrent"};
  int (*create_event)(void**, unsigned) = Symbol{library, "cuEventCreate"};
  int (*destroy_event)(void*) = Symbol{library, "cuEventDestroy_v2"};
  int (*record)(void*, void*) = Symbol{library, "cuEventRecord"};
  int (*wait)(void*, void*, unsigned) = Symbol{library, "cuStreamWaitEvent"};
  int (*create_stream)(void**, unsigned) = Symbol{library, "cuStreamCreate"};
  int (*destroy_stream)(void*) = Symbol{library, "cuStreamDestroy_v2"};
  int (*synchronize)(void*) = Symbol{library, "cuStreamSynchronize"};
  int (*allocate)(uint64_t*, size_t) = Symbol{library, "cuMemAlloc_v2"};
  int (*release)(uint64_t) = Symbol{library, "cuMemFree_v2"};
  int (*clear)(uint64_t, unsigned char, size_t, void*) = Symbol{library, "cuMemsetD8Async"};
  int (*capture_info)(void*, int*, uint64_t*, void**, const void**, size_t*) = Symbol{library,
                                                                                      "cuStreamGetCaptureInfo_v2"};
  int (*exchange_mode)(int*) = Symbol{library, "cuThreadExchangeStreamCaptureMode"};
  int (*create_object)(void**, void*, void (*)(void*), unsigned, unsigned) = Symbol{library, "cuUserObjectCreate"};
  int (*keep_object)(void*, void*, unsigned, unsigned) = Symbol{library, "cuGraphRetainUserObject"};
};
inline const Driver& driver() {
  static const Driver opened;
  return opened;
}
inline void check(int status, const char* call) {
  if (status)
    throw std::runtime_error(std::string(call) + ": expected success, found CUDA error " + std::to_string(status));
}

// A GPU's primary context, which PyTorch and CuPy use.
inline void* context_of(int device) {
  static std::mutex lock;
  static std::vector<void*> found;
  std::lock_guard<std::mutex> guard(lock);
  if (found.size() <= size_t(device)) found.resize(device + 1);
  if (!found[device]) check(driver().retain_context(&found[device], device), "cuDevicePrimaryCtxRetain");
  return found[device];
}
// Makes a context current. A thread that had none keeps it, as after any call of CUDA's runtime.
class Current {
public:
  explicit Current(void* context) {
    check(driver().get_context(&before_), "cuCtxGetCurrent");
    if (before_ == context)
      before_ = nullptr;
    else
      check(driver().set_context(context), "cuCtxSetCurrent");
  }
  ~Current() {
    if (before_) driver().set_context(before_);
  }
  Current(const Current&) = delete;

private:
  void* before_ = nullptr;
};
// Lets this thread allocate while a stream captures a graph, which the mode of PyTorch's captures forbids otherwise.
class Relaxed {
public:
  Relaxed() { check(driver().exchange_mode(&mode_), "cuThreadExchangeStreamCaptureMode"); }
  ~Relaxed() { driver().exchange_mode(&mode_); }
  Relaxed(const Relaxed&) = delete;

private:
  int mode_ = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED
};

struct Capture {
  uint64_t id = 0;  // no two captures of a process have the same; 0 where the stream captures nothing
  void* graph = nullptr;
};
// The legacy default stream captures nothing, and to ask it is an error while another stream captures.
inline bool is_legacy(void* stream) { return reinterpret_cast<uintptr_t>(stream) <= 1; }
inline Capture capture_of(void* stream) {
  Capture found;
  int status = 0;
  if (is_legacy(stream)) return found;
  check(driver().capture_info(stream, &status, &found.id, &found.graph, nullptr, nullptr), "cuStreamGetCaptureInfo");
  return status == 1 ? found : Capture{};  // CU_STREAM_CAPTURE_STATUS_ACTIVE
}

// ---- the order of calls ----
// Calls that may not run side by side take turns: one on another stream than the call before waits there for its end.
// Nothing waits for a call that a graph captures, and it waits for nothing.
class Turns {
public:
  Turns() = default;
  Turns(const Turns&) = delete;
  ~Turns() {
    if (event_) driver().destroy_event(event_);
  }
  std::mutex lock;       // held from before `begin` until after `end`
  bool ordered = false;  // calls without buffers take turns, too: A's values change

  void begin(void* stream) {
    const Place here{stream, reinterpret_cast<uintptr_t>(stream) == 2 ? std::this_thread::get_id() : std::thread::id()};
    if (!event_) check(driver().create_event(&event_, 2), "cuEventCreate");  // CU_EVENT_DISABLE_TIMING
    if (any_ && last_ != here) {
      if (unmarked_) check(driver().record(event_, last_.first), "cuEventRecord");
      unmarked_ = false;
      check(driver().wait(stream, event_, 0), "cuStreamWaitEvent");
    }
    any_ = true;
    last_ = here;
  }
  void end(void* stream) {  // the legacy stream outlives the call: its mark waits until another stream asks
    unmarked_ = is_legacy(stream);
    if (!unmarked_) check(driver().record(event_, stream), "cuEventRecord");
  }

private:
  using Place = std::pair<void*, std::thread::id>;  // handle 2 is another stream in each thread
  void* event_ = nullptr;
  Place last_;
  bool any_ = false, unmarked_ = false;
};

// ---- plans ----
struct Patch {
  uint64_t word, source, offset;
};
struct Launch {
  void* function;
  std::array<unsigned, 3> grid;
  unsigned threads, shared_bytes;
  bool overlap;
  std::vector<uint64_t> words;  // an argument fills the first bytes of its word
  std::vector<Patch> patches;

  void enqueue(const uint64_t* sources, void* stream) const {
    uint64_t held[kMostWords];
    void* pointers[kMostWords];
    for (size_t i = 0; i < words.size(); i++) {
      held[i] = words[i];
      pointers[i] = held + i;
    }
    for (const Patch& patch : patches) held[patch.word] = sources[patch.source] + patch.offset;
    const LaunchConfig config{{grid[0], grid[1], grid[2]},   {threads, 1, 1},  shared_bytes, stream,
                              overlap ? &kOverlap : nullptr, overlap ? 1u : 0u};
    check(driver().launch(&config, function, pointers, nullptr), "cuLaunchKernelEx");
  }
};
struct Buffer {
  uint64_t address;  // of the plan's own
  size_t bytes;
  bool counts;  // a run finds it 0 and leaves it 0
};
// Buffers of one run at a time: the plan's own, or those of a graph.
struct Buffers {
  std::vector<uint64_t> addresses;
  bool failed = false;  // the last run has not made all of its launches, so that counters may not be 0
  uint64_t capture = 0;
  void* stream = nullptr;
  std::atomic<bool> in_graph{false};
};

class Plan {
public:
  Plan(std::vector<Launch> launches, std::vector<uint64_t> bytes, std::vector<Buffer> buffers, int device,
       std::shared_ptr<Turns> turns)
      : device(device), launches_(std::move(launches)), bytes_(std::move(bytes)), buffers_(std::move(buffers)),
        context_(context_of(device)), turns_(std::move(turns)) {
    for (const Buffer& one : buffers_) own_.addresses.push_back(one.address);
  }
  Plan(const Plan&) = delete;
  ~Plan() {
    try {
      const Current current(context_);
      const Relaxed relaxed;
      for (const uint64_t address : allocated_) driver().release(address);
    } catch (const std::exception&) {  // the driver has ended before Python
    }
  }
  const int device;

  size_t count() const { return bytes_.size(); }  // of operands and result
  // Whether the result has memory of its own; addresses are of operands and then of the result, here and below.
  bool apart(const uint64_t* given) const {
    const uint64_t result = given[count() - 1], end = result + bytes_.back();
    for (size_t i = 0; i + 1 < count(); i++)
      if (given[i] < end && result < given[i] + bytes_[i]) return false;
    return true;
  }
  void run(const uint64_t* given, void* stream) {
    const Current current(context_);
    const std::lock_guard<std::mutex> guard(turns_->lock);
    if (buffers_.empty() && !turns_->ordered) return enqueue(given, own_, stream);
    if (const Capture capture = capture_of(stream); capture.id)
      return enqueue(given, buffers_.empty() ? own_ : captured(capture, stream), stream);
    turns_->begin(stream);
    try {
      enqueue(given, own_, stream);
    } catch (...) {
      turns_->end(stream);
      throw;
    }
    turns_->end(stream);
  }
  // Enqueues with other buffers than the plan's own, of the same sizes, with counters of 0.
  void run_in(const std::vector<uint64_t>& buffers, const uint64_t* given, void* stream) {
    const Current current(context_);
    Buffers others;
    others.addresses = buffers;
    enqueue(given, others, stream);
  }

private:
  void enqueue(const uint64_t* given, Buffers& held, void* stream) {
    uint64_t sources[kMostSources];
    std::copy(held.addresses.begin(), held.addresses.end(), std::copy(given, given + count(), sources));
    for (size_t i = 0; held.failed && i < buffers_.size(); i++)
      if (buffers_[i].counts) check(driver().clear(held.addresses[i], 0, buffers_[i].bytes, stream), "cuMemsetD8Async");
    held.failed = true;
    for (const Launch& launch : launches_) launch.enqueue(sources, stream);
    held.failed = false;
  }
  // Gives the buffers of a graph on the stream that captures it; on another stream of it, calls may run side by side.
  Buffers& captured(const Capture& capture, void* stream) {
    for (const auto& one : graphs_)
      if (one->in_graph && one->capture == capture.id && one->stream == stream) return *one;
    std::shared_ptr<Buffers> held;
    for (const auto& one : graphs_)
      if (!one->in_graph) held = one;
    if (!held) graphs_.push_back(held = allocated());
    // The graph tells when it and all that was made of it are gone, from a thread that may call nothing of CUDA.
    auto kept = std::make_unique<std::shared_ptr<Buffers>>(held);
    const auto freed = [](void* object) {
      const std::unique_ptr<std::shared_ptr<Buffers>> held(static_cast<std::shared_ptr<Buffers>*>(object));
      (*held)->in_graph = false;
    };
    void* object = nullptr;  // one reference; CU_USER_OBJECT_NO_DESTRUCTOR_SYNC, CU_GRAPH_USER_OBJECT_MOVE
    check(driver().create_object(&object, kept.get(), freed, 1, 1), "cuUserObjectCreate");
    held->in_graph = true;
    kept.release();
    check(driver().keep_object(capture.graph, object, 1, 1), "cuGraphRetainUserObject");
    held->capture = capture.id;
    held->stream = stream;
    return *held;
  }
  std::shared_ptr<Buffers> allocated() {
    auto made = std::make_shared<Buffers>();
    const Relaxed relaxed;
    void* aside = nullptr;
    check(driver().create_stream(&aside, 1), "cuStreamCreate");  // CU_STREAM_NON_BLOCKING
    int status = 0;
    for (const Buffer& one : buffers_) {
      uint64_t address = 0;
      if (!status) status = driver().allocate(&address, one.bytes);
      if (status) break;
      allocated_.push_back(address);
      made->addresses.push_back(address);
      if (one.counts) status = driver().clear(address, 0, one.bytes, aside);
    }
    if (!status) status = driver().synchronize(aside);
    driver().destroy_stream(aside);
    check(status, "the buffers of a captured graph");
    return made;
  }

  const std::vector<Launch> launches_;
  const std::vector<uint64_t> bytes_;
  const std::vector<Buffer> buffers_;
  void* const context_;
  const std::shared_ptr<Turns> turns_;
  Buffers own_;
  std::vector<std::shared_ptr<Buffers>> graphs_;
  std::vector<uint64_t> allocated_;
};
}  // namespace spmark
