"""A sparse matrix by its signs: products of every library's arrays, transposes, types, plans that are kept, races."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

import spmark
from spmark.impls.core.errors import DeviceError, OperandError, ProblemError, SweepError
from spmark.impls.operator import compiled


@pytest.fixture
def operator(a: Any) -> Any:
    return spmark.SparseOperator(a, device="cpu")


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Give a list that every planned width is appended to."""
    widths: list[int] = []
    plan_width = compiled.plan_width
    monkeypatch.setattr(compiled, "plan_width", lambda *args: widths.append(args[2]) or plan_width(*args))
    return widths


@pytest.mark.parametrize("device", ["cpu", "host-simt"])
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_signs_of_both_sides(device: str, library: str, a: Any, b: np.ndarray, xy: Any, close: Any, torch: Any) -> None:
    operator = spmark.SparseOperator(a, device=device)
    given = (lambda array: array) if library == "numpy" else torch.tensor
    wide, (x, y) = a.astype(np.float64), xy
    for found, expected in (
        (operator @ given(b), wide @ b),
        (operator @ given(b[:, 0].copy()), wide @ b[:, 0]),
        (operator.T @ given(x), wide.T @ x),
        (given(x.T) @ operator, x.T @ wide),
        (given(x[:, 0].copy()) @ operator, x[:, 0] @ wide),
        (operator.T.T @ given(b), wide @ b),
    ):
        assert type(found) is type(given(b))
        close(found, expected)
    at, turned = wide.tocoo(), sparse.csr_array(wide.T).tocoo()
    close(operator.sddmm(given(x), given(y)), (x[at.row].astype(np.float64) * y[at.col]).sum(axis=1))
    close(operator.T.sddmm(given(y), given(x)), (y[turned.row].astype(np.float64) * x[turned.col]).sum(axis=1))


def test_what_it_says_of_itself(operator: Any, a: Any, b: np.ndarray) -> None:
    assert repr(operator) == f"<spmark.SparseOperator 40 x 25, {a.nnz} non-zeros, float32>"
    assert (operator.shape, operator.T.shape, operator.nnz, operator.dtype) == ((40, 25), (25, 40), a.nnz, "float32")
    operator @ b
    assert f"spmm of 40 x 25 with {a.nnz} non-zeros, float32, J = 6" in operator.explain()


def test_a_width_and_a_type_are_planned_once_for_a_matrix_and_its_transposes(
    operator: Any, b: np.ndarray, xy: Any, close: Any, planned: list[int]
) -> None:
    assert not planned
    for _ in range(2):
        single = operator @ b
        close(operator @ b.astype(np.float64), single.astype(np.float64))
        operator.T @ xy[0]
        xy[0].T @ operator
        operator.T.T @ b
    assert planned == [6, 6, 6]
    operator @ b[:, :2]
    assert planned == [6, 6, 6, 2]


def test_a_result_may_be_written(operator: Any, b: np.ndarray, xy: Any, a: Any) -> None:
    out, at = np.full((40, 6), np.nan, np.float32), np.full(a.nnz, np.nan, np.float32)
    assert operator.spmm(b, out=out) is out
    np.testing.assert_array_equal(out, operator @ b)
    assert operator.sddmm(*xy, out=at) is at
    np.testing.assert_array_equal(at, operator.sddmm(*xy))


def test_a_race_is_kept(operator: Any, b: np.ndarray, xy: Any, made_up_times: None, planned: list[int]) -> None:
    before = operator @ b
    assert "J = 6: scipy_cpu" in operator.explain()
    operator.tune([6, 9])
    operator.T.tune(6)
    operator.tune(6, dtype="float64")
    assert planned == [6, 6, 9, 6, 6]
    np.testing.assert_allclose(operator @ b, before, rtol=1e-5, atol=1e-5)
    operator.T @ xy[0]
    assert planned == [6, 6, 9, 6, 6]
    told = operator.explain()
    assert told.count("numba_cpu (threads = ") == 3
    assert "J = 6: scipy_cpu" in told
    operator.tune(6, "sddmm", budget_s=0)
    assert "spmark sddmm of 40 x 25" in operator.explain()


def test_one_name_serves_what_it_can(a: Any, xy: Any, sddmm_of: Any, close: Any) -> None:
    operator = spmark.SparseOperator(a, use="direct", device="host-simt")
    operator @ xy[1]
    close(operator.sddmm(*xy), sddmm_of(a.astype(np.float64), *xy))
    assert "J = 6: direct" in operator.explain().split("spmark sddmm")[0]


def test_what_does_not_fit_is_refused(operator: Any, a: Any, b: np.ndarray, torch: Any) -> None:
    words = (
        "spmm: expected operands of float32, .* found float16: convert them, or pass dtype='float16' to spmark.Spars"
    )
    with pytest.raises(OperandError, match=words):
        operator @ b.astype(np.float16)
    with pytest.raises(OperandError, match=words):
        operator.tune(6, dtype="float16")
    with pytest.raises(OperandError, match=r"operand B \(K, J\): expected dtype float32, found int64: convert the arr"):
        operator @ b.astype(np.int64)
    with pytest.raises(OperandError, match=r"expected a dense array of NumPy, .* its toarray"):
        operator @ a.T
    with pytest.raises(OperandError, match=r"expected a dense array of NumPy, .* numpy.asarray\(...\) makes one"):
        [1.0] * 40 @ operator
    with pytest.raises(OperandError, match=r"expected shape \(25, J\), found \(40, 1\)"):
        operator @ np.ones(40, np.float32)
    with pytest.raises(ProblemError, match=r"found one that requires it .* take spmark.torch"):
        operator @ torch.tensor(b, requires_grad=True)
    with pytest.raises(ProblemError, match="expected an operator out of spmm, sddmm, found 'spgemm'"):
        operator.tune(6, "spgemm")
    with pytest.raises(SweepError, match=r"expected an implementation out of .* found 'nobody'"):
        spmark.SparseOperator(a, use="nobody")
    with pytest.raises(DeviceError, match="gpu"):
        spmark.SparseOperator(a, device="gpu")
    with pytest.raises(ProblemError, match="found one of int64: pass dtype"):
        spmark.SparseOperator(a.astype(np.int64), device="cpu")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_values_of_another_type(dtype: str, a: Any, b: np.ndarray, torch: Any, close: Any) -> None:
    operator = spmark.SparseOperator(a, dtype=dtype, device="cpu")
    kind = getattr(torch, dtype)
    dense = torch.tensor(b).to(kind)
    found = operator @ dense
    assert found.dtype is kind
    close(found, torch.tensor(a.toarray()).to(kind).double().numpy() @ dense.double().numpy(), dtype)
