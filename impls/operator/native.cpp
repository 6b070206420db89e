// A plan's launches in C++, for products of spmark.torch that need nothing else: plain tensors, the matrix's own
// values, a width whose launches are noted. Every other call is Python's. Such products come from SparseMatrix.spmm and
// RelationalMatrix.rgms, and through PyTorch's dispatcher as spmark::spmm and spmark::sddmm.
//
// PyTorch's and Python's headers suffice: PyTorch's current stream is found at run time.
#include "launches.h"

#include <ATen/Context.h>
#include <ATen/DeviceGuard.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>

#include <unordered_map>

namespace {
using at::Tensor;

void* current_stream(at::Device device) {
  if (!device.is_cuda()) return nullptr;
  static int32_t (*const ask)(int32_t, void**) =
      spmark::Symbol{dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD), "aoti_torch_get_current_cuda_stream"};
  void* stream = nullptr;
  TORCH_CHECK(!ask(device.index(), &stream), "expected PyTorch's current stream of GPU ", int(device.index()));
  return stream;
}

// A B, A^T B, X Y^T at A's non-zeros, the sum of A_r X W_r; as Python numbers them.
enum Product { kTimes, kTransposedTimes, kSampled, kRelational };

struct Plan {
  std::shared_ptr<spmark::Plan> made;
  std::vector<std::vector<int64_t>> shapes;  // of operands, then of the result
  at::ScalarType dtype;
  at::Device device;
  bool deterministic;
  py::object keeps;  // Python's plan, which owns arrays and modules

  bool fits(at::TensorList given) const {
    for (size_t i = 0; i < given.size(); i++)
      if (given[i].sizes() != shapes[i] || given[i].scalar_type() != dtype || given[i].device() != device) return false;
    return deterministic || !at::globalContext().deterministicAlgorithms();
  }
  Tensor run(at::TensorList given) const {
    c10::OptionalDeviceGuard guard;
    if (device.is_cuda()) guard.reset_device(device);
    Tensor out = at::empty(shapes.back(), given[0].options().requires_grad(false));
    uint64_t addresses[spmark::kMostSources];
    for (size_t i = 0; i < given.size(); i++) addresses[i] = reinterpret_cast<uint64_t>(given[i].const_data_ptr());
    addresses[given.size()] = reinterpret_cast<uint64_t>(out.mutable_data_ptr());
    made->run(addresses, current_stream(device));
    return out;
  }
};
struct Matrix {
  int64_t handle;  // by which operators of torch.library find Python's matrix
  std::mutex lock;
  std::vector<std::pair<Product, std::shared_ptr<const Plan>>> plans;  // none is ever taken away

  const Plan* find(Product product, at::TensorList given) {
    std::lock_guard<std::mutex> guard(lock);
    for (const auto& [known, plan] : plans)
      if (known == product && plan->fits(given)) return plan.get();
    return nullptr;
  }
};

using MatrixPtr = std::shared_ptr<Matrix>;
class Known {  // matrices by their handles, while they live
public:
  MatrixPtr find(int64_t handle) {
    std::lock_guard<std::mutex> guard(lock_);
    const auto found = held_.find(handle);
    return found == held_.end() ? nullptr : found->second.lock();
  }
  MatrixPtr made(int64_t handle) {
    const MatrixPtr made(new Matrix{handle}, [this](Matrix* matrix) {
      {
        std::lock_guard<std::mutex> guard(lock_);
        held_.erase(matrix->handle);
      }
      delete matrix;
    });
    std::lock_guard<std::mutex> guard(lock_);
    held_[handle] = made;
    return made;
  }

private:
  std::mutex lock_;
  std::unordered_map<int64_t, std::weak_ptr<Matrix>> held_;
};
Known& known() {
  static auto* const held = new Known;  // matrices may outlive what ends with the process
  return *held;
}

// Python's matrix and this module's, for as long as a gradient may ask for them. Made under the GIL alone.
struct Kept : torch::CustomClassHolder {
  PyObject* owner;
  MatrixPtr matrix;
  Kept(PyObject* o, MatrixPtr m) : owner(Py_NewRef(o)), matrix(std::move(m)) {}
  ~Kept() override {
    if (!Py_IsInitialized()) return;
    py::gil_scoped_acquire gil;
    Py_DECREF(owner);
    matrix.reset();
  }
};
using KeptPtr = c10::intrusive_ptr<Kept>;

