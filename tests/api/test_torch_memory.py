"""Memory of a backward pass: results and one gathered copy of the values, and nothing of the shape of A."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import sparse

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from spmark.impls.operator.arrays import TorchTensors  # noqa: E402 (needs PyTorch)
from spmark.torch import SparseLinear, SparseMatrix  # noqa: E402 (needs PyTorch)

NODES, WIDTH = 3000, 32


def host_peak_bytes(work: Callable[[], object]) -> int:
    """Give the most that tensors and NumPy's arrays take beyond what is there before, added up."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    tracemalloc.start()
    try:
        with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            work()
            of_numpy = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    changes = [one.nbytes() for one in profile.profiler.kineto_results.events() if one.name() == "[memory]"]
    assert changes, "the profiler saw no tensor"
    return of_numpy + int(np.cumsum([0, *changes]).max())


def backward_bytes(
    matrix: Any, width: int, device: str, peak_bytes: Callable[[Callable[[], object]], int]
) -> tuple[int, int]:
    """Give the peak of SpMM's backward pass for A's values and B, and the bytes of nnz and of both gradients.

    Parameters
    ----------
    matrix : SparseMatrix
        Planned for ``width``, with gradients.
    width : int
        J.
    device : {"cpu", "cuda"}
    peak_bytes : callable
        Gives the most bytes that a call takes beyond what is there before.
    """
    rows, cols = matrix.shape
    b = torch.randn(cols, width, device=device, dtype=matrix.dtype, requires_grad=True)
    values = matrix.values.to(device).requires_grad_()
    gradient = torch.randn(rows, width, device=device, dtype=matrix.dtype)
    matrix.spmm(b, values).backward(gradient)  # the first call finds out where plans keep each value
    b.grad = values.grad = None
    c = matrix.spmm(b, values)
    peak = peak_bytes(lambda: c.backward(gradient))
    outputs = b.grad.nbytes + values.grad.nbytes
    return peak, outputs + matrix.nnz * matrix.dtype.itemsize


def square(nodes: int, density: float) -> Any:
    return sparse.random_array((nodes, nodes), density=density, rng=np.random.default_rng(4), dtype=np.float32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("use", ["scipy_cpu", "numba_cpu"])
def test_a_backward_pass_takes_the_memory_of_its_results(use: str, dtype: Any) -> None:
    a = square(NODES, 0.01)
    matrix = SparseMatrix(a, dtype=dtype, use=use)
    matrix.plan(WIDTH, backward=True, given_values=True)
    peak, needed = backward_bytes(matrix, WIDTH, "cpu", host_peak_bytes)
    assert needed - matrix.nnz * dtype.itemsize <= peak <= 1.5 * needed
    assert 5 * peak < NODES * NODES * dtype.itemsize, "nothing has the shape of A"


def test_what_requires_a_gradient_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TorchTensors, "copied", lambda self, array: pytest.fail("a copy"))
    matrix = SparseMatrix(square(40, 0.1), use="scipy_cpu")
    b, x = torch.randn(40, 4, requires_grad=True), torch.randn(40, 4, requires_grad=True)
    values = matrix.values.requires_grad_()
    matrix.spmm(b, values).backward(torch.randn(40, 4))
    matrix.sddmm(x, b).backward(torch.randn(matrix.nnz))
    assert all(one.grad is not None for one in (b, x, values))


def test_layers_in_a_row_copy_at_the_ends_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer's result is the transpose of a product's, so that the next product takes it as it is."""
    copied: list[tuple[int, ...]] = []
    copy = TorchTensors.copied
    monkeypatch.setattr(TorchTensors, "copied", lambda self, one: copied.append(tuple(one.shape)) or copy(self, one))
    layers = [SparseLinear(square(40, 0.1), use="scipy_cpu") for _ in range(3)]
    net = torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1], torch.nn.GELU(), layers[2])
    for shape in ((8, 40), (2, 4, 40)):
        x = torch.randn(*shape, requires_grad=True)
        y = net(x)
        assert copied == [(40, 8)]
        y.square().sum().backward()
        assert copied == 2 * [(40, 8)], "the input once more, for the gradient of values"
        copied.clear()


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_a_backward_pass_takes_the_memory_of_its_results_on_a_gpu(dtype: Any) -> None:
    import cupy

    class Allocated(cupy.cuda.memory_hook.MemoryHook):
        """Adds up what CuPy allocates."""

        name = "Allocated"
        total = 0

        def malloc_postprocess(self, **facts: Any) -> None:
            self.total += facts["mem_size"]

    def peak_bytes(work: Callable[[], object]) -> int:
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        with Allocated() as of_cupy:
            work()
            torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before + of_cupy.total

    nodes, width = 40_000, 32
    matrix = SparseMatrix(square(nodes, 5e-4), dtype=dtype, device="cuda", budget_s=0)
    matrix.plan(width, backward=True, given_values=True)
    peak, needed = backward_bytes(matrix, width, "cuda", peak_bytes)
    assert needed - matrix.nnz * dtype.itemsize <= peak <= 1.5 * needed
