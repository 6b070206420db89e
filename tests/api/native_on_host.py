"""Native calls on the host: a driver that calls functions of the host in the place of kernels; run by test_native.py.

A is 2 I, and the plans multiply by 3: which of the two a result shows tells the path that a call took.
"""

import gc
import sys
import weakref
from array import array
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from fake_driver import FakeDriver
from scipy import sparse

from spmark.impls.core.errors import OperandError
from spmark.impls.core.relational import RelationalCsr
from spmark.impls.operator import native
from spmark.impls.operator.extension import LAUNCHER
from spmark.torch import RelationalMatrix, SparseMatrix


class Held:
    """A matrix of spmark.torch with plans on the host."""

    def __init__(self, kernel: int, native: Any) -> None:
        self.native, self.kernel = native, kernel
        self.owner = SparseMatrix(2 * sparse.eye_array(4, dtype="float32", format="csr"))
        self.matrix = native.matrix(self.owner.handle)

    def add(self, transposed: bool, deterministic: bool = True) -> None:
        launch = (self.kernel, 1, 1, 1, 32, 0, 0, 3, 12, 0, 0, 2, 1, 0, 0, 2, 1, 0)
        plan = LAUNCHER.wait().plan(LAUNCHER.wait().turns(), 0, (48, 48), array("Q", launch).tobytes(), b"")
        shapes = ((4, 3), (4, 3))
        self.native.add(self.matrix, int(transposed), plan, shapes, torch.empty(1), deterministic, None)

    def add_sampled(self) -> None:
        """Add a plan whose result is the first column of Y, times 3."""
        launch = (self.kernel, 1, 1, 1, 32, 0, 0, 3, 4, 0, 0, 2, 1, 1, 0, 2, 2, 0)
        plan = LAUNCHER.wait().plan(LAUNCHER.wait().turns(), 0, (16, 16, 16), array("Q", launch).tobytes(), b"")
        self.native.add(self.matrix, 2, plan, ((4, 1), (4, 1), (4,)), torch.empty(1), True, None)

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


def dispatched(held: Held) -> None:
    """Products through PyTorch's dispatcher take plans, too, and Python's kernels where none fits."""
    op, handle, b = torch.ops.spmark.spmm.default, held.owner.handle, torch.randn(4, 3, requires_grad=True)
    assert torch.equal(op(None, b, handle, False), 3 * b)
    assert torch.equal(op(torch.full((4,), 5.0), b, handle, False), 5 * b)
    wide = torch.randn(4, 5)
    assert torch.equal(op(None, wide, handle, False), 2 * wide)
    (of_b,) = torch.autograd.grad(op(None, b, handle, False), b, torch.ones(4, 3), create_graph=True)
    assert torch.equal(of_b, torch.full((4, 3), 3.0))
    with torch.inference_mode():
        assert torch.equal(op(None, b.detach(), handle, False), 3 * b)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(op(None, b, handle, False), 3 * b)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(b.detach(), torch.ones(4, 3))
        primal, tangent = torch.autograd.forward_ad.unpack_dual(op(None, dual, handle, False))
        assert torch.equal(primal, 3 * b)
        assert torch.equal(tangent, torch.full((4, 3), 3.0))
    compiled = torch.compile(lambda x: held.owner.spmm(x).relu().sum(), fullgraph=True, backend="aot_eager")
    (found,) = torch.autograd.grad(compiled(b), b)
    assert torch.equal(found, 3.0 * (b > 0))
    assert set(torch.library.opcheck(op, (None, b, handle, False)).values()) == {"SUCCESS"}
    try:
        op(None, b, handle + 1, False)
    except OperandError as error:
        assert "expected the handle of a living SparseMatrix" in str(error)
    else:
        raise AssertionError