// ---- products ----
// A tensor and a thread without anything between an operator and its kernel: no subclass, mode, transform, tangent.
bool is_plain(const Tensor& b) {
  using c10::DispatchKey;
  static const uint64_t usual =
      c10::DispatchKeySet({DispatchKey::CPU, DispatchKey::CUDA, DispatchKey::AutogradCPU, DispatchKey::AutogradCUDA,
                           DispatchKey::ADInplaceOrView, DispatchKey::AutocastCPU, DispatchKey::AutocastCUDA})
          .raw_repr();
  if (!b.defined() || b.key_set().raw_repr() & ~usual) return false;
  const auto included = c10::impl::tls_local_dispatch_key_set().included_;
  return !(included.raw_repr() & ~c10::default_included_set.raw_repr()) &&
         !c10::impl::TorchDispatchModeTLS::any_modes_set() && b.is_contiguous() &&
         reinterpret_cast<uintptr_t>(b.const_data_ptr()) % spmark::kAlignment == 0 && !b._fw_grad(0).defined();
}
bool needs_gradient(const Tensor& b) { return b.requires_grad() && at::GradMode::is_enabled(); }

using Values = std::optional<Tensor>;
Tensor spmm_in_python(const Values& values, const Tensor& b, int64_t handle, bool transposed) {
  using Signature = Tensor(const Values&, const Tensor&, int64_t, bool);
  static auto op = c10::Dispatcher::singleton().findSchemaOrThrow("spmark::_spmm", "").typed<Signature>();
  return op.call(values, b, handle, transposed);
}
Tensor sddmm_in_python(const Tensor& x, const Tensor& y, int64_t handle) {
  using Signature = Tensor(const Tensor&, const Tensor&, int64_t);
  static auto op = c10::Dispatcher::singleton().findSchemaOrThrow("spmark::_sddmm", "").typed<Signature>();
  return op.call(x, y, handle);
}
Product times(bool transposed) { return transposed ? kTransposedTimes : kTimes; }

struct Spmm : torch::autograd::Function<Spmm> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& b, const KeptPtr& kept,
                        bool transposed, const Plan* plan) {
    // The gradient of B needs A alone: B is not saved.
    context->saved_data["kept"] = at::IValue::make_capsule(kept);
    context->saved_data["transposed"] = transposed;
    return plan->run(b);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients);
};
Tensor multiplied(const Tensor& b, const KeptPtr& kept, bool transposed, const Plan* plan) {
  return needs_gradient(b) ? Spmm::apply(b, kept, transposed, plan) : plan->run(b);
}
torch::autograd::variable_list Spmm::backward(torch::autograd::AutogradContext* context,
                                              torch::autograd::variable_list gradients) {
  if (!gradients[0].defined()) return {Tensor(), Tensor(), Tensor(), Tensor()};
  const auto kept = c10::static_intrusive_pointer_cast<Kept>(context->saved_data["kept"].toCapsule());
  const bool transposed = !context->saved_data["transposed"].toBool();
  const Tensor gradient = gradients[0].contiguous();
  const Plan* plan = is_plain(gradient) ? kept->matrix->find(times(transposed), gradient) : nullptr;
  const Tensor of_b = plan ? multiplied(gradient, kept, transposed, plan)
                           : spmm_in_python(std::nullopt, gradient, kept->matrix->handle, transposed);
  return {of_b, Tensor(), Tensor(), Tensor()};
}

struct Sddmm : torch::autograd::Function<Sddmm> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const Tensor& y,
                        const KeptPtr& kept, const Plan* plan) {
    context->saved_data["kept"] = at::IValue::make_capsule(kept);
    context->save_for_backward({y.requires_grad() ? x : Tensor(), x.requires_grad() ? y : Tensor()});
    return plan->run({x, y});
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    if (!gradients[0].defined()) return {Tensor(), Tensor(), Tensor(), Tensor()};
    const auto kept = c10::static_intrusive_pointer_cast<Kept>(context->saved_data["kept"].toCapsule());
    const auto saved = context->get_saved_variables();
    const Tensor gradient = gradients[0].contiguous();  // values of A's pattern, for the products with Y and X
    const auto of_operand = [&](int at, const Tensor& other) {
      if (!context->needs_input_grad(at)) return Tensor();
      return spmm_in_python(gradient, other, kept->matrix->handle, at == 1);
    };
    return {of_operand(0, saved[1]), of_operand(1, saved[0]), Tensor(), Tensor()};
  }
};

