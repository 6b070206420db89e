"""Products by cuBLAS as its documentation has them, column-major, on the host's memory."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from spmark.impls.core.problem import DType

gemm = pytest.importorskip("spmark.impls.runtime.gemm", reason="CuPy is not installed", exc_type=ImportError)
NUMPY = {0: np.float32, 2: np.float16}


class FakeArray(np.ndarray):
    """An array of the host with CuPy's way to say where it is."""

    @property
    def data(self) -> Any:  # type: ignore[override]
        return SimpleNamespace(ptr=self.ctypes.data)


def fake(array: Any) -> Any:
    return np.ascontiguousarray(array).view(FakeArray)


def words(address: int, count: int, kind: Any) -> list[Any]:
    """Give an array that a call points to."""
    size = count * np.dtype(kind).itemsize
    return np.frombuffer((ctypes.c_char * size).from_address(address), kind).tolist()  # type: ignore[no-any-return]


class FakeLibrary:
    """cublasGemmEx on the host: C = op(A) op(B), all column-major; and the call for groups of one product each."""

    handle, one, zero = object(), object(), object()

    def __init__(self) -> None:
        self.called: list[str] = []

    def __call__(self, name: str, handle: object, *arguments: Any) -> None:
        self.called.append(name)
        if name == "cublasGemmGroupedBatchedEx":
            self.groups(*arguments)
        if name != "cublasGemmEx":
            return
        turn_a, turn_b, m, n, k, alpha, a, a_type, lda, b, b_type, ldb, beta, c, c_type, ldc, compute, _ = arguments
        assert (alpha, beta, compute) == (self.one, self.zero, 68)

        def columns(place: Any, kind: int, rows: int, count: int, leading: int) -> np.ndarray:
            size = leading * count * np.dtype(NUMPY[kind]).itemsize
            held = np.frombuffer((ctypes.c_char * size).from_address(place.value), NUMPY[kind])
            return held.reshape(count, leading).T[:rows]

        left = columns(a, a_type, *((k, m) if turn_a else (m, k)), lda)
        right = columns(b, b_type, *((n, k) if turn_b else (k, n)), ldb)
        product = (left.T if turn_a else left).astype(np.float64) @ (right.T if turn_b else right)
        columns(c, c_type, m, n, ldc)[...] = product

    def groups(self, *arguments: Any) -> None:
        turn_a, turn_b, m, n, k, alpha, a, a_type, lda, b, b_type, ldb, beta, c, c_type, ldc, count, sizes, kind = (
            arguments
        )
        sizes_of = [words(each, count, np.int32) for each in (turn_a, turn_b, m, n, k, lda, ldb, ldc, sizes)]
        scales = [words(each, count, np.float32) for each in (alpha, beta)]
        assert scales == [[1.0] * count, [0.0] * count]
        places = [map(ctypes.c_void_p, words(each, count, np.uint64)) for each in (a, b, c)]
        for *of, one, at_a, at_b, at_c in zip(*sizes_of, *places, strict=True):
            ta, tb, rows, columns, depth, of_a, of_b, of_c = of
            assert one == 1
            left_right = (self.one, at_a, a_type, of_a, at_b, b_type, of_b)
            self(
                "cublasGemmEx",
                self.handle,
                ta,
                tb,
                rows,
                columns,
                depth,
                *left_right,
                self.zero,
                at_c,
                c_type,
                of_c,
                kind,
                0,
            )


@pytest.mark.parametrize("types", [(DType.FLOAT32, DType.FLOAT32), (DType.FLOAT16, DType.FLOAT32)], ids=str)
@pytest.mark.parametrize("transposed", [False, True])
def test_products_are_row_major(transposed: bool, types: tuple[DType, DType], monkeypatch: pytest.MonkeyPatch) -> None:
    library, rng = FakeLibrary(), np.random.default_rng(0)
    monkeypatch.setattr(gemm, "library", lambda: library)
    stream = SimpleNamespace(ptr=1)
    monkeypatch.setattr(gemm, "cupy", SimpleNamespace(cuda=SimpleNamespace(get_current_stream=lambda: stream)))
    plan: Any = SimpleNamespace(workspace=lambda shape, dtype: fake(np.empty(1, dtype)))
    multiply = gemm.Gemm(plan, 5, 3, types, transposed)
    products = []
    for m in (4, 1):
        left = fake(rng.standard_normal((m, 3)).astype(types[0].numpy))
        right = fake(rng.standard_normal((5, 3) if transposed else (3, 5)).astype(types[0].numpy))
        products.append((left, right, fake(np.full((m, 5), np.nan, types[1].numpy))))
    multiply(products)
    for left, right, out in products:
        wide = np.asarray(right, np.float64)
        np.testing.assert_allclose(out, np.asarray(left, np.float64) @ (wide.T if transposed else wide), rtol=1e-5)
    assert library.called == ["cublasSetStream_v2", "cublasSetWorkspace_v2", "cublasGemmEx", "cublasGemmEx"]


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.FLOAT16], ids=str)
def test_grouped_products_are_row_major(dtype: DType, monkeypatch: pytest.MonkeyPatch) -> None:
    library, rng = FakeLibrary(), np.random.default_rng(0)
    monkeypatch.setattr(gemm, "library", lambda groups: library)
    stream = SimpleNamespace(ptr=1)
    monkeypatch.setattr(
        gemm, "cupy", SimpleNamespace(cuda=SimpleNamespace(get_current_stream=lambda: stream), add=np.add)
    )
    plan: Any = SimpleNamespace(workspace=lambda shape, kind: fake(np.empty(shape, kind)), upload=fake)
    lefts = [fake(rng.standard_normal((m, 3)).astype(dtype.numpy)) for m in (4, 1, 7)]
    outs = [fake(np.full((left.shape[0], 5), np.nan, dtype.numpy)) for left in lefts]
    multiply = gemm.GroupedGemm(plan, dtype, list(zip((0, 3, 2), lefts, outs, strict=True)), (4, 3, 5))
    for _ in range(2):  # the matrices may be elsewhere in the next call
        right = fake(rng.standard_normal((4, 3, 5)).astype(dtype.numpy))
        multiply(right)
        for number, left, out in zip((0, 3, 2), lefts, outs, strict=True):
            expected = np.asarray(left, np.float64) @ np.asarray(right[number], np.float64)
            np.testing.assert_allclose(out, expected, rtol=4 * 2.0**-dtype.digits, atol=1e-6)
