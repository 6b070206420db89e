"""flashsparse: every instance of its table on the host under sanitizers, split windows, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from problems import dense_operands, random_csr, run_checked
from tables import AWKWARD, TableTarget, every_instance, table_target

from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.flashsparse.plan import (
    GROUP,
    SDDMM_FLASHSPARSE,
    SPMM_FLASHSPARSE,
    WINDOW,
    FlashSparse,
    FlashSparsePlan,
    columns_of_warp,
    places_of,
)
from spmark.impls.formats.bsr import SrBcrsFormat
from spmark.impls.runtime.device import find
from spmark.impls.runtime.template import Instance

# Windows of no vector, of one, of odd and even numbers of groups, and of many; the last one has three rows.
MATRIX = random_csr(43, 200, [*[0] * 8, *[0] * 7, 1, *range(3, 11), *[9] * 8, *[40] * 8, 150, 7, 0])
HOST = find("host-simt")
target = table_target(SPMM_FLASHSPARSE, SDDMM_FLASHSPARSE)


@pytest.mark.one_in(2)
@every_instance(SPMM_FLASHSPARSE)
def test_every_instance(instance: Instance, target: TableTarget) -> None:
    """J fills a thread block, a warp of the next and a part of a tile; windows are whole, or split."""
    vector, threads = (int(instance.values[name]) for name in ("vector", "threads"))
    width = columns_of_warp(vector) * (threads // 32 + 1) + vector
    problem = Problem(Op.SPMM, MATRIX, width, DType.FLOAT16)
    for part in (1000, 3):
        plan = FlashSparsePlan(problem, target, part=part, **instance.values)
        assert plan.config == {"part": part, **instance.values}
        assert plan.deterministic
        assert any(buffer.size for buffer, _ in plan.buffers) == (part == 3)
        first = run_checked(plan, problem)
        np.testing.assert_array_equal(first, run_checked(plan, problem))  # sums and counters of the first run are left


@pytest.mark.one_in(2)
@every_instance(SDDMM_FLASHSPARSE)
def test_every_sddmm_instance(instance: Instance, target: TableTarget) -> None:
    """J ends within a step; warps have several pairs of groups each, or none."""
    width = 3 * 4 * max(4, int(instance.values["vector"])) + int(instance.values["vector"])
    for scaled, part in ((False, 3), (True, 1000)):
        problem = Problem(Op.SDDMM, MATRIX, width, DType.FLOAT16, scaled)
        plan = FlashSparsePlan(problem, target, part=part, **instance.values)
        assert plan.config == {"part": part, **instance.values}
        assert plan.deterministic
        run_checked(plan, problem)


def test_places_name_every_non_zero_once() -> None:
    form = SrBcrsFormat.from_csr(MATRIX, WINDOW, GROUP)
    places = places_of(form)
    groups, vectors, rows = np.nonzero(places >= 0)
    windows = np.repeat(np.arange(form.indptr.size - 1), np.diff(form.indptr))
    at = places[groups, vectors, rows]
    assert sorted(at.tolist()) == list(range(MATRIX.nnz))
    np.testing.assert_array_equal(MATRIX.indices[at], form.indices[groups, vectors])
    np.testing.assert_array_equal(MATRIX.rows_of_entries()[at], windows[groups] * WINDOW + rows)


def test_rows_of_y_that_no_column_names_do_not_count() -> None:
    """Padding repeats a column, and the half of a pair that is missing reads nothing."""
    matrix = random_csr(9, 60, [3] * 8 + [5])
    problem = Problem(Op.SDDMM, matrix, 20, DType.FLOAT16)
    x, y = dense_operands(problem)
    y[np.setdiff1d(np.arange(60), matrix.indices)] = np.nan
    out = np.full(problem.out_shape, np.nan, np.float16)
    FlashSparse().build(problem, HOST).run([x, y], out)
    assert np.isfinite(out).all()


@pytest.mark.one_in(2)
@pytest.mark.parametrize("op", list(Op))
@pytest.mark.parametrize("width", [1, 6, 36, 64])
@pytest.mark.parametrize("name", list(AWKWARD))
def test_awkward_matrices(name: str, width: int, op: Op) -> None:
    problem = Problem(op, AWKWARD[name], width, DType.FLOAT16)
    plan = FlashSparse().build(problem, HOST)
    run_checked(plan, problem)
    assert plan.stored == SrBcrsFormat.from_csr(problem.matrix, WINDOW, GROUP).stored


@pytest.mark.parametrize(
    ("width", "vector", "threads"), [(1, 1, 32), (6, 2, 32), (20, 4, 32), (64, 8, 32), (128, 8, 64), (512, 8, 128)]
)
def test_loads_are_as_wide_as_j_allows(width: int, vector: int, threads: int) -> None:
    config = FlashSparse().build(Problem(Op.SPMM, MATRIX, width, DType.FLOAT16), HOST).config
    assert (config["vector"], config["threads"]) == (vector, threads)


@pytest.mark.parametrize(
    ("width", "dtype", "words"),
    [(8, DType.FLOAT32, "expected float16"), (64 * 65535 + 1, DType.FLOAT16, "expected J of at most 4,194,240")],
)
def test_what_does_not_fit_is_refused(width: int, dtype: DType, words: str) -> None:
    assert words in (FlashSparse().unsupported(Problem(Op.SPMM, MATRIX, width, dtype), HOST) or "")
    assert FlashSparse().unsupported(Problem(Op.SPMM, MATRIX, 64 * 65535, DType.FLOAT16), HOST) is None