// ---- the dispatcher's side ----
PyObject* owner_of = nullptr;  // Python's function that gives the matrix of a handle

struct Found {
  MatrixPtr matrix;
  const Plan* plan = nullptr;
  Found(Product product, at::TensorList given, int64_t handle) {
    if (!std::all_of(given.begin(), given.end(), is_plain)) return;
    matrix = known().find(handle);
    if (matrix) plan = matrix->find(product, given);
  }
  KeptPtr kept() const {
    py::gil_scoped_acquire gil;
    const py::object owner = py::reinterpret_borrow<py::object>(owner_of)(matrix->handle);
    return c10::make_intrusive<Kept>(owner.ptr(), matrix);
  }
};
Tensor spmm_differentiable(const Values& values, const Tensor& b, int64_t handle, bool transposed) {
  if (values) return spmm_in_python(values, b, handle, transposed);
  const Found found(times(transposed), b, handle);
  if (!found.plan) return spmm_in_python(values, b, handle, transposed);
  return multiplied(b, needs_gradient(b) ? found.kept() : KeptPtr(), transposed, found.plan);
}
Tensor spmm_computed(const Values& values, const Tensor& b, int64_t handle, bool transposed) {
  if (!values)
    if (const Found found(times(transposed), b, handle); found.plan) return found.plan->run(b);
  const at::AutoDispatchBelowAutograd below;
  return spmm_in_python(values, b, handle, transposed);
}
Tensor sddmm_differentiable(const Tensor& x, const Tensor& y, int64_t handle) {
  const Found found(kSampled, {x, y}, handle);
  if (!found.plan) return sddmm_in_python(x, y, handle);
  if (!needs_gradient(x) && !needs_gradient(y)) return found.plan->run({x, y});
  return Sddmm::apply(x, y, found.kept(), found.plan);
}
Tensor sddmm_computed(const Tensor& x, const Tensor& y, int64_t handle) {
  if (const Found found(kSampled, {x, y}, handle); found.plan) return found.plan->run({x, y});
  const at::AutoDispatchBelowAutograd below;
  return sddmm_in_python(x, y, handle);
}

// ---- Python's side ----
constexpr char kMatrix[] = "spmark.native.matrix";

template <typename T>
T& within(PyObject* capsule, const char* name) {
  auto* held = static_cast<T*>(PyCapsule_GetPointer(capsule, name));
  if (!held) throw python_error();
  return *held;
}

