"""Products with matrices that are on the device: which arrays are read there, and how long plans are kept."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from spmark.impls.core.errors import MatrixError, OperandError, ProblemError
from spmark.impls.runtime.device import find
from spmark.impls.runtime.target import open_target

pytest.importorskip("cupy", reason="CuPy is not installed")
borrowed = pytest.importorskip("spmark.impls.operator.borrowed")


class OnDevice(np.ndarray):
    """An array of the host that says where it is as CuPy's do."""

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self.ctypes.data, device_id=0)


class Matrix:
    """The attributes of CuPy's CSR."""

    format = "csr"

    def __init__(self, csr: Any) -> None:
        self.indptr, self.indices, self.data = (
            np.array(one).view(OnDevice) for one in (csr.indptr, csr.indices, csr.data)
        )
        self.shape = csr.shape


@pytest.fixture
def operators(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Give operators whose device is the host ring, which takes arrays as they are."""
    target = open_target(find("host-simt"))
    monkeypatch.setattr(target, "upload", lambda array: array)
    monkeypatch.setattr(target, "location", "cuda:0")
    monkeypatch.setattr(borrowed, "adopt", lambda array: array)
    made = borrowed.BorrowedOperators(lambda: target)
    monkeypatch.setattr("spmark.impls.core.operands.ArrayFacts.of", _facts_of(borrowed))
    return made


def _facts_of(_module: Any) -> Any:
    from spmark.impls.core.operands import ArrayFacts

    of = ArrayFacts.of
    return lambda array: of(np.asarray(array))._replace(device="cuda:0")


def test_a_plan_is_kept_for_the_same_arrays(operators: Any, a: Any, b: Any, close: Any) -> None:
    matrix = Matrix(a)
    operator = operators.find(matrix, b.dtype)
    close(operator(b), a.toarray().astype(np.float64) @ b)
    assert operators.find(matrix, b.dtype) is operator
    matrix.data *= 2
    close(operators.find(matrix, b.dtype)(b), 2 * a.toarray().astype(np.float64) @ b)
    matrix.data = np.array(matrix.data / 2).view(OnDevice)
    other = operators.find(matrix, b.dtype)
    assert other is not operator
    close(other(b), a.toarray().astype(np.float64) @ b)


def test_operands_are_checked_once_for_matrices_of_one_shape(
    operators: Any, a: Any, b: Any, close: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, narrower = Matrix(a), Matrix(2 * a), Matrix(a[:, :20])
    operators.find(first, b.dtype)(b)
    with monkeypatch.context() as patched:
        patched.setattr(borrowed.CompiledOperator, "_checked_call", None)
        close(operators.find(second, b.dtype)(b), 2 * a.toarray().astype(np.float64) @ b)
    with pytest.raises(OperandError, match=r"expected shape \(20, J\), found \(25, 6\)"):
        operators.find(narrower, b.dtype)(b)
    second.data = np.array(second.data).view(OnDevice)
    with pytest.raises(OperandError, match="expected dtype float32, found float64"):
        operators.find(second, b.dtype)(b.astype(np.float64))


def test_float64_and_halves(operators: Any, a: Any, b: Any, close: Any) -> None:
    for dtype in ("float64", "float16"):
        given, dense = a.astype("float32" if dtype == "float16" else dtype), b.astype(dtype)
        matrix = Matrix(given)
        matrix.data = np.array(given.data, dtype).view(OnDevice)
        close(operators.find(matrix, dense.dtype)(dense), a.toarray().astype(np.float64) @ dense, dtype)


def test_long_indices_are_shortened(operators: Any, a: Any, b: Any, close: Any) -> None:
    matrix = Matrix(a)
    matrix.indptr, matrix.indices = (one.astype(np.int64) for one in (matrix.indptr, matrix.indices))
    close(operators.find(matrix, b.dtype)(b), a.toarray().astype(np.float64) @ b)


def test_a_plan_goes_with_its_matrix(operators: Any, a: Any, b: Any) -> None:
    for _ in range(3):
        matrix = Matrix(a)
        operators.find(matrix, b.dtype)
        assert len(operators._kept) == 1
        del matrix
        gc.collect()
        assert not operators._kept


def test_what_is_planned_otherwise(operators: Any, a: Any, b: Any) -> None:
    assert operators.find(Matrix(a), np.dtype(np.float64)) is None  # the operand's type is another
    gaps = Matrix(a)
    gaps.data = np.repeat(gaps.data, 2)[::2]
    elsewhere = Matrix(a)
    elsewhere.indices = np.array(elsewhere.indices).view(
        type("There", (OnDevice,), {"data": SimpleNamespace(ptr=0, device_id=1)})
    )
    blocks = Matrix(a)
    blocks.format = "bsr"
    for matrix in (gaps, elsewhere, blocks, a.tocoo()):
        assert operators.find(matrix, b.dtype) is None
    assert not operators._kept


def test_illegal_columns_are_refused(operators: Any, a: Any, b: Any) -> None:
    matrix = Matrix(a)
    matrix.indices[3] = 25
    with pytest.raises(MatrixError, match=r"expected columns in \[0, 25\), found 25 at position 3"):
        operators.find(matrix, b.dtype)(b)


def test_arrays_do_not_keep_their_matrix(torch: Any, a: Any) -> None:
    parts = [torch.tensor(one) for one in (a.indptr, a.indices, a.data)]
    matrix = torch.sparse_csr_tensor(*parts, size=a.shape)
    alive, arrays = weakref.ref(matrix), borrowed.arrays_of(matrix)
    del matrix
    assert alive() is None
    assert arrays.values.data_ptr() == parts[2].data_ptr()


def test_tensors(torch: Any, a: Any) -> None:
    parts = [torch.tensor(one) for one in (a.indptr, a.indices, a.data)]
    matrix = torch.sparse_csr_tensor(*parts, size=a.shape)
    known, version = borrowed.arrays_of(matrix).signature(), borrowed._version(matrix)
    assert version is not None
    assert borrowed._version(matrix) == version
    matrix.values().mul_(2)
    assert borrowed.arrays_of(matrix).signature() == known
    assert borrowed._version(matrix) != version, "all arrays are looked at again"
    copied = torch.sparse_csr_tensor(parts[0], parts[1].clone(), parts[2], size=a.shape)
    assert borrowed.arrays_of(copied).signature() != known
    assert borrowed.arrays_of(matrix.to_sparse_coo()) is None
    needing = torch.sparse_csr_tensor(*parts, size=a.shape, requires_grad=True)
    assert borrowed._version(needing) is None
    with pytest.raises(ProblemError, match="expected a tensor without a gradient"):
        borrowed.arrays_of(needing)
