// A plan's launches for compiled operators: on addresses that Python has checked, and on CuPy's arrays, which this
// checks itself. Python's headers suffice.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "launches.h"

namespace {
using spmark::Plan;
using spmark::Turns;
using PlanPtr = std::shared_ptr<Plan>;
using TurnsPtr = std::shared_ptr<Turns>;

struct Raised {};  // Python has an error set
class Object {     // a reference
public:
  Object() = default;
  explicit Object(PyObject* made) : held_(made) {
    if (!held_) throw Raised();
  }
  Object(const Object&) = delete;
  Object(Object&& other) noexcept : held_(std::exchange(other.held_, nullptr)) {}
  Object& operator=(Object&& other) noexcept {
    std::swap(held_, other.held_);
    return *this;
  }
  ~Object() { Py_XDECREF(held_); }
  static Object of(PyObject* borrowed) { return Object(Py_XNewRef(borrowed)); }
  Object operator[](PyObject* name) const { return Object(PyObject_GetAttr(held_, name)); }
  operator PyObject*() const { return held_; }
  PyObject* release() { return std::exchange(held_, nullptr); }

private:
  PyObject* held_ = nullptr;
};
class Unlocked {  // without the GIL, which a thread that waits for a turn must not hold
public:
  Unlocked() : state_(PyEval_SaveThread()) {}
  ~Unlocked() { PyEval_RestoreThread(state_); }
  Unlocked(const Unlocked&) = delete;

private:
  PyThreadState* state_;
};

template <typename T>
T number(PyObject* given) {
  const long long found = PyLong_AsLongLong(given);
  if (found == -1 && PyErr_Occurred()) throw Raised();
  return static_cast<T>(found);
}
void* stream_of(PyObject* handle) { return reinterpret_cast<void*>(number<uintptr_t>(handle)); }
template <typename T>
T* within(PyObject* capsule, const char* name) {
  auto* held = static_cast<T*>(PyCapsule_GetPointer(capsule, name));
  if (!held) throw Raised();
  return held;
}
template <typename T>
PyObject* capsule_of(T* made, const char* name) {
  return PyCapsule_New(made, name, [](PyObject* capsule) {
    delete static_cast<T*>(PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule)));
  });
}
template <PyObject* (*function)(PyObject* const*), Py_ssize_t wanted>
PyObject* guarded(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count != wanted) return PyErr_Format(PyExc_TypeError, "expected %zd arguments, found %zd", wanted, count);
  try {
    return function(args);
  } catch (const Raised&) {
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

// ---- turns ----
constexpr char kTurns[] = "spmark.launcher.turns";

// turns() -> capsule
PyObject* py_turns(PyObject* const*) { return capsule_of(new TurnsPtr(std::make_shared<Turns>()), kTurns); }
// begin(turns, stream): `end` of the same thread follows
PyObject* py_begin(PyObject* const* args) {
  Turns& turns = **within<TurnsPtr>(args[0], kTurns);
  auto* stream = stream_of(args[1]);
  {
    const Unlocked unlocked;
    turns.lock.lock();
  }
  try {
    if (!spmark::capture_of(stream).id) turns.begin(stream);
  } catch (...) {
    turns.lock.unlock();
    throw;
  }
  Py_RETURN_NONE;
}
// end(turns, stream)
PyObject* py_end(PyObject* const* args) {
  Turns& turns = **within<TurnsPtr>(args[0], kTurns);
  const std::lock_guard<std::mutex> guard(turns.lock, std::adopt_lock);
  auto* stream = stream_of(args[1]);
  if (!spmark::capture_of(stream).id) turns.end(stream);
  Py_RETURN_NONE;
}
// order(turns): from now on calls without buffers take turns, too
PyObject* py_order(PyObject* const* args) {
  Turns& turns = **within<TurnsPtr>(args[0], kTurns);
  {
    const Unlocked unlocked;
    const std::lock_guard<std::mutex> guard(turns.lock);
    turns.ordered = true;
  }
  Py_RETURN_NONE;
}

// ---- plans ----
struct Words {  // numbers of 64 bits, one after the other
  const uint64_t *next, *end;
  explicit Words(PyObject* bytes) {
    char* data;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(bytes, &data, &size)) throw Raised();
    next = reinterpret_cast<const uint64_t*>(data);
    end = next + size / sizeof(uint64_t);
  }
  bool left() const { return next < end; }
  uint64_t take() {
    if (!left()) throw std::runtime_error("expected another number of a plan, found none");
    return *next++;
  }
};

