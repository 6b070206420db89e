"""Launches by the extension on a GPU, for CuPy's arrays: results, streams, graphs, new values, what libraries do."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import spmark
from spmark.impls.core.errors import OperandError
from spmark.impls.operator.extension import LAUNCHER

cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
pytestmark = pytest.mark.gpu
WIDTH = 32


@pytest.fixture(autouse=True)
def built() -> None:
    if LAUNCHER.wait() is None:
        pytest.skip("the extension cannot be built")


@pytest.fixture
def hubs() -> Any:
    """Give a matrix with rows that several blocks share, which takes a workspace and counters."""
    rng = np.random.default_rng(4)
    found = sparse.random(300, 20_000, 0.001, "lil", dtype=np.float32, random_state=rng)
    found[[3, 100]] = rng.standard_normal((2, 20_000))
    return found.tocsr()


def drawn(*shape: int) -> Any:
    return cupy.asarray(np.random.default_rng().standard_normal(shape).astype(np.float32))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", ["direct", "rowsplit", "sparsetir", "stile"])
def test_a_plan_s_own_results(name: str, dtype: str, hubs: Any) -> None:
    op = spmark.compile(hubs, width=WIDTH, dtype=dtype, use=name if dtype != "float64" else "auto")
    assert op.launches(WIDTH) is not None
    plan, out = op.built(WIDTH), cupy.empty((300, WIDTH), dtype)
    for turn in range(5):
        b = drawn(20_000, WIDTH).astype(dtype)
        if turn:
            assert op._launches.call((b,), out) is out
        op(b, out=out)
        expected = cupy.empty_like(out)
        plan.run((b,), expected)
        if plan.deterministic:
            assert bool((out == expected).all())
        else:
            assert bool(cupy.allclose(out, expected, rtol=1e-2, atol=1e-1))
        assert bool(cupy.allclose(op(b), out, rtol=1e-2, atol=1e-1))
    with pytest.raises(OperandError, match="expected memory of its own"):
        op(b, out=b[:300])


def test_sddmm(hubs: Any) -> None:
    op = spmark.compile(hubs, "sddmm", width=WIDTH, use="rowsplit")
    for _ in range(3):
        x, y = drawn(300, WIDTH), drawn(20_000, WIDTH)
        found = op(x, y)
        at = hubs.tocoo()
        expected = (x.get()[at.row] * y.get()[at.col]).sum(axis=1)
        np.testing.assert_allclose(found.get(), expected, rtol=1e-3, atol=1e-3)
    assert op._launches.call((x, y), None) is not NotImplemented


@pytest.mark.parametrize("name", ["cusparse_best", "cublas"])
def test_plans_that_call_a_library_stay_in_python(name: str, hubs: Any) -> None:
    op = spmark.compile(hubs, width=WIDTH, use=name)
    b = drawn(20_000, WIDTH)
    assert op.launches(WIDTH) is None
    np.testing.assert_allclose(op(b).get(), hubs @ b.get(), rtol=1e-2, atol=1e-2)


def test_streams_and_threads(hubs: Any) -> None:
    op, wrong = spmark.compile(hubs, width=WIDTH, use="direct"), []
    assert op.built(WIDTH).buffers

    def work() -> None:
        b, stream = drawn(20_000, WIDTH), cupy.cuda.Stream(non_blocking=True)
        expected = cupy.empty((300, WIDTH), np.float32)
        outs = [cupy.empty_like(expected) for _ in range(50)]
        cupy.cuda.Device().synchronize()
        with stream:
            for out in outs:
                op(b, out=out)
        stream.synchronize()
        if not all(bool((one == outs[0]).all()) for one in outs):
            wrong.append("runs differ")
        if not np.allclose(outs[0].get(), hubs @ b.get(), rtol=1e-3, atol=1e-3):
            wrong.append("the product is wrong")

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_graphs_replay_at_once_and_beside_a_call(hubs: Any) -> None:
    op, graphs = spmark.compile(hubs, width=WIDTH, use="direct"), []
    for _ in range(2):
        b, out = drawn(20_000, WIDTH), cupy.empty((300, WIDTH), np.float32)
        stream = cupy.cuda.Stream(non_blocking=True)
        cupy.cuda.Device().synchronize()
        with stream:
            stream.begin_capture()
            op(b, out=out)
            graphs.append((stream.end_capture(), stream, b, out))
    b, out = drawn(20_000, WIDTH), cupy.empty((300, WIDTH), np.float32)
    aside = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    for _ in range(50):
        for graph, stream, _, _ in graphs:
            graph.launch(stream)
        with aside:
            op(b, out=out)
        cupy.cuda.Device().synchronize()
        for one, found in ((b, out), *((b, out) for _, _, b, out in graphs)):
            np.testing.assert_allclose(found.get(), hubs @ one.get(), rtol=1e-3, atol=1e-3)
            found.fill(cupy.nan)
        cupy.cuda.Device().synchronize()  # the streams of the next turn wait for no other


@pytest.mark.parametrize("name", ["direct", "sparsetir", "cusparse_best"])
def test_new_values_on_another_stream(name: str, hubs: Any) -> None:
    """A call waits for the update before it, and an update for the calls before."""
    op, b = spmark.compile(hubs, width=WIDTH, use=name), drawn(20_000, WIDTH)
    expected = hubs @ b.get()
    one, other = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    given = [cupy.asarray(hubs.data * factor) for factor in (1, 2)]
    outs = [cupy.empty((300, WIDTH), np.float32) for _ in range(40)]
    op(b, out=outs[0])
    cupy.cuda.Device().synchronize()
    for at, out in enumerate(outs):
        with one:
            op.update_values(given[at % 2])
        with other:
            op(b, out=out)
    cupy.cuda.Device().synchronize()
    for at, out in enumerate(outs):
        np.testing.assert_allclose(out.get(), expected * (1 + at % 2), rtol=1e-3, atol=1e-2)
