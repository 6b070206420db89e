"""SpMM straight from CSR on the host: every instance, long rows taken by blocks, and the schedules that are offered."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from problems import dense_operands, random_csr, run_checked
from tables import AWKWARD, DTYPES, TableTarget, every_instance, table_target

from spmark.impls.core.problem import Csr, DType, Op, Problem
from spmark.impls.kernels import direct_spmm
from spmark.impls.kernels.direct_space import DIRECT_SPMM, direct_deep, direct_starts
from spmark.impls.kernels.direct_spmm import SPMM_DIRECT, UNSPLIT, DirectPlan, direct_instance
from spmark.impls.runtime.template import Instance
from spmark.impls.tuning.tune import space_of

# Empty rows at both ends and side by side; rows of one less than a chunk, of a chunk and of one more, and of several.
MATRIX = random_csr(
    30, 200, [0, 0, 1, 2, 3, 4, 5, 0, 0, 0, 7, 8, 9, 15, 16, 17, 90, 31, 32, 33, 1, 1, 64, 2, 130, *[0] * 5]
)
SCHEDULE = {"vectors": 1, "unroll": 4, "threads": 128}
target = table_target(SPMM_DIRECT)


@pytest.fixture(autouse=True)
def short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let several blocks share the longest rows of these small matrices."""
    monkeypatch.setattr(direct_spmm, "_PIECE", 24)


@pytest.mark.one_in(4)
@every_instance(SPMM_DIRECT)
def test_every_instance(instance: Instance, target: TableTarget) -> None:
    """J fills one tile and a vector of the next one; rows longer than 20 are the work of blocks, or none is."""
    values = dict(instance.values)
    dtype = DTYPES[str(values.pop("T"))]
    rows = 4 if values.pop("several") else 1
    schedule = {name: int(value) for name, value in values.items()}
    width = schedule["vector"] * (schedule["vectors"] * schedule["lanes"] + 1)
    problem = Problem(Op.SPMM, MATRIX, width, dtype)
    for longest in (UNSPLIT, 20):
        plan = DirectPlan(problem, target, {}, rows=rows, longest=longest, **schedule)
        first = run_checked(plan, problem)
        if longest != UNSPLIT:  # blocks leave sums and counters behind
            np.testing.assert_array_equal(first, run_checked(plan, problem))
        assert plan.deterministic
        assert plan.stored == MATRIX.nnz


def test_the_pieces_of_long_rows() -> None:
    """A group with a long row leaves all of its rows to blocks; a row has as many pieces as have at most `_PIECE`."""
    matrix = random_csr(5, 200, [3, 100, 24, 0, 60])
    told = direct_spmm.pieces_of_blocks(matrix, 2, 20)
    whole = [[1, place, 5, 0] for place in range(5)] + [[4, place, 3, 1] for place in range(3)]
    assert told.entries.tolist() == [*whole, [2, 0, 1, 2], [0, 0, 1, 3], [3, 0, 1, 4]]
    assert told[1:] == (8, 2)
    as_long_as_a_row = direct_spmm.pieces_of_blocks(matrix, 1, 70)
    assert as_long_as_a_row.entries.tolist() == [[1, 0, 2, 0], [1, 1, 2, 0]]
    assert direct_spmm.pieces_of_blocks(matrix, 1, UNSPLIT).entries.shape == (0, 4)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("dtype", list(DType))
