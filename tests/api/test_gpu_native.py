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
cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
from spmark.impls.operator import native  # noqa: E402 (needs PyTorch)
from spmark.torch import SparseMatrix  # noqa: E402 (needs PyTorch)

pytestmark = pytest.mark.gpu
WIDTH = 32


@pytest.fixture(autouse=True)
def built() -> None:
    """Wait for the extension."""
    if not torch.cuda.is_available():
        pytest.skip("PyTorch has no CUDA")
    if native.EXTENSION.wait() is None:
        pytest.skip("the extension cannot be built")


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


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_sampled_products(a: Any, dtype: Any, close: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    matrix, name = SparseMatrix(a, dtype=dtype, device="cuda"), str(dtype).removeprefix("torch.")
    pattern = a.tocoo().tocsr().tocoo()
    for turn in range(3):
        x, y = (torch.randn(rows, WIDTH, device="cuda").to(dtype).requires_grad_() for rows in a.shape)
        out, weights = matrix.sddmm(x, y), torch.randn(a.nnz, device="cuda").to(dtype)
        if not turn:
            monkeypatch.setattr(matrix, "sample", None)  # the extension's from now on
        wide_x, wide_y = (one.detach().cpu().double().numpy() for one in (x, y))
        close(out.detach().cpu(), (wide_x[pattern.row] * wide_y[pattern.col]).sum(axis=1), name)
        of_x, of_y = torch.autograd.grad(out, (x, y), weights)
        given = sparse.csr_array((weights.cpu().double().numpy(), (pattern.row, pattern.col)), a.shape)
        close(of_x.cpu(), given @ wide_y, name)
        close(of_y.cpu(), given.T @ wide_x, name)
    if dtype is torch.float64:
        assert torch.autograd.gradcheck(matrix.sddmm, (x, y), fast_mode=True)
        monkeypatch.undo()  # other widths, which gradgradcheck does not ask for, would be Python's
        assert torch.autograd.gradgradcheck(matrix.sddmm, (x, y), fast_mode=True)
    monkeypatch.undo()
    arguments = (x, y, matrix.handle)
    assert set(torch.library.opcheck(torch.ops.spmark.sddmm.default, arguments).values()) == {"SUCCESS"}


@pytest.fixture
def hubs() -> Any:
    """Give a matrix with rows that several blocks share, which takes a workspace and counters."""
    rng = np.random.default_rng(4)
    found = sparse.random(300, 20_000, 0.001, "lil", dtype=np.float32, random_state=rng)
    found[[3, 100]] = rng.standard_normal((2, 20_000))
    return found.tocsr()


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("use", ["direct", "sparsetir", "stile"])
def test_plans_with_a_workspace(hubs: Any, use: str, dtype: Any) -> None:
    """A plan's launches give what the plan gives, on four streams by turns."""
    matrix = learned(hubs, dtype, use)
    operator = matrix._operators.find(next(kind for kind in matrix._operators.made if not kind.transposed))
    plan = operator.built(WIDTH)
    assert plan.buffers or use != "direct"
    streams = [torch.cuda.Stream() for _ in range(4)]
    given, found = [drawn(hubs, dtype) for _ in range(40)], []
    torch.cuda.synchronize()
    for at, b in enumerate(given):
        with torch.cuda.stream(streams[at % 4]):
            found.append(direct(matrix, b))
    torch.cuda.synchronize()
    for b, out in zip(given, found, strict=True):
        assert out is not NotImplemented
        expected = torch.empty_like(out)
        plan.run((b,), expected)
        if plan.deterministic:
            assert torch.equal(out, expected)
        else:
            assert torch.allclose(out, expected, rtol=1e-2, atol=1e-1)


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


def test_two_graphs_replay_at_once_and_beside_a_call(hubs: Any) -> None:
    """Each has a workspace and counters of its own, also without a call before the capture."""
    matrix, graphs = learned(hubs), []
    for _ in range(2):
        graph, b = torch.cuda.CUDAGraph(), drawn(hubs)
        with torch.cuda.graph(graph):
            out = direct(matrix, b)
        graphs.append((graph, b, out, torch.cuda.Stream()))
    aside, other = torch.cuda.Stream(), drawn(hubs)
    expected = matrix.spmm(other)
    for _ in range(50):
        for _, b, _, _ in graphs:
            b.normal_()
        torch.cuda.synchronize()
        for graph, _, _, stream in graphs:
            with torch.cuda.stream(stream):
                graph.replay()
        with torch.cuda.stream(aside):
            found = direct(matrix, other)
        torch.cuda.synchronize()
        assert torch.equal(found, expected)
        for _, b, out, _ in graphs:
            assert torch.equal(out, matrix.spmm(b))


def test_buffers_of_graphs_are_used_again(hubs: Any) -> None:
    matrix, b, grown = learned(hubs), drawn(hubs), []
    for _ in range(5):  # other processes take and give memory of the GPU, too
        free = []
        for _ in range(20):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                direct(matrix, b)
            graph.replay()
            torch.cuda.synchronize()
            graph.reset()
            del graph
            gc.collect()
            torch.cuda.empty_cache()
            free.append(torch.cuda.mem_get_info()[0])
        grown.append(free[3] - free[-1])
    assert min(grown) <= 4 << 20


def test_gradients_of_values(hubs: Any) -> None:
    """They go through Python, and take B; a product of the matrix's own values does not keep it."""
    matrix, b = learned(hubs), drawn(hubs).requires_grad_()
    values = matrix.values.cuda().requires_grad_()
    out = matrix.spmm(b, values)
    weights = torch.randn_like(out)
    of_b, of_values = torch.autograd.grad(out, (b, values), weights)
    at = hubs.tocoo()
    assert torch.allclose(of_values, (weights[at.row] * b.detach()[at.col]).sum(dim=1), rtol=1e-3, atol=1e-3)
    assert torch.allclose(of_b, torch.autograd.grad(direct(matrix, b), b, weights)[0], rtol=1e-3, atol=1e-3)
    seen = weakref.ref(other := drawn(hubs).mul(1.0).requires_grad_())
    out = direct(matrix, other)
    before = torch.cuda.memory_allocated()
    nbytes = other.nbytes
    other.data = torch.empty(0, device="cuda")
    assert seen() is other
    assert before - torch.cuda.memory_allocated() >= nbytes
    assert out.requires_grad


def test_another_gpu_in_a_new_thread(hubs: Any, close: Any) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("there is one GPU")
    matrix, wrong = SparseMatrix(hubs, use="direct"), []

    def work() -> None:
        for index in (1, 0, 1):
            for _ in range(3):
                b = torch.randn(hubs.shape[1], WIDTH, device=f"cuda:{index}", requires_grad=True)
                out = matrix.spmm(b)
                out.sum().backward()
                if out.device != b.device or b.grad.device != b.device:
                    wrong.append(index)
                close(out.detach().cpu(), hubs.astype(np.float64) @ b.detach().cpu().double().numpy())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not wrong
    b = torch.randn(hubs.shape[1], WIDTH, device="cuda:1")
    assert direct(matrix, b) is not NotImplemented


def test_compiled_programs(a: Any) -> None:
    matrix, b = learned(a), drawn(a).requires_grad_()
    compiled = torch.compile(lambda x: matrix.spmm(x).relu().sum(), fullgraph=True, backend="aot_eager")
    (found,), (expected,) = (torch.autograd.grad(f(b), b) for f in (compiled, lambda x: matrix.spmm(x).relu().sum()))
    assert torch.allclose(found, expected, rtol=1e-4, atol=1e-4)
    arguments = (None, b, matrix.handle, False)
    assert set(torch.library.opcheck(torch.ops.spmark.spmm.default, arguments).values()) == {"SUCCESS"}


def test_what_calls_leave_behind(a: Any) -> None:
    """Matrices that were multiplied are freed, with what their plans hold on the GPU."""
    b, free = drawn(a).requires_grad_(), []
    gc.freeze()  # so that a collection does not walk over all of PyTorch
    for number in range(1000):
        matrix = learned(a)
        seen = weakref.ref(matrix)
        direct(matrix, b).sum().backward()
        del matrix
        gc.collect()
        assert seen() is None
        if number in {200, 999}:
            torch.cuda.empty_cache()
            cupy.get_default_memory_pool().free_all_blocks()
            free.append(torch.cuda.mem_get_info()[0])
    gc.unfreeze()
    assert free[0] - free[1] <= 4 << 20