std::vector<uint64_t> numbers(PyObject* tuple) {
  std::vector<uint64_t> found(PyTuple_GET_SIZE(tuple));
  for (size_t i = 0; i < found.size(); i++) found[i] = number<uint64_t>(PyTuple_GET_ITEM(tuple, i));
  return found;
}
// plan(turns, device, bytes, launches, buffers) -> capsule. `bytes` are those of operands and result. `launches` and
// `buffers` are rows of numbers: of a launch its function, grid, threads, shared bytes, overlap, words after their
// count, and patches after theirs; of a buffer its address, bytes, and whether it counts.
PyObject* py_plan(PyObject* const* args) {
  auto bytes = numbers(args[2]);
  std::vector<spmark::Launch> launches;
  for (Words words(args[3]); words.left();) {
    spmark::Launch one{};
    one.function = reinterpret_cast<void*>(words.take());
    for (unsigned& side : one.grid) side = words.take();
    one.threads = words.take();
    one.shared_bytes = words.take();
    one.overlap = words.take();
    for (auto left = words.take(); left; left--) one.words.push_back(words.take());
    for (auto left = words.take(); left; left--) {
      const uint64_t word = words.take(), source = words.take();
      one.patches.push_back({word, source, words.take()});
    }
    if (one.words.size() > spmark::kMostWords) throw std::runtime_error("expected at most 128 arguments of a kernel");
    launches.push_back(std::move(one));
  }
  std::vector<spmark::Buffer> buffers;
  for (Words words(args[4]); words.left();) {
    const uint64_t address = words.take(), bytes = words.take();
    buffers.push_back({address, bytes, words.take() != 0});
  }
  if (bytes.empty() || bytes.size() + buffers.size() > spmark::kMostSources)
    throw std::runtime_error("expected at most 16 arrays of a plan");
  const TurnsPtr& turns = *within<TurnsPtr>(args[0], kTurns);
  auto made =
      std::make_shared<Plan>(std::move(launches), std::move(bytes), std::move(buffers), number<int>(args[1]), turns);
  return capsule_of(new PlanPtr(std::move(made)), spmark::kPlan);
}

// run(plan, addresses, stream, buffers) -> whether the result has memory of its own, without which nothing is enqueued.
// Operands and result fit. Where buffers are not None, they take the place of the plan's own.
PyObject* py_run(PyObject* const* args) {
  const PlanPtr plan = *within<PlanPtr>(args[0], spmark::kPlan);
  const bool aside = args[3] != Py_None;
  const auto given = numbers(args[1]), buffers = aside ? numbers(args[3]) : std::vector<uint64_t>();
  auto* stream = stream_of(args[2]);
  if (given.size() != plan->count()) throw std::runtime_error("expected an address of each operand and of the result");
  if (!plan->apart(given.data())) Py_RETURN_FALSE;
  {
    const Unlocked unlocked;
    if (aside)
      plan->run_in(buffers, given.data(), stream);
    else
      plan->run(given.data(), stream);
  }
  Py_RETURN_TRUE;
}

// ---- CuPy's arrays ----
constexpr char kCalls[] = "spmark.launcher.calls";
PyObject *kDtype, *kShape, *kFlags, *kContiguous, *kData, *kPtr, *kDevice;  // names of attributes

struct Array {  // what decides whether an array fits, and where it is
  Object dtype, shape;
  uint64_t address;
  int device;
  bool passable;

  explicit Array(PyObject* found) {
    const Object array = Object::of(found), data = array[kData];
    dtype = array[kDtype];
    shape = array[kShape];
    address = number<uint64_t>(data[kPtr]);
    device = number<int>(data[kDevice]);
    passable = address % spmark::kAlignment == 0 && array[kFlags][kContiguous] == Py_True;
  }
  bool like(const Array& other) const {
    if (!passable || dtype != static_cast<PyObject*>(other.dtype) || device != other.device) return false;
    const int same = PyObject_RichCompareBool(shape, other.shape, Py_EQ);
    if (same < 0) throw Raised();
    return same;
  }
};
struct Fit {  // arrays that a plan takes: operands, then the result
  std::vector<Array> arrays;
  Object plan;  // the capsule
};
struct Calls {
  Object type, stream, empty;  // CuPy's class of arrays, get_current_stream, empty
  std::vector<std::shared_ptr<const Fit>> fits;
};

