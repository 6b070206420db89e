"""Dense pieces: what windows read, that the tiles are the matrix, and that the plan computes the product."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
from problems import assert_same, banded, matrices, random_csr, run_checked

from spmark.impls.core.errors import BuildError
from spmark.impls.core.problem import Csr, DType, Op, Problem
from spmark.impls.formats.nearness import near_order
from spmark.impls.formats.tiles import TileFormat
from spmark.impls.liteform import dense
from spmark.impls.liteform import dense_plan as made
from spmark.impls.liteform.composition import BucketOrder
from spmark.impls.liteform.dense import MOST_READS, pays, refusal, selection_of, windows_of
from spmark.impls.liteform.plan import LiteForm
from spmark.impls.runtime.device import find as find_device

RNG = np.random.default_rng(21)
HOST = find_device("host-simt")


def mixed(num_rows: int = 100, num_cols: int = 200) -> Csr:
    """Draw rows of which the second 16 share 20 columns, one is long, and the others are scattered."""
    held = np.where(RNG.random((num_rows, num_cols)) < 0.03, RNG.uniform(0.5, 1, (num_rows, num_cols)), 0)
    shared = RNG.choice(num_cols, 20, replace=False)
    held[16:32, shared] = RNG.uniform(0.5, 1, (16, 20))
    held[70] = RNG.uniform(0.5, 1, num_cols)
    indptr = np.concatenate([[0], np.cumsum(np.count_nonzero(held, 1))])
    return Csr.checked(held.shape, indptr, np.nonzero(held)[1], held[held != 0])


MIXED = mixed()


def slow_reads(matrix: Csr, row_at: np.ndarray) -> float:
    """Count the rows of B that windows read, window by window."""
    read = 0
    for first in range(0, matrix.num_rows, 16):
        held = [matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]] for row in row_at[first : first + 16]]
        read += 16 * -(-len(set(np.concatenate(held).tolist())) // 16)
    return read / matrix.nnz


@pytest.mark.parametrize("name", [name for name, matrix in matrices().items() if matrix.nnz])
def test_reads_are_those_of_a_slow_loop(name: str) -> None:
    matrix = matrices()[name]
    found = [windows_of(matrix, order) for order in (BucketOrder.GIVEN, BucketOrder.GATHERED)]
    rows = [np.arange(matrix.num_rows), near_order(matrix).rows]
    assert [each.reads for each in found] == pytest.approx([slow_reads(matrix, row_at) for row_at in rows])
    for each, row_at in zip(found, rows, strict=True):
        np.testing.assert_array_equal(each.rows[each.rows >= 0], row_at)
        assert (each.rows[each.of] == np.arange(matrix.num_rows)[:, np.newaxis]).any(1).all()
    assert windows_of(matrix).reads == min(each.reads for each in found)


@pytest.mark.parametrize("order", [BucketOrder.GIVEN, BucketOrder.GATHERED])
@pytest.mark.parametrize("name", matrices())
def test_tiles_are_the_matrix(name: str, order: BucketOrder) -> None:
    matrix = matrices()[name]
    held = TileFormat.from_csr(matrix, selection_of(matrix, windows_of(matrix, order)))
    assert held.ell is None
    assert_same(held.to_csr(), matrix)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("width", [24, 136])
@pytest.mark.parametrize("alone", [0, 16])
@pytest.mark.parametrize("matrix", [MIXED, random_csr(20, 20, [0] * 20), random_csr(40, 5000, [5000, *[50] * 39])])
def test_the_plan_computes_the_product(matrix: Csr, width: int, alone: int) -> None:
    problem = Problem(Op.SPMM, matrix, width, DType.FLOAT16)
    plan = LiteForm(format="cell", dense="always", alone=alone).build(problem, HOST)
    run_checked(plan, problem)
    assert plan.config["reads"] == pytest.approx(windows_of(matrix).reads, abs=1e-4)
    assert plan.config["alone"] == (alone or 4)
    assert {"features", "select", "convert", "compile", "upload"} == set(plan.phases_s)


def test_what_cannot_be_is_refused() -> None:
    assert refusal(Problem(Op.SPMM, MIXED, 32, DType.FLOAT16)) is None
    for problem in (Problem(Op.SPMM, MIXED, 32), Problem(Op.SPMM, MIXED, 12, DType.FLOAT16)):
        reason = LiteForm(dense="always").unsupported(problem, HOST)
        assert reason
        assert "float16 and J a multiple of 8" in reason
        assert LiteForm(dense="measured").unsupported(problem, HOST) is None
    with pytest.raises(ValueError, match="expected one partition"):
        LiteForm(dense="always", partitions=2)
    with pytest.raises(ValueError, match="expected alone to be one of"):
        LiteForm(alone=5)


class MadeUpTimes:
    """Times plans as told, and finds some of them wrong."""

    wrong: ClassVar[tuple[object, ...]] = ()
    times: ClassVar[dict[int, float]] = {}

    def __init__(self, problem: Problem, device: object) -> None:
        del problem, device

    def check(self, plan: object) -> None:
        if plan in self.wrong:
            raise BuildError("wrong result")

    def times_us(self, plans: list[object], rounds: int) -> list[list[float]]:
        return [[self.times[id(plan)]] * rounds for plan in plans]

    def alternating_us(self, plans: list[object]) -> list[list[float]]:
        return self.times_us(plans, 10)


@pytest.mark.parametrize(("seconds", "wrong", "kept"), [((2, 1), False, 1), ((1, 2), False, 0), ((2, 1), True, 0)])
def test_the_faster_plan_is_kept_and_the_other_is_accounted_for(
    monkeypatch: pytest.MonkeyPatch, seconds: tuple[float, float], wrong: bool, kept: int
) -> None:
    problem = Problem(Op.SPMM, MIXED, 32, DType.FLOAT16)
    plain = LiteForm(format="cell", partitions=1).build(problem, HOST)
    other = LiteForm(format="cell", dense="always").build(problem, HOST)
    plain.phases_s.update(convert=5.0)
    other.phases_s.update(convert=1.0)
    monkeypatch.setitem(sys.modules, "spmark.impls.tuning.gpu", SimpleNamespace(PlanTimer=MadeUpTimes))
    monkeypatch.setattr(MadeUpTimes, "times", {id(plain): seconds[0], id(other): seconds[1]})
    monkeypatch.setattr(MadeUpTimes, "wrong", (other,) if wrong else ())
    plan, spent = made.faster(plain, lambda: other, problem, HOST)
    assert plan is (plain, other)[kept]
    assert plan.search
    assert plan.search.measured == (1 if wrong else 2)
    assert spent == pytest.approx(sum(plain.phases_s.values()) - sum(plan.phases_s.values()), abs=0.5)

    def none() -> None:
        raise BuildError("too few")

    assert made.faster(plain, none, problem, HOST)[0] is plain


@pytest.mark.parametrize("num_rows", [16, 100, 1000])
def test_what_windows_read_says_whether_pieces_pay(num_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "LEAST_LOADS", 1)
    for matrix, expected in (
        (banded(num_rows, 40), True),
        (banded(num_rows, 0), False),
        (random_csr(num_rows, 4000, [5] * num_rows), False),
    ):
        assert pays(matrix, 32) == expected == (windows_of(matrix, BucketOrder.GIVEN).reads <= MOST_READS)
    assert not pays(matrices()["no_nonzeros"], 32)


def test_windows_that_the_sample_leaves_out_count() -> None:
    band = banded(16 * 63, 40)  # every second window is asked first
    rows = np.repeat(np.arange(63) % 2 == 0, 16)
    scattered = random_csr(16 * 63, 4000, np.where(rows, 0, 60).tolist())
    dense_rows, scattered_rows = band.row_lengths * rows, scattered.row_lengths
    indptr = np.concatenate([[0], np.cumsum(dense_rows + scattered_rows)])
    indices = np.concatenate(
        [
            (band if rows[row] else scattered).indices[slice(*(band if rows[row] else scattered).indptr[row : row + 2])]
            for row in range(rows.size)
        ]
    )
    both = Csr.checked((16 * 63, 4000), indptr, indices, RNG.uniform(0.5, 1, indices.size))
    asked, _ = both.of_rows(np.flatnonzero(rows))
    assert windows_of(asked, BucketOrder.GIVEN).reads <= MOST_READS < windows_of(both, BucketOrder.GIVEN).reads
    assert not pays(both, 4096)


def test_pieces_are_taken_where_they_are_expected_to_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "LEAST_LOADS", 1)
    band = banded(96, 24)
    problem = Problem(Op.SPMM, band, 32, DType.FLOAT16)
    plan = LiteForm(format="cell", partitions=1).build(problem, HOST)
    assert plan.config["reads"] == pytest.approx(windows_of(band, BucketOrder.GIVEN).reads, abs=1e-4)
    run_checked(plan, problem)
    pins = (
        {"dense": "never"},
        {"order": "gathered"},
        {"block": 8},
        {"partitions": 2},
        {"max_width": 4},
        {"cost": "paper"},
    )
    for pinned in pins:
        assert "reads" not in LiteForm(**{"format": "cell", "partitions": 1, **pinned}).build(problem, HOST).config
    for other in (Problem(Op.SPMM, band, 32, DType.FLOAT32), Problem(Op.SPMM, MIXED, 32, DType.FLOAT16)):
        assert "reads" not in LiteForm(format="cell", partitions=1).build(other, HOST).config
