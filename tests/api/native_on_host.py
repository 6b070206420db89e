"""Native calls on the host: a driver that calls functions of the host in the place of kernels; run by test_native.py.

A is 2 I, and the plans multiply by 3: which of the two a result shows tells the path that a call took.
"""

import ctypes
import gc
import subprocess
import sys
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from scipy import sparse

from spmark.impls.operator.native import build, native_plan
from spmark.impls.runtime.noting import note
from spmark.impls.runtime.plan import DevicePlan
from spmark.torch import SparseMatrix

DRIVER = """
struct Config { unsigned grid[3], block[3], shared; void* stream; void* attributes; unsigned count; };
extern "C" {
int contexts = 0;
int cuDevicePrimaryCtxRetain(void**, int) { return 0; }
int cuCtxSetCurrent(void*) { contexts++; return 0; }
int cuLaunchKernelEx(const Config* config, void* function, void** parameters, void**) {
  if (config->block[0] == 1024) return 1;
  if (!contexts) return 201;
  reinterpret_cast<void (*)(void**)>(function)(parameters);
  return 0;
}
void triple(void** parameters) {
  const int count = *static_cast<int*>(parameters[0]);
  const float* b = *static_cast<const float**>(parameters[1]);
  float* out = *static_cast<float**>(parameters[2]);
  for (int i = 0; i < count; i++) out[i] = 3 * b[i];
}
}
"""


