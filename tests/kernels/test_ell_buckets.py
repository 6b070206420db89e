"""SpMM over ELL buckets on the host: awkward matrices, every way to take a row, and what is cleared before the grid."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray
from problems import dense_operands, random_csr, run_checked
from tables import AWKWARD, TableTarget, table_target

from spmark.impls.core.errors import BuildError
from spmark.impls.core.problem import Csr, DType, Op, Problem
from spmark.impls.formats.hyb import HybFormat
from spmark.impls.kernels import shared_rows
from spmark.impls.kernels.ell_buckets import NEVER, SPMM_ELL_BUCKETS, EllBucketsPlan
from spmark.impls.kernels.shared_rows import RowZeroing
from spmark.impls.runtime.target import Kernel
from spmark.impls.runtime.template import C_TYPES

MATRICES = {**AWKWARD, "wide": random_csr(9, 500, [0, 500, 3, 0, 64, 65, 1, 0, 0])}
FORMS = {"folded": (1, 32), "partitions": (4, 64), "in_one_piece": (1, 1 << 14)}
WAYS = {
    "a_group": {"spread": NEVER, "together": NEVER},
    "a_warp": {"spread": 32, "together": NEVER, "by_row": True},
    "a_block": {"spread": NEVER, "together": 32},
}
SLOWEST = ("ten_thousand_in_a_row", "in_one_piece", "a_group")
"""Eight lanes for 16,384 elements: 2 s a launch, where every other case takes 0.1 s."""
target = table_target(SPMM_ELL_BUCKETS)


@pytest.mark.one_in(7)
@pytest.mark.parametrize(
    ("name", "form", "way"),
    [
        pytest.param(*case, marks=[pytest.mark.full] if case == SLOWEST else [])
        for case in product(MATRICES, FORMS, WAYS)
    ],
)
def test_awkward_matrices(name: str, form: str, way: str, target: TableTarget) -> None:
    matrix = MATRICES[name]
    held = HybFormat.from_csr(matrix, *FORMS[form])
    for width, vector, dtype in ((1, 1, DType.FLOAT32), (33, 1, DType.FLOAT16), (36, 4, DType.FLOAT32)):
        problem = Problem(Op.SPMM, matrix, width, dtype)
        plan = EllBucketsPlan(problem, target, held, {}, vector=vector, lanes=8, work=16, **WAYS[way])
        for _ in range(2):  # a workspace that was used is cleared again
            run_checked(plan, problem)
        assert plan.deterministic == (not shared_by_loop(matrix, *FORMS[form]))


THIRDS = random_csr(40, 420, [20, 45, 90, 24, 48, 96, 200, 17, 33, 65] * 4)
"""Buckets of 24, 48 and 96; with 64 as the last width also shared ones."""
THIRD_WAYS = {
    **WAYS,
    "a_warp": {"spread": 24, "together": NEVER},
    "a_block": {"spread": NEVER, "together": 24, "by_row": True},
    "both": {"spread": 24, "together": 64},
}


@pytest.mark.one_in(7)
@pytest.mark.parametrize("way", THIRD_WAYS)
@pytest.mark.parametrize("max_width", [64, 128, 256])
@pytest.mark.parametrize(
    ("dtype", "vector", "vectors", "lanes"),
    [
        (DType.FLOAT32, 1, 1, 8),
        (DType.FLOAT32, 4, 2, 8),
        (DType.FLOAT32, 2, 1, 16),
        (DType.FLOAT16, 8, 2, 16),
        (DType.BFLOAT16, 8, 1, 16),
        (DType.FLOAT16, 1, 2, 32),
    ],
)
def test_widths_between_the_powers_of_two(
    dtype: DType, vector: int, vectors: int, lanes: int, max_width: int, way: str, target: TableTarget
) -> None:
    held = HybFormat.from_csr(THIRDS, 1, max_width, thirds=True)
    assert {24, 48, min(96, max_width)} <= {bucket.width for bucket in held.buckets}
    problem = Problem(Op.SPMM, THIRDS, 5 * vector, dtype)
    schedule = {"vector": vector, "vectors": vectors, "lanes": lanes, "work": 64, **THIRD_WAYS[way]}
    plan = EllBucketsPlan(problem, target, held, {}, **schedule)
    run_checked(plan, problem)
    assert plan.deterministic == (max_width >= 200)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("vector", "vectors", "dtype"), [(4, 1, DType.FLOAT32), (8, 2, DType.FLOAT16)])
def test_padding_adds_nothing_of_an_infinity(
    vector: int, vectors: int, dtype: DType, way: str, target: TableTarget
) -> None:
    """A padded slot's registers hold what an earlier slot has left there, which must not reach another row of C."""
    matrix = random_csr(60, 40, [(7 * row) % 38 + 1 for row in range(60)])
    problem = Problem(Op.SPMM, matrix, 2 * vector, dtype)
    (dense,) = dense_operands(problem)
    endless = dense.copy()
    endless[39] = np.inf  # of the last slot of a row, whose registers padding meets next
    schedule = {"vector": vector, "vectors": vectors, "lanes": 8, "work": 64, **WAYS[way]}
    plan = EllBucketsPlan(problem, target, HybFormat.from_csr(matrix, 1, 64), {}, **schedule)
    expected, out = (np.full(problem.out_shape, np.nan, dtype.numpy) for _ in range(2))
    plan.run((dense,), expected)
    plan.run((endless,), out)
    named = np.zeros(matrix.num_rows, np.bool_)
    named[matrix.rows_of_entries()[matrix.indices == 39]] = True
    assert 0 < named.sum() < matrix.num_rows
    assert np.all(np.isinf(out[named]))
    np.testing.assert_array_equal(out[~named], expected[~named])


