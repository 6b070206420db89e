"""What of cuBLASLt's product needs no GPU: what the library is asked, and what is refused."""

from __future__ import annotations

from ctypes import c_float, c_void_p
from typing import Any

import pytest
from problems import random_csr

from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.errors import DeviceError, UnsupportedError
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.cublas.plan import CuBlasLtBest
from spmark.impls.runtime.device import find

gpu = pytest.importorskip("spmark.impls.cublas.gpu", reason="CuPy is not installed", exc_type=ImportError)


class FakeLibrary:
    """Numbers what it makes, and proposes algorithms with the given statuses."""

    def __init__(self, statuses: tuple[int, ...]) -> None:
        self.statuses = statuses
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.handle, self.one, self.zero = c_void_p(7), c_float(1), c_float(0)

    def __call__(self, function: str, *arguments: Any) -> None:
        self.calls.append((function, arguments))
        if function.endswith("Create"):
            arguments[0]._obj.value = len(self.calls)
        if function == "cublasLtMatmulAlgoGetHeuristic":
            *_, found, count = arguments
            for place, status in enumerate(self.statuses):
                found[place].status, found[place].algorithm[0] = status, 100 + place
            count._obj.value = len(self.statuses)

    def of(self, function: str) -> list[tuple[Any, ...]]:
        return [arguments for name, arguments in self.calls if name == function]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeLibrary:
    made = FakeLibrary((0, 15, 0))
    monkeypatch.setattr(gpu, "library", lambda: made)
    return made


@pytest.mark.parametrize(("dtype", "number"), [(DType.FLOAT32, 0), (DType.FLOAT16, 2)])
def test_the_transposed_product_is_described(dtype: DType, number: int, fake: FakeLibrary) -> None:
    product = gpu.Product(3, 5, 4, dtype)
    ((_, *kinds),) = fake.of("cublasLtMatmulDescCreate")
    assert kinds == [68, 0], "sums and scale are float32"
    # Columns first: type, rows, columns and leading dimension of the transposed right, left and result.
    layouts = [tuple(arguments[1:]) for arguments in fake.of("cublasLtMatrixLayoutCreate")]
    assert layouts == [(number, 5, 4, 5), (number, 4, 3, 4), (number, 5, 3, 5)]
    wanted = {at: value._obj.value for _, at, value, _ in fake.of("cublasLtMatmulPreferenceSetAttribute")}
    assert wanted == {1: gpu.WORKSPACE_BYTES, 3: 2, **dict.fromkeys((5, 6, 7, 8), 16)}
    assert [one.algorithm[0] for one in product.algorithms] == [100, 102], "what the library cannot run is left out"


def test_a_run_hands_over_the_swapped_operands(fake: FakeLibrary) -> None:
    product = gpu.Product(3, 5, 4, DType.FLOAT32)
    product.run(product.algorithms[1], 10, 20, 30, workspace=40, stream=50)
    (given,) = fake.of("cublasLtMatmul")
    handle, _, one, right, _, left, _, zero, read, of_read, out, of_out, algorithm, *rest = given
    assert (handle, one, zero) == (fake.handle, fake.one, fake.zero)
    assert (right, left, read, out, rest) == (20, 10, 30, 30, [40, gpu.WORKSPACE_BYTES, 50])
    assert of_read is of_out
    assert algorithm._obj.algorithm[0] == 102
    assert len(given) == len(gpu._SIGNATURES["cublasLtMatmul"])
    (asked,) = fake.of("cublasLtMatmulAlgoGetHeuristic")
    assert len(asked) == len(gpu._SIGNATURES["cublasLtMatmulAlgoGetHeuristic"])


def test_what_was_made_is_destroyed(fake: FakeLibrary) -> None:
    product = gpu.Product(3, 5, 4, DType.FLOAT32)
    made = sum(name.endswith("Create") for name, _ in fake.calls)
    del product
    assert sum(name.endswith("Destroy") for name, _ in fake.calls) == made == 5


def test_no_algorithm_is_no_support(fake: FakeLibrary) -> None:
    fake.statuses = (15,)
    with pytest.raises(UnsupportedError, match="expected an algorithm of cuBLASLt for 3 x 4 by 4 x 5 in float16"):
        gpu.Product(3, 5, 4, DType.FLOAT16)


def test_a_missing_library_is_no_support(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise DeviceError("expected cublasLt, found none that fits (no file)")

    monkeypatch.setattr(gpu, "library", missing)
    device = find("host-simt").model_copy(update={"kind": DeviceKind.CUDA})
    monkeypatch.setattr("spmark.impls.cublas.plan.open_target", lambda _: None)
    with pytest.raises(UnsupportedError, match="expected cublasLt, found none that fits"):
        CuBlasLtBest().build(Problem(Op.SPMM, random_csr(3, 4, [1, 0, 2]), 5), device)


def test_a_dense_form_beyond_the_limit_is_refused() -> None:
    problem = Problem(Op.SPMM, random_csr(30, 40, [1] * 30), 5)
    assert "takes 4,800 bytes, the limit is 100" in str(CuBlasLtBest(100).unsupported(problem, find("host-simt")))