// calls(type, get_current_stream, empty) -> capsule
PyObject* py_calls(PyObject* const* args) {
  return capsule_of(new Calls{Object::of(args[0]), Object::of(args[1]), Object::of(args[2]), {}}, kCalls);
}
// fit(calls, (*operands, out), plan): from now on arrays like these are the plan's
PyObject* py_fit(PyObject* const* args) {
  auto made = std::make_shared<Fit>();
  made->plan = Object::of(args[2]);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args[1]); i++) made->arrays.emplace_back(PyTuple_GET_ITEM(args[1], i));
  within<Calls>(args[0], kCalls)->fits.push_back(std::move(made));
  Py_RETURN_NONE;
}
// forget(calls): plans have changed
PyObject* py_forget(PyObject* const* args) {
  std::vector<std::shared_ptr<const Fit>> gone;
  gone.swap(within<Calls>(args[0], kCalls)->fits);
  Py_RETURN_NONE;
}
// call(calls, operands, out) -> out, or a new result where out is None, or NotImplemented
PyObject* py_call(PyObject* const* args) {
  const Calls& calls = *within<Calls>(args[0], kCalls);
  PyObject *const operands = args[1], *const out = args[2];
  const auto has_type = [&](PyObject* one) { return reinterpret_cast<PyObject*>(Py_TYPE(one)) == calls.type; };
  if (calls.fits.empty() || !PyTuple_GET_SIZE(operands) || (out != Py_None && !has_type(out))) Py_RETURN_NOTIMPLEMENTED;
  std::vector<Array> arrays;
  arrays.reserve(3);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(operands); i++) {
    PyObject* one = PyTuple_GET_ITEM(operands, i);
    if (!has_type(one)) Py_RETURN_NOTIMPLEMENTED;
    arrays.emplace_back(one);
  }
  if (out != Py_None) arrays.emplace_back(out);
  std::shared_ptr<const Fit> fit;
  for (const auto& one : calls.fits) {
    bool fits = arrays.size() + (out == Py_None) == one->arrays.size();
    for (size_t i = 0; fits && i < arrays.size(); i++) fits = arrays[i].like(one->arrays[i]);
    if (fits) fit = one;
  }
  if (!fit) Py_RETURN_NOTIMPLEMENTED;
  const PlanPtr plan = *within<PlanPtr>(fit->plan, spmark::kPlan);
  void* context = nullptr;  // CuPy's current stream is one of its current GPU
  spmark::check(spmark::driver().get_context(&context), "cuCtxGetCurrent");
  if (context != spmark::context_of(plan->device)) Py_RETURN_NOTIMPLEMENTED;
  auto* stream = stream_of(Object(PyObject_CallNoArgs(calls.stream))[kPtr]);
  Object made;
  if (out == Py_None) {
    if (spmark::capture_of(stream).id) Py_RETURN_NOTIMPLEMENTED;
    const Array& result = fit->arrays.back();
    made = Object(PyObject_CallFunctionObjArgs(calls.empty, static_cast<PyObject*>(result.shape),
                                               static_cast<PyObject*>(result.dtype), nullptr));
    arrays.emplace_back(made);
  } else {
    made = Object::of(out);
  }
  uint64_t addresses[spmark::kMostSources];
  for (size_t i = 0; i < arrays.size(); i++) addresses[i] = arrays[i].address;
  if (!plan->apart(addresses)) Py_RETURN_NOTIMPLEMENTED;
  {
    const Unlocked unlocked;
    plan->run(addresses, stream);
  }
  return made.release();
}

template <PyObject* (*function)(PyObject* const*), Py_ssize_t wanted>
constexpr PyMethodDef method(const char* name) {
  return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(guarded<function, wanted>)), METH_FASTCALL,
          nullptr};
}
PyMethodDef methods[] = {method<py_turns, 0>("turns"), method<py_begin, 2>("begin"),  method<py_end, 2>("end"),
                         method<py_order, 1>("order"), method<py_plan, 5>("plan"),    method<py_run, 4>("run"),
                         method<py_calls, 3>("calls"), method<py_fit, 3>("fit"),      method<py_forget, 1>("forget"),
                         method<py_call, 3>("call"),   {nullptr, nullptr, 0, nullptr}};
PyModuleDef module = {PyModuleDef_HEAD_INIT, "spmark_launcher", nullptr, -1, methods};
}  // namespace
PyMODINIT_FUNC PyInit_spmark_launcher() {
  try {
    spmark::driver();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_ImportError, error.what());
    return nullptr;
  }
  for (const auto& [held, name] : {std::pair{&kDtype, "dtype"},
                                   {&kShape, "shape"},
                                   {&kFlags, "flags"},
                                   {&kContiguous, "c_contiguous"},
                                   {&kData, "data"},
                                   {&kPtr, "ptr"},
                                   {&kDevice, "device_id"}})
    *held = PyUnicode_InternFromString(name);
  return PyModule_Create(&module);
}