def fake_driver(folder: Path) -> int:
    """Load the driver under the name of CUDA's, and give the address of the kernel."""
    made = folder / "libcuda.so.1"
    command = ["g++", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-x", "c++", "-", "-o", str(made)]
    subprocess.run(command, input=DRIVER, text=True, check=True)
    library = ctypes.CDLL(str(made), mode=ctypes.RTLD_GLOBAL)
    return ctypes.cast(library.triple, ctypes.c_void_p).value or 0


class Held:
    """A matrix of spmark.torch with plans on the host."""

    def __init__(self, kernel: int, native: Any) -> None:
        self.native, self.kernel = native, kernel
        self.owner = SparseMatrix(2 * sparse.eye_array(4, dtype="float32", format="csr"))
        self.matrix = native.matrix(self.owner.handle)

    def add(self, transposed: bool, threads: int = 32, deterministic: bool = True) -> None:
        launch = (self.kernel, (1, 1, 1), threads, 0, False, [12, 0, 0], [(1, 0, 0), (2, 1, 0)])
        plan = self.native.plan([launch], (4, 4, 3), torch.empty(1), deterministic, None)
        self.native.add(self.matrix, transposed, plan)

    def __call__(self, b: torch.Tensor) -> Any:
        return self.native.spmm(self.matrix, self.owner, b)


def gradients(held: Held) -> None:
    """Through plans where they are, through Python where they are not, and twice."""
    b = torch.randn(4, 3, requires_grad=True)
    out = held(b)
    assert torch.equal(out, 3 * b)
    assert torch.equal(torch.autograd.grad(out.sum(), b)[0], torch.full((4, 3), 2.0))
    held.add(True)
    out, weights = held(b), torch.randn(4, 3, requires_grad=True)
    (of_b,) = torch.autograd.grad(out, b, weights, create_graph=True)
    assert torch.equal(of_b, 3 * weights)
    assert torch.equal(torch.autograd.grad(of_b.sum(), weights)[0], torch.full((4, 3), 3.0))
    assert torch.equal(torch.autograd.grad(held(b).sum(), b)[0], torch.full((4, 3), 3.0))  # an expanded gradient
    with torch.no_grad():
        assert not held(b).requires_grad
    with torch.inference_mode():
        assert held(b.detach()).is_inference()


def refusals(held: Held) -> None:
    """Calls that are Python's."""
    b = torch.randn(4, 3)
    assert held(b) is not NotImplemented

    class Subclass(torch.Tensor):
        pass

    odd = torch.empty(13)[1:].view(4, 3)
    others = (b[:, :2], b.double(), torch.randn(3, 4).T, odd, b.as_subclass(Subclass), b.to_sparse(), None, b[0])
    for other in others:
        assert held(other) is NotImplemented
    assert held(torch.randn(4, 3, dtype=torch.complex64).imag) is NotImplemented
    with torch.autograd.forward_ad.dual_level():
        assert held(torch.autograd.forward_ad.make_dual(b, b)) is NotImplemented
    with torch.autocast("cpu", torch.bfloat16):
        assert held(b) is NotImplemented
    with torch.overrides.TorchFunctionMode():
        assert held(b) is NotImplemented
    with torch.utils._python_dispatch.TorchDispatchMode():
        assert held(b) is NotImplemented
    seen = []
    torch.func.vmap(lambda x: (seen.append(held(x) is NotImplemented), x)[1])(b.expand(2, 4, 3))
    assert seen == [True]


def failures(held: Held) -> None:
    """What the driver refuses is an error, and no order of sums is chosen where a fixed one is asked for."""
    held.add(False, threads=1024)
    try:
        held(torch.randn(4, 3))
    except RuntimeError as error:
        assert "cuLaunchKernelEx: expected success, found CUDA error 1" in str(error)
    else:
        raise AssertionError
    loose = Held(held.kernel, held.native)
    loose.add(False, deterministic=False)
    assert loose(torch.randn(4, 3)) is not NotImplemented
    torch.use_deterministic_algorithms(True)
    assert loose(torch.randn(4, 3)) is NotImplemented
    torch.use_deterministic_algorithms(False)


def lives(kernel: int, native: Any) -> None:
    """A gradient keeps the matrix, and nothing else does."""
    held = Held(kernel, native)
    held.add(False)
    owner = weakref.ref(held.owner)
    b = torch.randn(4, 3, requires_grad=True)
    out = held(b)
    del held
    gc.collect()
    assert owner() is not None
    out.sum().backward()
    assert torch.equal(b.grad, torch.full((4, 3), 2.0))
    del out
    gc.collect()
    assert owner() is None


class Array:
    """An array of the device, as plans hold it."""

    def __init__(self, held: torch.Tensor) -> None:
        self.held, self.data = held, SimpleNamespace(ptr=held.data_ptr())

    def copy(self) -> torch.Tensor:
        return self.held.clone()

    def ravel(self) -> torch.Tensor:
        return self.held.ravel()


class TriplePlan(DevicePlan):
    """A plan of one launch of the kernel."""

    deterministic = True

    def __init__(self) -> None:
        self._counters = []

    def enqueue(self, operands: Any, out: Any) -> None:
        pass


class Operator:
    """Stands for a compiled operator: notes the launch that the plan makes, beside what a subclass adds."""

    def __init__(self, kernel: int, count: int = 12, factor: int = 3, writes: bool = False) -> None:
        self.function, self.count, self.factor, self.writes = SimpleNamespace(ptr=kernel), count, factor, writes
        self.workspace = torch.zeros(1)

    def built(self, width: int) -> TriplePlan:
        return TriplePlan()

    def __call__(self, b: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        made = torch.empty(4, 3) if out is None else out
        args = (np.int32(self.count), Array(b), Array(made), Array(self.workspace))
        note(self.function, (1, 1, 1), 32, args, 0, False)
        self.workspace += b.sum() if self.writes else 0
        return torch.mul(b, self.factor, out=made)


def plans(kernel: int, native: Any) -> None:
    """A plan is taken where its launches give what it gives, and refused otherwise."""
    like, b = torch.empty(4, 3), torch.randn(4, 3)
    assert torch.equal(native.run(native_plan(native, Operator(kernel), like, 4), b), 3 * b)
    assert native_plan(native, Operator(kernel, factor=2), like, 4) is None  # something besides the launch
    assert native_plan(native, Operator(kernel, count=6), like, 4) is None  # a part of the result is not written
    assert native_plan(native, Operator(kernel, writes=True), like, 4) is None


if __name__ == "__main__":
    kernel, native = fake_driver(Path(sys.argv[1])), build()
    held = Held(kernel, native)
    held.add(False)
    gradients(held)
    refusals(held)
    fresh = Held(kernel, native)
    failures(fresh)
    lives(kernel, native)
    plans(kernel, native)