// serve(owner_of, backend): from now on spmark::spmm and spmark::sddmm on a backend are this module's; `owner_of` gives
// a handle's matrix
PyObject* py_serve(PyObject*, PyObject* given) {
  HANDLE_TH_ERRORS
  static std::vector<torch::Library> served;
  const auto args = py::reinterpret_borrow<py::tuple>(given);
  owner_of = py::object(args[0]).release().ptr();
  const auto backend = py::cast<std::string>(args[1]);
  const auto serve = [&](const std::string& key, auto* spmm, auto* sddmm) {
    served.emplace_back(torch::Library::IMPL, "spmark", c10::parseDispatchKey(key), __FILE__, __LINE__);
    served.back().impl("spmm", spmm).impl("sddmm", sddmm);
  };
  serve(backend, &spmm_computed, &sddmm_computed);
  serve("Autograd" + backend, &spmm_differentiable, &sddmm_differentiable);
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

// matrix(handle) -> capsule
PyObject* py_matrix(PyObject*, PyObject* handle) {
  HANDLE_TH_ERRORS
  auto made = std::make_unique<MatrixPtr>(known().made(py::cast<int64_t>(py::handle(handle))));
  return PyCapsule_New(made.release(), kMatrix, [](PyObject* capsule) {
    delete static_cast<MatrixPtr*>(PyCapsule_GetPointer(capsule, kMatrix));
  });
  END_HANDLE_TH_ERRORS
}

// add(matrix, product, plan, shapes, like, deterministic, keeps): `plan` is of the launcher's, `shapes` are those of
// operands and result, and `like` has their type and device
PyObject* py_add(PyObject*, PyObject* given) {
  HANDLE_TH_ERRORS
  const auto args = py::reinterpret_borrow<py::tuple>(given);
  auto& matrix = *within<MatrixPtr>(py::object(args[0]).ptr(), kMatrix);
  const auto& made = within<std::shared_ptr<spmark::Plan>>(py::object(args[2]).ptr(), spmark::kPlan);
  const Tensor like = py::cast<Tensor>(args[4]);
  auto plan = std::make_shared<const Plan>(Plan{made, py::cast<std::vector<std::vector<int64_t>>>(args[3]),
                                                like.scalar_type(), like.device(), py::cast<bool>(args[5]), args[6]});
  std::lock_guard<std::mutex> guard(matrix.lock);
  matrix.plans.emplace_back(static_cast<Product>(py::cast<int>(args[1])), std::move(plan));
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

// Whether a call from Python is the extension's, and not a mode's, a subclass's or autocast's.
bool is_usual(PyObject* given) {
  if (!THPVariable_CheckExact(given)) return false;
  const Tensor& tensor = THPVariable_Unpack(given);
  return is_plain(tensor) && !at::impl::torch_function_mode_enabled() &&
         !at::autocast::is_autocast_enabled(tensor.device().type());
}

// spmm(matrix, owner, b) -> A B, or NotImplemented
PyObject* py_spmm(PyObject*, PyObject* const* args, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  TORCH_CHECK(count == 3, "expected matrix, owner, b, found ", count, " arguments");
  if (!is_usual(args[2])) Py_RETURN_NOTIMPLEMENTED;
  const MatrixPtr& matrix = within<MatrixPtr>(args[0], kMatrix);
  const Tensor& b = THPVariable_Unpack(args[2]);
  const Plan* plan = matrix->find(kTimes, b);
  if (!plan) Py_RETURN_NOTIMPLEMENTED;
  KeptPtr kept;
  if (needs_gradient(b)) kept = c10::make_intrusive<Kept>(args[1], matrix);
  Tensor out;
  {
    py::gil_scoped_release released;
    out = multiplied(b, kept, false, plan);
  }
  return THPVariable_Wrap(std::move(out));
  END_HANDLE_TH_ERRORS
}

// rgms(matrix, x, w) -> the sum of A_r X W_r over relations, or NotImplemented, also where a gradient is recorded
PyObject* py_rgms(PyObject*, PyObject* const* args, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  TORCH_CHECK(count == 3, "expected matrix, x, w, found ", count, " arguments");
  if (!is_usual(args[1]) || !is_usual(args[2])) Py_RETURN_NOTIMPLEMENTED;
  const std::array<Tensor, 2> given{THPVariable_Unpack(args[1]), THPVariable_Unpack(args[2])};
  if (std::any_of(given.begin(), given.end(), needs_gradient)) Py_RETURN_NOTIMPLEMENTED;
  const Plan* plan = within<MatrixPtr>(args[0], kMatrix)->find(kRelational, given);
  if (!plan) Py_RETURN_NOTIMPLEMENTED;
  Tensor out;
  {
    py::gil_scoped_release released;
    out = plan->run(given);
  }
  return THPVariable_Wrap(std::move(out));
  END_HANDLE_TH_ERRORS
}

template <PyObject* (*function)(PyObject*, PyObject* const*, Py_ssize_t)>
constexpr PyMethodDef fast(const char* name) {
  return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(function)), METH_FASTCALL, nullptr};
}
PyMethodDef methods[] = {{"serve", py_serve, METH_VARARGS, nullptr},
                         {"matrix", py_matrix, METH_O, nullptr},
                         {"add", py_add, METH_VARARGS, nullptr},
                         fast<py_spmm>("spmm"),
                         fast<py_rgms>("rgms"),
                         {nullptr, nullptr, 0, nullptr}};
PyModuleDef module = {PyModuleDef_HEAD_INIT, "spmark_native", nullptr, -1, methods};
}  // namespace
PyMODINIT_FUNC PyInit_spmark_native() { return PyModule_Create(&module); }
