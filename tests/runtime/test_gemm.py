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


class FakeLibrary:
    """cublasGemmEx on the host: C = op(A) op(B), all column-major."""

    handle, one, zero = object(), object(), object()

    def __init__(self) -> None:
        self.called: list[str] = []

    def __call__(self, name: str, handle: object, *arguments: Any) -> None:
        self.called.append(name)
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
