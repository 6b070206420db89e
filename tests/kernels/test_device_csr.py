"""A matrix on the device: its facts, the list of its long rows, and products without a copy of it on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from problems import matrices, random_csr, run_checked
from tables import table_target

from spmark.impls.core.errors import MatrixError
from spmark.impls.core.problem import Csr, DType, Op, Problem
from spmark.impls.kernels import direct_spmm
from spmark.impls.kernels.device_csr import CSR_FACTS, CSR_PIECES, DeviceCsr, DeviceProblem
from spmark.impls.kernels.direct_spmm import UNSPLIT, DirectPlan, pieces_of_blocks, usual_schedule

UNEVEN = random_csr(700, 90, [int(length) for length in np.random.default_rng(3).pareto(1.0, 700).clip(0, 80)])
target = table_target(CSR_FACTS, CSR_PIECES)


def on(target: Any, matrix: Csr, dtype: DType = DType.FLOAT32) -> DeviceCsr:
    """Show a matrix as one that is there already."""
    values = Problem(Op.SPMM, matrix, 1, dtype).values
    return DeviceCsr(matrix.shape, matrix.indptr, matrix.indices, values, target)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("matrix", [UNEVEN, *matrices().values()], ids=["uneven", *matrices()])
def test_the_facts_are_those_of_the_host(matrix: Csr, target: Any) -> None:
    found = on(target, matrix)
    assert (found.longest_row, found.filled_rows) == (matrix.longest_row, matrix.filled_rows)


def test_two_matrices_are_looked_at_at_a_time(target: Any) -> None:
    matrices = UNEVEN, random_csr(5, 30, [2, 3, 0, 4, 3])
    for _ in range(2):  # the second time with what the first has left
        found = [on(target, matrix) for matrix in matrices]
        for one in found:
            one.begin()
        assert [one.longest_row for one in found] == [matrix.longest_row for matrix in matrices]


@pytest.mark.parametrize(
    ("name", "place", "value", "message"),
    [
        ("indptr", 0, 1, "found others at row 0"),
        ("indptr", 2, 100, "found others at row 2"),
        ("indptr", 3, -1, "found others at row 2"),
        ("indptr", 5, 11, "found others at row 4"),
        ("indices", 7, 30, "found 30 at position 7"),
        ("indices", 0, -1, "found -1 at position 0"),
    ],
)
def test_arrays_that_lead_elsewhere_are_refused(name: str, place: int, value: int, message: str, target: Any) -> None:
    matrix = random_csr(5, 30, [2, 3, 0, 4, 3])
    arrays = {one: getattr(matrix, one).copy() for one in ("indptr", "indices")}
    arrays[name][place] = value
    with pytest.raises(MatrixError, match=message):
        DeviceCsr(matrix.shape, **arrays, values=matrix.values, target=target).check()


@pytest.mark.parametrize(("rows", "longest"), [(1, 8), (1, 30), (4, 20), (1, UNSPLIT)])
def test_the_pieces_are_those_of_the_host(rows: int, longest: int, target: Any, monkeypatch: Any) -> None:
    """Rows stand in another order, those of several pieces first, and the pieces of a row side by side."""
    monkeypatch.setattr(direct_spmm, "_PIECE", 16)
    expected, found = pieces_of_blocks(UNEVEN, rows, longest), on(target, UNEVEN).pieces(rows, longest)
    assert found[1:] == expected[1:]
    assert sorted(found.entries[:, :3].tolist()) == sorted(expected.entries[:, :3].tolist())
    shared = found.entries[: found.shared]
    assert (shared[:, 2] > 1).all()
    assert (found.entries[found.shared :, 2] == 1).all()
    for row, number in {(row, number) for row, _, _, number in shared.tolist()}:
        (at,) = np.nonzero(shared[:, 0] == row)
        np.testing.assert_array_equal(at, at[0] + np.arange(at.size))
        np.testing.assert_array_equal(shared[at, 1], np.arange(at.size))
        assert 0 <= number < found.shared_rows
    assert len(set(shared[:, 3].tolist())) == found.shared_rows


@pytest.mark.parametrize("dtype", list(DType))
def test_products(dtype: DType, target: Any, monkeypatch: Any) -> None:
    """The same bits as by the host's list."""
    monkeypatch.setattr(direct_spmm, "_PIECE", 16)
    matrix, problem = on(target, UNEVEN, dtype), Problem(Op.SPMM, UNEVEN, 16, dtype)
    schedule = usual_schedule(DeviceProblem(matrix, 16, dtype)) | {"longest": 12}
    assert schedule == usual_schedule(problem) | {"longest": 12}
    pieces = matrix.pieces(schedule["rows"], schedule["longest"])
    assert pieces.shared_rows > 1
    plan = DirectPlan(DeviceProblem(matrix, 16, dtype), target, {}, pieces=pieces, **schedule)
    found = run_checked(plan, problem)
    np.testing.assert_array_equal(found, run_checked(DirectPlan(problem, target, {}, **schedule), problem))


def test_rows_may_name_a_column_twice_in_any_order(target: Any) -> None:
    matrix = random_csr(20, 30, [5] * 20)
    twice = DeviceCsr(
        matrix.shape, 2 * matrix.indptr, np.repeat(matrix.indices, 2)[::-1].copy(), np.repeat(matrix.values, 2), target
    )
    problem = DeviceProblem(twice, 8, DType.FLOAT32)
    pieces = twice.pieces(1, UNSPLIT)
    dense = np.random.default_rng(1).uniform(0.5, 1, (30, 8)).astype(np.float32)
    out = np.full((20, 8), np.nan, np.float32)
    DirectPlan(problem, target, {}, pieces=pieces, **usual_schedule(problem)).run([dense], out)
    expected = np.zeros((20, 8))
    for row in range(20):
        for place in range(2 * matrix.indptr[row], 2 * matrix.indptr[row + 1]):
            expected[row] += float(twice.values[place]) * dense[twice.indices[place]].astype(np.float64)
    np.testing.assert_allclose(out, expected, rtol=1e-5)