def sampled(held: Held) -> None:
    """SDDMM takes its plan, and its gradients are Python's products with the pattern of A, the identity."""
    op, handle = torch.ops.spmark.sddmm.default, held.owner.handle
    x, y = (torch.randn(4, 1, requires_grad=True) for _ in range(2))
    assert torch.allclose(op(x, y, handle), (x * y)[:, 0])
    held.add_sampled()
    for found in (op(x, y, handle), op(x.detach(), y, handle), held.owner.sddmm(x, y)):
        assert torch.equal(found, 3 * y[:, 0])
    with torch.no_grad():
        assert not op(x, y, handle).requires_grad
    with torch.inference_mode():
        assert torch.equal(op(x.detach(), y.detach(), handle), 3 * y[:, 0])
    weights = torch.randn(4, requires_grad=True)
    of_x, of_y = torch.autograd.grad(op(x, y, handle), (x, y), weights, create_graph=True)
    assert torch.equal(of_x, weights[:, None] * y)
    assert torch.equal(of_y, weights[:, None] * x)
    (of_x,) = torch.autograd.grad(op(x, y.detach(), handle), x, weights)
    assert torch.equal(of_x, weights[:, None] * y)
    (of_weights,) = torch.autograd.grad(of_y.sum(), weights)
    assert torch.equal(of_weights, torch.full((4,), 3.0))  # by the plan
    wide = torch.randn(4, 5)
    for other in (wide, wide[:, :1]):
        assert torch.allclose(op(other, other, handle), (other * other).sum(dim=1))
    assert torch.allclose(op(x.double(), y.double(), handle), (x * y)[:, 0].double())
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x.detach(), torch.ones(4, 1))
        _, tangent = torch.autograd.forward_ad.unpack_dual(op(dual, y.detach(), handle))
        assert torch.equal(tangent, 3 * y[:, 0])
    compiled = torch.compile(lambda x, y: held.owner.sddmm(x, y).relu().sum(), fullgraph=True, backend="aot_eager")
    (found,) = torch.autograd.grad(compiled(x, y), x)
    assert torch.equal(found, y * (y > 0))
    assert set(torch.library.opcheck(op, (x, y, handle)).values()) == {"SUCCESS"}


def relational(held: Held, driver: FakeDriver) -> None:
    """Products with several relations take their plan where no gradient is recorded."""
    nothing = np.arange(0)
    owner = RelationalMatrix(RelationalCsr.of_edges((4, 4), 2, (nothing, nothing, nothing)))
    launch = (held.kernel, 1, 1, 1, 32, 0, 0, 3, 12, 0, 0, 2, 1, 0, 0, 2, 2, 0)
    plan = LAUNCHER.wait().plan(LAUNCHER.wait().turns(), 0, (48, 72, 48), array("Q", launch).tobytes(), b"")
    noted = SimpleNamespace(made=plan, plan=SimpleNamespace(shapes=(((4, 3), (2, 3, 3)), (4, 3)), deterministic=True))
    x, w = torch.randn(4, 3), torch.nn.Parameter(torch.randn(2, 3, 3))
    with torch.no_grad():
        assert owner._native.rgms(x, w) is NotImplemented
        assert not owner.rgms(x, w).any()  # there are no edges
    native.EXTENSION.found = lambda: held.native  # type: ignore[method-assign]
    owner._native.learn({(3, 3): noted}.get, 3, (3, 3), x)
    driver.noted()
    with torch.no_grad():
        assert torch.equal(owner.rgms(x, w), 3 * x)
        assert driver.noted() == ["run0"]
        odd = torch.empty(19)[1:].view(2, 3, 3).zero_()
        for wrong in ((x[:, :2], w), (x.double(), w), (x, w[:1]), (x, w[0]), (x, w.double()), (x, odd), (None, w)):
            assert owner._native.rgms(*wrong) is NotImplemented
        with torch.overrides.BaseTorchFunctionMode():
            assert owner._native.rgms(x, w) is NotImplemented
    with torch.inference_mode():
        assert owner._native.rgms(x, w).is_inference()
    assert owner._native.rgms(x, w) is NotImplemented
    assert torch.equal(owner.rgms(x, w.detach()), 3 * x)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(w.detach(), w.detach())
        assert owner._native.rgms(x, dual) is NotImplemented
    assert owner.rgms(x, w).requires_grad
    assert driver.noted() == ["run0", "run0"]
    gone = weakref.ref(owner)
    del owner
    gc.collect()
    assert gone() is None


def failures(held: Held, driver: FakeDriver) -> None:
    """What the driver refuses is an error, and no order of sums is chosen where a fixed one is asked for."""
    driver.fail(1)
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
    b, handle = torch.randn(4, 3, requires_grad=True), held.owner.handle
    outs = [held(b), torch.ops.spmark.spmm(None, b, handle, False)]
    del held
    while outs:
        gc.collect()
        assert owner() is not None
        (of_b,) = torch.autograd.grad(outs.pop().sum(), b)
        assert torch.equal(of_b, torch.full((4, 3), 2.0))
    gc.collect()
    assert owner() is None


if __name__ == "__main__":
    driver, module = FakeDriver(Path(sys.argv[1])), native.build("CPU")
    kernel = driver.kernel("triple")
    held = Held(kernel, module)
    held.add(False)
    gradients(held)
    refusals(held)
    dispatched(held)
    sampled(held)
    relational(held, driver)
    failures(held, driver)
    lives(kernel, module)
