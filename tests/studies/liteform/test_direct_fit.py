"""Where CSR as it comes is taken, by times that follow known rules."""

from __future__ import annotations

from itertools import product

import pytest
from problems import random_csr

from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.kernels.direct_spmm import is_offered
from spmark.impls.liteform.features import Features
from spmark.impls.liteform.schedule import DirectSchedule, ScheduleTable, direct_candidates
from spmark.studies.liteform.direct_fit import DirectTrials, fitted_direct

pytestmark = pytest.mark.full

NARROW, WIDE = DirectSchedule(8), DirectSchedule(16, 2)


def features(nnz: int, mean: float, spread: float) -> Features:
    rows = max(1, round(nnz / mean))
    return Features(rows, rows, nnz, mean, 0, 100, spread * mean)


def trials(nnz: int, mean: float, spread: float, width: int = 32) -> DirectTrials:
    """Give times by which CSR wins where rows are alike, by narrow tiles where rows are short."""
    ratio = 0.8 if spread < 1 else 1.3
    times = {one: 10 * ratio * (1.0 if (one == NARROW) == (mean < 8) else 1.1) for one in (NARROW, WIDE)}
    return DirectTrials(DType.FLOAT32, width, features(nnz, mean, spread), times, 10.0)


@pytest.fixture(scope="module")
def table() -> ScheduleTable:
    points = list(product((1 << 14, 1 << 18, 1 << 21), (2.0, 4.0, 20.0, 60.0), (0.1, 0.3, 2.0, 3.0)))
    return ScheduleTable(device="gpu", entries=(), direct=tuple(fitted_direct([trials(*point) for point in points])))


@pytest.mark.parametrize(
    ("mean", "spread", "expected"), [(3.0, 0.2, NARROW), (30.0, 0.2, WIDE), (3.0, 2.5, None), (30.0, 2.5, None)]
)
def test_csr_is_taken_where_rows_are_alike(
    table: ScheduleTable, mean: float, spread: float, expected: DirectSchedule | None
) -> None:
    asked = features(1 << 17, mean, spread)
    assert table.direct_for(asked, 32, DType.FLOAT32) == expected
    assert table.direct_for(asked, 16, DType.FLOAT16) == expected
    fastest = NARROW if mean < 8 else WIDE
    assert table.direct_for(asked, 32, DType.FLOAT32, 0.5) == fastest


@pytest.mark.parametrize("mean", [1, 10, 60])
@pytest.mark.parametrize("dtype", list(DType))
def test_every_candidate_has_a_kernel_at_every_j(dtype: DType, mean: int) -> None:
    """A table's nearest entry may be of another J."""
    matrix = random_csr(20, 100, [mean] * 20)
    problems = [Problem(Op.SPMM, matrix, width, dtype) for width in (1, 7, 32, 36, 128, 512)]
    every = {schedule for problem in problems for schedule in direct_candidates(problem)}
    assert {schedule.parts > 1 for schedule in every} == {False, True} if mean > 4 else {False}
    for problem in problems:
        assert all(is_offered(dtype, schedule.arguments(problem)) for schedule in every)
