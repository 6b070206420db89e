"""Compiled operators on a GPU: CuPy's and PyTorch's arrays, streams, graphs, new values and files."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import spmark
from spmark.impls.core.errors import BuildError, OperandError, UnsupportedError
from spmark.impls.operator.extension import LAUNCHER

pytestmark = pytest.mark.gpu
WIDTH = 6
NAMES = {"spmm": ("direct", "rowsplit", "sparsetir", "cusparse_best"), "sddmm": ("rowsplit", "dgsparse", "sparsetir")}


@pytest.fixture
def cupy() -> Any:
    return pytest.importorskip("cupy")


@pytest.fixture
def cuda_torch(torch: Any) -> Any:
    if not torch.cuda.is_available():
        pytest.skip("PyTorch has no CUDA")
    return torch


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", [*NAMES["spmm"], "auto"])
def test_spmm_of_cupy(name: str, dtype: str, a: Any, b: np.ndarray, cupy: Any, close: Any) -> None:
    from cupyx.scipy.sparse import csr_matrix

    op = spmark.compile(csr_matrix(sparse.csr_matrix(a)), width=WIDTH, dtype=dtype, use=name)
    assert op.device.kind == "cuda"
    dense = cupy.asarray(b.astype(dtype))
    matrix = a.toarray().astype(dtype).astype(np.float64)
    c = op(dense)
    assert isinstance(c, cupy.ndarray)
    for found in (c, op(dense), op(cupy.asfortranarray(dense)), op(cupy.repeat(dense, 2, 1)[:, ::2])):
        close(found.get(), matrix @ b.astype(dtype), dtype)
    out = cupy.full((40, WIDTH), cupy.nan, dtype)
    assert op(dense, out=out) is out
    close(out.get(), matrix @ b.astype(dtype), dtype)
    host = op(b.astype(dtype))
    assert type(host) is np.ndarray
    close(host, matrix @ b.astype(dtype), dtype)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_a_matrix_on_the_gpu_is_read_there(
    library: str, dtype: str, a: Any, b: np.ndarray, cupy: Any, cuda_torch: Any, close: Any
) -> None:
    """The plan is kept with the matrix, and new values in place count."""
    from spmark.impls.operator.borrowed import operators

    there = LAUNCHER.wait() is not None
    if library == "cupy":
        from cupyx.scipy.sparse import csr_matrix

        if dtype not in ("float32", "float64"):
            pytest.skip("CuPy's sparse matrices are of float32 or float64")
        matrix, dense = csr_matrix(sparse.csr_matrix(a.astype(dtype))), cupy.asarray(b.astype(dtype))
        values = matrix.data
    else:
        kind, parts = getattr(cuda_torch, dtype), [cuda_torch.tensor(one).cuda() for one in (a.indptr, a.indices)]
        values = cuda_torch.tensor(a.data).cuda().to(kind)
        matrix, dense = cuda_torch.sparse_csr_tensor(*parts, values, a.shape), cuda_torch.tensor(b).cuda().to(kind)
    host = (lambda c: c.double().cpu().numpy()) if library == "torch" else (lambda c: c.get())
    count = len(operators._kept)
    for factor in (1, 2, 4):
        close(host(spmark.spmm(matrix, dense)), factor * (a.toarray().astype(np.float64) @ b), dtype)
        values *= 2
        assert (operators.find(matrix, dense.dtype).launches(WIDTH) is not None) == there
    out = dense[:1].repeat(40, 1) if library == "torch" else cupy.empty((40, WIDTH), dtype)
    assert spmark.spmm(matrix, dense, out=out) is out
    close(host(out), 8 * (a.toarray().astype(np.float64) @ b), dtype)
    assert len(operators._kept) == count + 1
    del matrix
    assert len(operators._kept) == count


@pytest.mark.parametrize("width", [WIDTH, 32])
def test_long_rows_of_a_matrix_on_the_gpu(width: int, cuda_torch: Any, close: Any) -> None:
    """Several blocks share a row; streams and a captured graph have products beside each other."""
    rng = np.random.default_rng(4)
    hubs = sparse.random(300, 20_000, 0.001, "lil", dtype=np.float32, random_state=rng)
    hubs[[3, 100]] = rng.standard_normal((2, 20_000))
    hubs = hubs.tocsr()
    parts = [cuda_torch.tensor(one).cuda() for one in (hubs.indptr, hubs.indices, hubs.data)]
    matrix = cuda_torch.sparse_csr_tensor(*parts, hubs.shape)
    given = [cuda_torch.randn(20_000, width, device="cuda") for _ in range(9)]
    streams, found = [cuda_torch.cuda.Stream() for _ in range(4)], []
    cuda_torch.cuda.synchronize()
    for at, dense in enumerate(given[1:]):
        with cuda_torch.cuda.stream(streams[at % 4]):
            found.append(spmark.spmm(matrix, dense))
    cuda_torch.cuda.synchronize()
    graph, captured = cuda_torch.cuda.CUDAGraph(), given[0].clone()
    with cuda_torch.cuda.graph(graph):
        out = spmark.spmm(matrix, captured)
    captured.copy_(given[0])
    graph.replay()
    for dense, one in zip(given, (out, *found), strict=True):
        close(one.cpu(), hubs.astype(np.float64) @ dense.cpu().double().numpy())


def test_signs(a: Any, b: np.ndarray, xy: Any, cupy: Any, cuda_torch: Any, close: Any) -> None:
    operator, (x, _) = spmark.SparseOperator(a), xy
    for given, host in (
        (cupy.asarray, cupy.asnumpy),
        (lambda array: cuda_torch.tensor(array).cuda(), lambda c: c.cpu()),
    ):
        close(host(operator @ given(b)), a.astype(np.float64) @ b)
        close(host(operator.T @ given(x)), a.T.astype(np.float64) @ x)
        close(host(given(x.T) @ operator), x.T @ a.astype(np.float64))
        operator.tune(WIDTH, budget_s=5)
        close(host(operator @ given(b)), a.astype(np.float64) @ b)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("name", NAMES["sddmm"])
def test_sddmm_of_cupy(name: str, scaled: bool, a: Any, xy: Any, cupy: Any, close: Any, sddmm_of: Any) -> None:
    if scaled and name == "dgsparse":
        with pytest.raises(UnsupportedError, match="does not multiply by A"):
            spmark.compile(a, "sddmm", width=WIDTH, use=name, scaled=True)
        return
    op = spmark.compile(a, "sddmm", width=WIDTH, use=name, scaled=scaled)
    close(op(*map(cupy.asarray, xy)).get(), sddmm_of(a, *xy, scaled))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_tensors_on_a_gpu(dtype: str, a: Any, xy: Any, cuda_torch: Any, close: Any, sddmm_of: Any) -> None:
    kind = getattr(cuda_torch, dtype)
    matrix = cuda_torch.tensor(a.toarray()).to(kind).cuda()
    x, y = (cuda_torch.tensor(one).to(kind).cuda() for one in xy)
    rounded = sparse.csr_array(matrix.double().cpu().numpy())
    c = spmark.spmm(matrix.to_sparse(), y)
    assert (c.device, c.dtype) == (y.device, kind)
    close(c.cpu(), rounded @ y.double().cpu().numpy(), dtype)
    close(spmark.sddmm(matrix.to_sparse(), x, y).cpu(), sddmm_of(rounded, x.cpu(), y.cpu()), dtype)


@pytest.mark.parametrize("name", NAMES["spmm"])
def test_four_streams_share_an_operator(name: str, cupy: Any) -> None:
    rng = np.random.default_rng(0)
    a = sparse.random_array((3000, 2000), density=0.01, rng=rng, dtype=np.float32).tocsr()
    a.sort_indices()
    op = spmark.compile(a, width=64, use=name)
    given = [cupy.asarray(rng.integers(-3, 4, (2000, 64)).astype(np.float32)) for _ in range(4)]
    a.data[:] = rng.integers(-3, 4, a.nnz)  # small integers: sums are exact in any order
    op.update_values(a.data)
    expected = [a @ dense.get() for dense in given]
    outs = [[cupy.full((3000, 64), cupy.nan, np.float32) for _ in range(10)] for _ in given]
    cupy.cuda.Device().synchronize()
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in given]
    for turn in range(10):
        for stream, dense, out in zip(streams, given, outs, strict=True):
            with stream:
                op(dense, out=out[turn])
    cupy.cuda.Device().synchronize()
    for out, right in zip(outs, expected, strict=True):
        for one in out:
            np.testing.assert_array_equal(one.get(), right)


def test_a_graph_holds_a_call_and_refuses_what_is_lazy(a: Any, b: np.ndarray, cupy: Any, close: Any) -> None:
    op = spmark.compile(a, width=WIDTH, use="direct")
    dense, out = cupy.asarray(b), cupy.empty((40, WIDTH), np.float32)
    other, values = cupy.ones((25, WIDTH + 1), np.float32), cupy.asarray(a.data)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        op(dense, out=out)
        with pytest.raises(BuildError, match=r"expected a planned width \(6\) while a stream captures a graph"):
            op(other)
        with pytest.raises(BuildError, match="expected out while a stream captures a graph"):
            op(dense)
        with pytest.raises(BuildError, match="update_values: expected values on the GPU, and an earlier update"):
            op.update_values(values)
        graph = stream.end_capture()
        out.fill(cupy.nan)
        graph.launch(stream)
    stream.synchronize()
    close(out.get(), a.astype(np.float64) @ b)
    op(other)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", NAMES["spmm"])
def test_new_values_on_the_device(name: str, dtype: str, a: Any, b: np.ndarray, cupy: Any, close: Any) -> None:
    op = spmark.compile(a, width=WIDTH, dtype=dtype, use=name)
    dense = cupy.asarray(b.astype(dtype))
    for seed in (1, 2):
        values = np.random.default_rng(seed).random(a.nnz).astype(dtype)
        op.update_values(cupy.asarray(values))
        matrix = sparse.csr_array((values.astype(np.float64), a.indices, a.indptr), shape=a.shape)
        close(op(dense).get(), matrix @ b.astype(dtype).astype(np.float64), dtype)


@pytest.mark.parametrize("name", ["direct", "sparsetir"])
def test_a_graph_holds_new_values(name: str, a: Any, b: np.ndarray, cupy: Any, close: Any) -> None:
    op = spmark.compile(a, width=WIDTH, use=name)
    dense, out, values = cupy.asarray(b), cupy.empty((40, WIDTH), np.float32), cupy.asarray(a.data)
    op.update_values(values)
    op(dense, out=out)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        op.compute_with(values, dense, out=out)
        graph = stream.end_capture()
        values *= 2
        graph.launch(stream)
    stream.synchronize()
    close(out.get(), 2 * a.astype(np.float64) @ b)


@pytest.mark.parametrize("name", ["direct", "sparsetir"])
def test_new_values_of_a_million_nonzeros_take_a_millisecond(name: str, cupy: Any) -> None:
    a = sparse.random_array((100_000, 100_000), density=1e-4, rng=np.random.default_rng(0), dtype=np.float32).tocsr()
    op = spmark.compile(a, width=64, use=name)
    values = cupy.asarray(a.data)
    op.update_values(values)
    seconds = []
    for _ in range(20):
        cupy.cuda.Device().synchronize()
        started = perf_counter()
        op.update_values(values)
        cupy.cuda.Device().synchronize()
        seconds.append(perf_counter() - started)
    assert min(seconds) <= 1e-3


def test_a_saved_operator_comes_back_without_a_search(
    a: Any, b: np.ndarray, cupy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    op = spmark.compile(a, width=WIDTH, use="sparsetir")
    op.save(tmp_path / "op")
    monkeypatch.setenv("SPMARK_CACHE", str(tmp_path / "another"))
    monkeypatch.setattr("spmark.impls.tuning.tune.open_race", None)
    again = spmark.load(tmp_path / "op")
    np.testing.assert_array_equal(again(cupy.asarray(b)).get(), op(cupy.asarray(b)).get())


def test_an_operator_of_the_host_refuses_a_gpu_s_arrays(a: Any, b: np.ndarray, cupy: Any) -> None:
    op = spmark.compile(a, width=WIDTH, use="scipy_cpu", device="cpu")
    with pytest.raises(OperandError, match=r"expected an array on the host, .* found one on a GPU: compile"):
        op(cupy.asarray(b))
