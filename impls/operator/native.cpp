// A plan's launches in C++, for products of spmark.torch that need nothing else: a plain tensor, the matrix's own
// values, a width whose launches are noted. Every other call is Python's. Such products come from SparseMatrix.spmm,
// and through PyTorch's dispatcher as spmark::spmm.
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

struct Plan {
  std::shared_ptr<spmark::Plan> made;
  int64_t rows, inner, width;  // of the product: (rows, inner) times (inner, width)
  at::ScalarType dtype;
  at::Device device;
  bool deterministic;
  py::object keeps;  // Python's plan, which owns arrays and modules

  bool fits(const Tensor& b) const {
    return width == b.size(1) && inner == b.size(0) && dtype == b.scalar_type() && device == b.device() &&
           (deterministic || !at::globalContext().deterministicAlgorithms());
  }
  Tensor run(const Tensor& b) const {
    c10::OptionalDeviceGuard guard;
    if (device.is_cuda()) guard.reset_device(device);
    Tensor out = at::empty({rows, width}, b.options().requires_grad(false));
    const uint64_t given[] = {reinterpret_cast<uint64_t>(b.const_data_ptr()),
                              reinterpret_cast<uint64_t>(out.mutable_data_ptr())};
    made->run(given, current_stream(device));
    return out;
  }
};
struct Matrix {
  int64_t handle;  // by which operators of torch.library find Python's matrix
  std::mutex lock;
  std::vector<std::pair<bool, std::shared_ptr<const Plan>>> plans;  // transposed or not; none is ever taken away

  const Plan* find(const Tensor& b, bool transposed) {
    std::lock_guard<std::mutex> guard(lock);
    for (const auto& [side, plan] : plans)
      if (side == transposed && plan->fits(b)) return plan.get();
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
         !c10::impl::TorchDispatchModeTLS::any_modes_set() && b.dim() == 2 && b.is_contiguous() &&
         reinterpret_cast<uintptr_t>(b.const_data_ptr()) % spmark::kAlignment == 0 && !b._fw_grad(0).defined();
}
bool needs_gradient(const Tensor& b) { return b.requires_grad() && at::GradMode::is_enabled(); }

using Values = std::optional<Tensor>;
using Signature = Tensor(const Values&, const Tensor&, int64_t, bool);
Tensor in_python(const Values& values, const Tensor& b, int64_t handle, bool transposed) {
  static auto op = c10::Dispatcher::singleton().findSchemaOrThrow("spmark::_spmm", "").typed<Signature>();
  return op.call(values, b, handle, transposed);
}

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
  const Plan* plan = is_plain(gradient) ? kept->matrix->find(gradient, transposed) : nullptr;
  const Tensor of_b = plan ? multiplied(gradient, kept, transposed, plan)
                           : in_python(std::nullopt, gradient, kept->matrix->handle, transposed);
  return {of_b, Tensor(), Tensor(), Tensor()};
}

// ---- the dispatcher's side ----
PyObject* owner_of = nullptr;  // Python's function that gives the matrix of a handle

struct Found {
  MatrixPtr matrix;
  const Plan* plan = nullptr;
  Found(const Values& values, const Tensor& b, int64_t handle, bool transposed) {
    if (values || !is_plain(b)) return;
    matrix = known().find(handle);
    if (matrix) plan = matrix->find(b, transposed);
  }
};
Tensor differentiable(const Values& values, const Tensor& b, int64_t handle, bool transposed) {
  const Found found(values, b, handle, transposed);
  if (!found.plan) return in_python(values, b, handle, transposed);
  KeptPtr kept;
  if (needs_gradient(b)) {
    py::gil_scoped_acquire gil;
    const py::object owner = py::reinterpret_borrow<py::object>(owner_of)(handle);
    kept = c10::make_intrusive<Kept>(owner.ptr(), found.matrix);
  }
  return multiplied(b, kept, transposed, found.plan);
}
Tensor computed(const Values& values, const Tensor& b, int64_t handle, bool transposed) {
  const Found found(values, b, handle, transposed);
  if (found.plan) return found.plan->run(b);
  const at::AutoDispatchBelowAutograd below;
  return in_python(values, b, handle, transposed);
}

// ---- Python's side ----
constexpr char kMatrix[] = "spmark.native.matrix";

template <typename T>
T& within(PyObject* capsule, const char* name) {
  auto* held = static_cast<T*>(PyCapsule_GetPointer(capsule, name));
  if (!held) throw python_error();
  return *held;
}

// serve(owner_of, backend): from now on spmark::spmm on a backend is this module's; `owner_of` gives a handle's matrix
PyObject* py_serve(PyObject*, PyObject* given) {
  HANDLE_TH_ERRORS
  static std::vector<torch::Library> served;
  const auto args = py::reinterpret_borrow<py::tuple>(given);
  owner_of = py::object(args[0]).release().ptr();
  const auto backend = py::cast<std::string>(args[1]);
  for (const auto& [key, kernel] : {std::pair{backend, &computed}, {"Autograd" + backend, &differentiable}}) {
    served.emplace_back(torch::Library::IMPL, "spmark", c10::parseDispatchKey(key), __FILE__, __LINE__);
    served.back().impl("spmm", kernel);
  }
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

// add(matrix, transposed, plan, (rows, inner, width), like, deterministic, keeps): `plan` is of the launcher's, and
// `like` has the operands' type and device
PyObject* py_add(PyObject*, PyObject* given) {
  HANDLE_TH_ERRORS
  const auto args = py::reinterpret_borrow<py::tuple>(given);
  auto& matrix = *within<MatrixPtr>(py::object(args[0]).ptr(), kMatrix);
  const auto& made = within<std::shared_ptr<spmark::Plan>>(py::object(args[2]).ptr(), spmark::kPlan);
  const auto [rows, inner, width] = py::cast<std::tuple<int64_t, int64_t, int64_t>>(args[3]);
  const Tensor like = py::cast<Tensor>(args[4]);
  auto plan = std::make_shared<const Plan>(
      Plan{made, rows, inner, width, like.scalar_type(), like.device(), py::cast<bool>(args[5]), args[6]});
  std::lock_guard<std::mutex> guard(matrix.lock);
  matrix.plans.emplace_back(py::cast<bool>(args[1]), std::move(plan));
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

// spmm(matrix, owner, b) -> A B, or NotImplemented
PyObject* py_spmm(PyObject*, PyObject* const* args, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  TORCH_CHECK(count == 3, "expected matrix, owner, b, found ", count, " arguments");
  if (!THPVariable_CheckExact(args[2])) Py_RETURN_NOTIMPLEMENTED;
  const MatrixPtr& matrix = within<MatrixPtr>(args[0], kMatrix);
  const Tensor& b = THPVariable_Unpack(args[2]);
  const bool usual =
      is_plain(b) && !at::impl::torch_function_mode_enabled() && !at::autocast::is_autocast_enabled(b.device().type());
  const Plan* plan = usual ? matrix->find(b, false) : nullptr;
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

PyMethodDef methods[] = {
    {"serve", py_serve, METH_VARARGS, nullptr},
    {"matrix", py_matrix, METH_O, nullptr},
    {"add", py_add, METH_VARARGS, nullptr},
    {"spmm", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(py_spmm)), METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr}};
PyModuleDef module = {PyModuleDef_HEAD_INIT, "spmark_native", nullptr, -1, methods};
}  // namespace
PyMODINIT_FUNC PyInit_spmark_native() { return PyModule_Create(&module); }