@pytest.mark.parametrize("dtype", list(DType))
@pytest.mark.parametrize("lanes", [8, 16])
def test_a_group_that_ends_before_its_neighbours_adds_nothing_more(
    lanes: int, dtype: DType, target: TableTarget
) -> None:
    """All groups but the last of a block have three chunks of slots, and the last has two."""
    per_chunk, groups = lanes // 8, 128 // lanes
    filled = 3 * per_chunk * (groups - 1) + 2 * per_chunk
    matrix = random_csr(filled + 40, 300, [8] * filled + [0] * 40)
    problem = Problem(Op.SPMM, matrix, 4 * lanes, dtype)
    held = HybFormat.from_csr(matrix, 1, 8)
    plan = EllBucketsPlan(problem, target, held, {}, vector=4, lanes=lanes, work=64)
    run_checked(plan, problem)


def test_a_block_does_not_take_rows_together_that_are_shorter_than_a_unit(target: TableTarget) -> None:
    matrix = random_csr(70, 40, [3, 8] * 35)
    held, problem = HybFormat.from_csr(matrix, 1, 8), Problem(Op.SPMM, matrix, 8, DType.FLOAT32)
    schedule = {"vector": 4, "lanes": 8, "work": 16}
    with pytest.raises(BuildError, match="found together: 4"):
        EllBucketsPlan(problem, target, held, {}, **schedule, together=4)
    run_checked(EllBucketsPlan(problem, target, held, {}, **schedule, together=8), problem)


def shared_by_loop(matrix: Csr, partitions: int, max_width: int) -> list[int]:
    """List the rows of several ELL rows in the slow, obvious way."""
    width = -(-matrix.num_cols // partitions)
    found = []
    for row in range(matrix.num_rows):
        columns = matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]]
        pieces = np.bincount(columns // width, minlength=partitions)
        if np.sum(-(-pieces // max_width)) > 1:
            found.append(row)
    return found


class Cleared:
    """Takes note of every list of rows that is to be cleared."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lists: list[tuple[DType, list[int]]] = []
        lists = self.lists

        class Noted(RowZeroing):
            def __init__(self, plan: object, rows: NDArray[np.int32], width: int, kernel: Kernel) -> None:
                (dtype,) = (dtype for dtype in DType if C_TYPES[dtype] == kernel.instance.values["T"])
                lists.append((dtype, rows.tolist()))
                super().__init__(plan, rows, width, kernel)

        monkeypatch.setattr(shared_rows, "RowZeroing", Noted)


@pytest.mark.parametrize("dtype", list(DType))
def test_all_kernels_of_a_plan_are_compiled_in_one_call(
    dtype: DType, target: TableTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are shared, so that there is one to clear them, and in 16 bits one for the workspace and one that rounds."""
    asked: list[list[str]] = []
    load = target.load
    monkeypatch.setattr(target, "load", lambda given: (asked.append([i.template.name for i in given]), load(given))[1])
    problem = Problem(Op.SPMM, MATRICES["wide"], 8, dtype)
    EllBucketsPlan(problem, target, HybFormat.from_csr(problem.matrix, 1, 4), {}, vector=4, lanes=8, work=16)
    workspace = ["zero_rows", "round_shared_rows"] if dtype.narrow else []
    assert asked == [["spmm_ell_buckets", "zero_rows", *workspace]]


@pytest.mark.parametrize("form", [(1, 4), (3, 64), (1, 1 << 14)], ids=str)
def test_only_rows_that_are_added_into_are_cleared(
    form: tuple[int, int], target: TableTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix = MATRICES["wide"]
    shared = shared_by_loop(matrix, *form)
    held = HybFormat.from_csr(matrix, *form)
    cleared = Cleared(monkeypatch)
    for dtype in DType:
        EllBucketsPlan(Problem(Op.SPMM, matrix, 8, dtype), target, held, {}, vector=4, lanes=8, work=16)
    # In 16 bits what rounds sums clears them, too; rows without elements are the grid's.
    assert cleared.lists == [(dtype, [] if dtype.narrow else shared) for dtype in DType]
    assert len(shared) < matrix.num_rows / 2
