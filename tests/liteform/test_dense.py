"""Dense pieces: what is found, that the tiles are the matrix, and that the plan computes the product."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
from cell_format import CellFormat
from problems import assert_same, dense_operands, matrices, random_csr

from spmark.impls.core.errors import BuildError
from spmark.impls.core.operators import reference
from spmark.impls.core.problem import Csr, DType, Op, Problem
from spmark.impls.core.tolerance import tolerance
from spmark.impls.formats.tiles import BLOCK, TileFormat
from spmark.impls.kernels.tile_spmm import SPMM_TILES
from spmark.impls.liteform import dense_plan as made
from spmark.impls.liteform.dense import dense_pieces, dense_selection, pays, refusal, rest_of, tile_arguments
from spmark.impls.liteform.plan import LiteForm
from spmark.impls.liteform.schedule import candidates, rule
from spmark.impls.runtime.device import find as find_device

RNG = np.random.default_rng(21)
HOST = find_device("host-simt")


def mixed(num_rows: int = 100, num_cols: int = 200) -> Csr:
    """Draw rows of which the second 16 share 20 columns, one is long, and the others are scattered."""
    dense = np.where(RNG.random((num_rows, num_cols)) < 0.03, RNG.uniform(0.5, 1, (num_rows, num_cols)), 0)
    shared = RNG.choice(num_cols, 20, replace=False)
    dense[16:32, shared] = RNG.uniform(0.5, 1, (16, 20))
    dense[70] = RNG.uniform(0.5, 1, num_cols)
    indptr = np.concatenate([[0], np.cumsum(np.count_nonzero(dense, 1))])
    return Csr.checked(dense.shape, indptr, np.nonzero(dense)[1], dense[dense != 0])


MIXED = mixed()


def held_of(matrix: Csr, max_width: int, tail_in_last: bool, order: np.ndarray | None = None) -> TileFormat:
    pieces = dense_pieces(matrix, order)
    return TileFormat.from_csr(matrix, dense_selection(matrix, pieces, max_width, tail_in_last))


def slow_taken(matrix: Csr, order: np.ndarray, most_reads: float) -> np.ndarray:
    """Do as `dense_pieces`, window by window."""
    taken = np.zeros(matrix.num_rows, np.bool_)
    for first in range(0, matrix.num_rows, 16):
        rows = order[first : first + 16]
        held = [matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]] for row in rows]
        pieces = -(-len(set(np.concatenate(held))) // 16)
        taken[rows] = 16 * pieces <= most_reads * sum(map(len, held))
    return taken[matrix.rows_of_entries()]


@pytest.mark.parametrize("most_reads", [0.3, 0.8, 1.5])
def test_dense_windows_are_those_of_a_slow_loop(most_reads: float) -> None:
    shares = []
    for order in (np.arange(100, dtype=np.int32), RNG.permutation(100).astype(np.int32)):
        found = dense_pieces(MIXED, order, most_reads)
        np.testing.assert_array_equal(found.taken, slow_taken(MIXED, order, most_reads))
        shares.append(found.share)
    assert max(shares) > 0


def test_shared_columns_are_found() -> None:
    taken = dense_pieces(MIXED).taken
    rows = MIXED.rows_of_entries()
    assert 256 <= np.count_nonzero(taken[(rows >= 16) & (rows < 32)])
    assert set(rows[taken]) == set(range(16, 32))
    rest = rest_of(MIXED, dense_pieces(MIXED))
    assert rest.shape == MIXED.shape
    assert rest.nnz == np.count_nonzero(~taken)


@pytest.mark.parametrize("tail_in_last", [True, False])
@pytest.mark.parametrize("max_width", [1, 4, 64])
@pytest.mark.parametrize("name", matrices())
def test_tiles_are_the_matrix(name: str, max_width: int, tail_in_last: bool) -> None:
    matrix = matrices()[name]
    held = held_of(matrix, max_width, tail_in_last, RNG.permutation(matrix.num_rows).astype(np.int32))
    back = held.to_csr()
    assert_same(back, matrix)


@pytest.mark.parametrize(
    ("length", "tail_in_last", "widths"),
    [(11, True, [4, 4, 4]), (11, False, [4, 4, 4]), (9, True, [4, 4, 4]), (9, False, [1, 4, 4]), (2, True, [2])],
)
def test_the_rest_lies_in_buckets_as_cell_has_them(length: int, tail_in_last: bool, widths: list[int]) -> None:
    matrix = random_csr(1, 40, [length])
    cell, held = CellFormat.from_csr(matrix, (4,), tail_in_last=tail_in_last), held_of(matrix, 4, tail_in_last)
    assert held.ell
    for found in (held.ell, cell.held):
        rows = np.repeat([bucket.width for bucket in found.buckets], [bucket.count for bucket in found.buckets])
        assert sorted(rows[found.rows >= 0]) == widths


@pytest.mark.parametrize("width", [24, 136])
@pytest.mark.parametrize("matrix", [MIXED, random_csr(20, 20, [0] * 20), random_csr(40, 50, [50] * 40)])
def test_the_plan_computes_the_product(matrix: Csr, width: int) -> None:
    problem = Problem(Op.SPMM, matrix, width, DType.FLOAT16)
    plan = LiteForm(format="cell", dense="always").build(problem, HOST)
    operands = dense_operands(problem)
    out = np.full(problem.out_shape, np.nan, np.float16)
    plan.run(operands, out)
    assert reference(problem, operands).max_error(out) <= tolerance(problem)
    assert plan.config["dense"] == pytest.approx(made.fullest(matrix).share, abs=1e-4)
    assert {"features", "select", "search", "convert", "compile", "upload"} == set(plan.phases_s)


def test_what_cannot_be_is_refused() -> None:
    assert refusal(Problem(Op.SPMM, MIXED, 32, DType.FLOAT16)) is None
    for problem in (Problem(Op.SPMM, MIXED, 32), Problem(Op.SPMM, MIXED, 12, DType.FLOAT16)):
        reason = LiteForm(dense="always").unsupported(problem, HOST)
        assert reason
        assert "float16 and J a multiple of 8" in reason
        assert LiteForm(dense="measured").unsupported(problem, HOST) is None
    with pytest.raises(ValueError, match="expected one partition"):
        LiteForm(dense="always", partitions=2)


def test_without_a_gpu_nothing_is_measured() -> None:
    plan = LiteForm(format="cell", partitions=1, dense="measured").build(
        Problem(Op.SPMM, MIXED, 32, DType.FLOAT16), HOST
    )
    assert "dense" not in plan.config


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


def banded(num_rows: int, reach: int) -> Csr:
    """Give a band with values that are drawn."""
    rows = np.arange(num_rows)
    inside = np.abs(rows[:, np.newaxis] - rows) <= reach
    indptr = np.concatenate([[0], np.cumsum(np.count_nonzero(inside, 1))])
    return Csr.checked(inside.shape, indptr, np.nonzero(inside)[1], RNG.uniform(0.5, 1, np.count_nonzero(inside)))


@pytest.mark.parametrize("num_rows", [16, 100, 1000])
def test_a_sample_of_rows_says_whether_pieces_pay(num_rows: int) -> None:
    for matrix, expected in (
        (banded(num_rows, 40), True),
        (banded(num_rows, 0), False),
        (random_csr(num_rows, 4000, [5] * num_rows), False),
    ):
        share = dense_pieces(matrix).share
        assert pays(matrix) == expected == (share >= 0.5)
    assert not pays(matrices()["no_nonzeros"])


def test_pieces_are_taken_where_they_are_expected_to_pay() -> None:
    band = banded(96, 24)
    problem = Problem(Op.SPMM, band, 32, DType.FLOAT16)
    plan = LiteForm(format="cell", partitions=1).build(problem, HOST)
    assert plan.config["dense"] == pytest.approx(dense_pieces(band).share, abs=1e-4)
    operands, out = dense_operands(problem), np.full(problem.out_shape, np.nan, np.float16)
    plan.run(operands, out)
    expected = reference(problem, operands)
    assert expected.max_error(out) <= tolerance(problem)
    for pinned in ({"dense": "never"}, {"order": "gathered"}, {"block": 8}, {"partitions": 2}):
        assert "dense" not in LiteForm(**{"format": "cell", "partitions": 1, **pinned}).build(problem, HOST).config
    for other in (Problem(Op.SPMM, band, 32, DType.FLOAT32), Problem(Op.SPMM, MIXED, 32, DType.FLOAT16)):
        assert "dense" not in LiteForm(format="cell", partitions=1).build(other, HOST).config


def test_too_few_in_dense_pieces_make_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    scattered = random_csr(100, 400, [4] * 100)
    assert dense_pieces(scattered).share < 0.1
    problem = Problem(Op.SPMM, scattered, 32, DType.FLOAT16)
    how = {"widest_of": lambda _: 4, "schedule_of": lambda width: rule(32, DType.FLOAT16, width), "tail_in_last": True}
    with pytest.raises(BuildError, match="in dense pieces, found"):
        made.dense_plan(problem, None, {}, **how)  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [8, 32, 40, 64, 128, 520])
def test_schedules_have_kernels(width: int) -> None:
    kernels = [instance.values for instance in SPMM_TILES.instances()]
    for schedule in (rule(width, DType.FLOAT16, 64), *candidates(width, DType.FLOAT16, 10**7, 64)):
        arguments = tile_arguments(schedule, width)
        assert width % arguments["vector"] == 0
        tile = {name: arguments[name] for name in ("vector", "vectors", "lanes")}
        assert [k for k in kernels if k.items() >= {**tile, "columns": 4 if width <= 32 else 8}.items()]


def test_blocks_hold_whole_windows() -> None:
    selection = dense_selection(MIXED, dense_pieces(MIXED), 8, True)
    is_block = selection.kind == BLOCK
    assert selection.window[is_block].tolist() == [1]
