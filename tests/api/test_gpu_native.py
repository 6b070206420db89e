"""Calls through the extension on a GPU: the plan's own results, gradients, streams, threads, graphs, lifetimes."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest
from scipy import sparse

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from spmark.impls.core.errors import CompileError, DeviceError  # noqa: E402 (needs PyTorch)
from spmark.impls.operator import native  # noqa: E402 (needs PyTorch)
from spmark.torch import SparseMatrix  # noqa: E402 (needs PyTorch)

pytestmark = pytest.mark.gpu
WIDTH = 32


@pytest.fixture(autouse=True)
def built() -> None:
    """Wait for the extension."""
    if not torch.cuda.is_available():
        pytest.skip("PyTorch has no CUDA")
    try:
        native.build()
    except (CompileError, DeviceError) as error:
        pytest.skip(f"the extension cannot be built: {error}")
    native.extension()
    while native.extension() is None:
        threading.Event().wait(0.1)


@pytest.fixture
def a() -> Any:
    found = sparse.random(300, 200, 0.05, "csr", dtype=np.float32, random_state=np.random.default_rng(3))
    found.data -= 0.5
    return found


def learned(a: Any, dtype: Any = torch.float32, use: str = "direct") -> SparseMatrix:
    """Give a matrix whose products of both directions were made once."""
    matrix = SparseMatrix(a, dtype=dtype, use=use, device="cuda", width=WIDTH, backward=True)
    b = drawn(a, dtype).requires_grad_()
    matrix.spmm(b).sum().backward()
    return matrix


def drawn(a: Any, dtype: Any = torch.float32) -> Any:
    return torch.randn(a.shape[1], WIDTH, device="cuda").to(dtype)


def direct(matrix: SparseMatrix, b: Any) -> Any:
    return matrix._native.spmm(matrix, b)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("use", ["direct", "rowsplit"])
def test_results_and_gradients(a: Any, dtype: Any, use: str, close: Any) -> None:
    matrix = learned(a, dtype, use)
    name = str(dtype).removeprefix("torch.")
    wide = a.toarray().astype(name).astype(np.float64)  # SciPy has no float16
    for _ in range(3):
        b = drawn(a, dtype).requires_grad_()
        out = direct(matrix, b)
        assert out is not NotImplemented
        assert torch.equal(out, torch.ops.spmark.spmm(None, b, matrix.handle, False))
        close(out.detach().cpu(), wide @ b.detach().cpu().double().numpy(), name)
        weights = torch.randn_like(out)
        (of_b,) = torch.autograd.grad(out, b, weights)
        close(of_b.cpu(), wide.T @ weights.cpu().double().numpy(), name)


def test_plans_with_a_workspace_stay_in_python(a: Any) -> None:
    """Such plans take turns; each gives what the direct one gives."""
    for use in ("sparsetir", "stile"):
        for dtype in (torch.float16, torch.float32):
            matrix, b = learned(a, dtype, use), drawn(a, dtype)
            expected = torch.ops.spmark.spmm(None, b, matrix.handle, False)
            for _ in range(3):
                assert torch.allclose(matrix.spmm(b), expected, rtol=1e-2, atol=1e-2)


def test_second_gradients(a: Any) -> None:
    matrix = learned(a, torch.float64)
    b = drawn(a, torch.float64).requires_grad_()
    assert direct(matrix, b) is not NotImplemented
    assert torch.autograd.gradcheck(matrix.spmm, (b,), fast_mode=True)
    assert torch.autograd.gradgradcheck(matrix.spmm, (b,), fast_mode=True)


def test_streams_and_threads(a: Any) -> None:
    matrix, wrong = learned(a), []

    def work(seed: int) -> None:
        stream = torch.cuda.Stream() if seed % 2 else torch.cuda.current_stream()
        with torch.cuda.stream(stream):
            for _ in range(50):
                b = drawn(a).requires_grad_()
                out = matrix.spmm(b)
                expected = torch.ops.spmark.spmm(None, b, matrix.handle, False)
                (of_b,) = torch.autograd.grad(out.sum(), b)
                if not torch.equal(out, expected) or not bool(torch.isfinite(of_b).all()):
                    wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_two_graphs_replay_at_once(a: Any) -> None:
    matrix, graphs = learned(a), []
    for _ in range(2):
        graph, b = torch.cuda.CUDAGraph(), drawn(a)
        with torch.cuda.graph(graph):
            out = direct(matrix, b)
        graphs.append((graph, b, out, torch.cuda.Stream()))
    for _ in range(20):
        for _, b, _, _ in graphs:
            b.normal_()
        torch.cuda.synchronize()
        for graph, _, _, stream in graphs:
            with torch.cuda.stream(stream):
                graph.replay()
        torch.cuda.synchronize()
        for _, b, out, _ in graphs:
            assert torch.equal(out, matrix.spmm(b))


def test_compiled_programs(a: Any) -> None:
    matrix, b = learned(a), drawn(a).requires_grad_()
    compiled = torch.compile(lambda x: matrix.spmm(x).relu().sum(), fullgraph=True, backend="aot_eager")
    (found,), (expected,) = (torch.autograd.grad(f(b), b) for f in (compiled, lambda x: matrix.spmm(x).relu().sum()))
    assert torch.allclose(found, expected, rtol=1e-4, atol=1e-4)
    arguments = (None, b, matrix.handle, False)
    assert set(torch.library.opcheck(torch.ops.spmark.spmm.default, arguments).values()) == {"SUCCESS"}


def test_what_calls_leave_behind(a: Any) -> None:
    """Matrices that were multiplied are freed, with what their plans hold on the GPU."""
    b = drawn(a).requires_grad_()
    for _ in range(20):
        matrix = learned(a)
        seen = weakref.ref(matrix)
        direct(matrix, b).sum().backward()
        del matrix
        gc.collect()
        assert seen() is None