@pytest.mark.parametrize("name", list(AWKWARD))
def test_awkward_matrices(name: str, dtype: DType, target: TableTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "ten_thousand_in_a_row":  # ten blocks for the row, and not four hundred
        monkeypatch.setattr(direct_spmm, "_PIECE", 1000)
    for (rows, lanes), (width, vector) in product(((1, 8), (4, 4)), ((1, 1), (33, 1), (36, 4))):
        problem = Problem(Op.SPMM, AWKWARD[name], width, dtype)
        tile = {"vector": vector, "lanes": lanes, "rows": rows}
        for longest in (UNSPLIT, 4, 0):
            run_checked(DirectPlan(problem, target, {}, longest=longest, **tile, **SCHEDULE), problem)


def test_what_a_plan_holds_is_csr_and_the_pieces_of_long_rows(target: TableTarget) -> None:
    problem = Problem(Op.SPMM, MATRIX, 8)
    tile = {"vector": 4, "lanes": 4, **SCHEDULE}
    plain = DirectPlan(problem, target, {}, **tile)
    assert plain.device_bytes == 4 * (MATRIX.num_rows + 1 + 2 * MATRIX.nnz)
    split = DirectPlan(problem, target, {}, longest=64, arrays=plain.arrays, **tile)
    # Rows of 90 and 130 in 2 and 3 pieces of at most 64: a list, a row of sums for each, and a counter for each row.
    assert split.device_bytes == plain.device_bytes + 5 * 16 + 5 * 4 * 8 + 2 * 4
    assert all(one is other for one, other in zip(split.arrays, plain.arrays, strict=True))
    assert split.config == {**plain.config, "longest": 64}


def test_sums_beyond_float16_become_infinity(target: TableTarget) -> None:
    """Products are added in float32: what leaves the range on the way and comes back is kept."""
    indptr = np.array([0, 2, 5, 5], np.int64)
    matrix = Csr.checked((3, 3), indptr, np.array([0, 1, 0, 1, 2]), np.array([1, 1, 1, 1, -1], np.float32))
    problem = Problem(Op.SPMM, matrix, 8, DType.FLOAT16)
    dense = np.full((3, 8), 60_000, np.float16)
    for longest in (UNSPLIT, 1):
        plan = DirectPlan(problem, target, {}, vector=8, lanes=4, longest=longest, **SCHEDULE)
        out = np.full((3, 8), np.nan, np.float16)
        plan.run([dense], out)
        np.testing.assert_array_equal(out[:, 0], np.array([np.inf, 60_000, 0], np.float16))
        np.testing.assert_array_equal(out, np.repeat(out[:, :1], 8, axis=1))


@pytest.mark.parametrize(("rows", "parts", "longest"), [(1, 1, UNSPLIT), (4, 1, UNSPLIT), (2, 1, 20), (1, 4, UNSPLIT)])
def test_no_slot_past_a_row_loads_a_row_of_b(rows: int, parts: int, longest: int, target: TableTarget) -> None:
    """A names no column 0: what stands there, infinities times a padding of zeros, would be seen in the result."""
    indices = np.where(MATRIX.indices == 0, 1, MATRIX.indices)
    keep = np.ones(indices.size, np.bool_)
    keep[1:] = (np.diff(indices) != 0) | (np.diff(MATRIX.rows_of_entries()) != 0)
    indptr = np.searchsorted(MATRIX.rows_of_entries()[keep], np.arange(MATRIX.num_rows + 1))
    matrix = Csr.checked(MATRIX.shape, indptr, indices[keep], MATRIX.values[keep])
    problem = Problem(Op.SPMM, matrix, 12)
    (dense,) = dense_operands(problem)
    dense[0] = np.inf
    out = np.full(problem.out_shape, np.nan, np.float32)
    tile = {"vector": 4, "lanes": 8, "rows": rows, "parts": parts}
    DirectPlan(problem, target, {}, longest=longest, **tile, **SCHEDULE).run([dense], out)
    assert np.isfinite(out).all()


@pytest.mark.parametrize("dtype", list(DType))
@pytest.mark.parametrize("width", [1, 3, 6, 8, 32, 33, 100, 128, 512])
def test_schedules_are_few_and_legal(width: int, dtype: DType) -> None:
    for lengths in ([2] * 40, [5] * 39 + [300], [40] * 39 + [400], [0] * 40):
        problem = Problem(Op.SPMM, random_csr(40, 500, lengths), width, dtype)
        starts, space = direct_starts(problem), space_of(DIRECT_SPMM, problem)
        assert 0 < len(starts) <= 6
        varied = ({**start, **value} for start in starts for axis in space.axes for value in axis.values)
        offered = [*starts, *(one for one in varied if one in space)]
        assert len({str(one) for one in starts}) == len(starts)
        offered += [{**starts[0], **deep} for deep in direct_deep(problem)]
        for one in offered:
            assert direct_instance(problem, one)
            assert width % one["vector"] == 0
            filled = one["vector"] * one["vectors"] * one["lanes"]
            assert filled <= width or (one["vectors"], one["lanes"]) == (1, 4)
