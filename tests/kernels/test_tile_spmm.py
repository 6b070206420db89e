"""SpMM over tiles in one grid: every instance of the fused kernel, on the host under sanitizers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from problems import dense_operands, random_csr, run_checked, run_with_other_values
from tables import AWKWARD, DTYPES, TableTarget, every_instance, table_target

from spmark.impls.core.errors import BuildError, KernelFault
from spmark.impls.core.operators import reference
from spmark.impls.core.problem import Csr, DType, Op, Problem
from spmark.impls.core.tolerance import tolerance
from spmark.impls.formats.bsr import SrBcrsFormat
from spmark.impls.formats.tiles import BLOCK, ELL, RUN, Selection, TileFormat
from spmark.impls.kernels.tile_spmm import AHEAD, HEIGHTS, SPMM_TILES, TileSpmmPlan
from spmark.impls.kernels.tile_tasks import ALONE, MOST, Panels
from spmark.impls.runtime.host.ring import HostKernel
from spmark.impls.runtime.template import NARROW, Instance

target = table_target(SPMM_TILES)


def select(matrix: Csr, share: float, seed: int = 0, width: int = 4, height: int = 16) -> Selection:
    """Give a share of the non-zeros to block tiles of random windows, the others to ELL tiles of a row each."""
    rng = np.random.default_rng(seed)
    row_of = matrix.rows_of_entries()
    order = rng.permutation(matrix.num_rows).astype(np.int32)
    window_rows = np.append(order, np.full(-order.size % height, -1, np.int32)).reshape(-1, height)
    window_of = np.empty(matrix.num_rows, np.int64)
    window_of[order] = np.arange(order.size) // height
    block = rng.random(matrix.nnz) < share
    keys, owner = np.unique(np.where(block, window_of[row_of], window_rows.size + row_of), return_inverse=True)
    is_block = keys < window_rows.size
    most = int(matrix.row_lengths.max(initial=1))
    return Selection(
        owner.astype(np.int32),
        np.where(is_block, BLOCK, ELL).astype(np.int8),
        np.where(is_block, height, most).astype(np.int32),
        np.where(is_block, 16, width).astype(np.int32),
        np.where(is_block, keys, -1).astype(np.int32),
        window_rows,
    )


def both_heights(matrix: Csr, share: float, seed: int = 0) -> Selection:
    """Give a share of the non-zeros to windows of 16 rows, a share of the others to windows of 8, and ELL the rest."""
    high, low = select(matrix, share, seed), select(matrix, share, seed + 1, height=8)
    owner = np.where(high.kind[high.owner] == BLOCK, high.owner, high.kind.size + low.owner)
    used, owner = np.unique(owner, return_inverse=True)
    rows = np.full((low.window_rows.shape[0], 16), -1, np.int32)
    rows[:, :8] = low.window_rows
    window = np.where(low.kind == BLOCK, low.window + high.window_rows.shape[0], -1).astype(np.int32)
    whole = [
        np.concatenate(pair)[used]
        for pair in ((high.kind, low.kind), (high.height, low.height), (high.width, low.width), (high.window, window))
    ]
    return Selection(owner.astype(np.int32), *whole, np.concatenate([high.window_rows, rows]))


def in_blocks(matrix: Csr) -> Selection:
    """Give half of the non-zeros to windows of 16 rows, and the others to windows of 8 in another order of rows."""
    high, low = select(matrix, 0.5), select(matrix, 1.0, 1, height=8)
    first = high.kind[high.owner] == BLOCK
    used, owner = np.unique(np.where(first, high.owner, high.kind.size + low.owner), return_inverse=True)
    rows = np.full((low.window_rows.shape[0], 16), -1, np.int32)
    rows[:, :8] = low.window_rows
    window = (low.window + high.window_rows.shape[0]).astype(np.int32)
    pairs = ((high.kind, low.kind), (high.height, low.height), (high.width, low.width), (high.window, window))
    whole = [np.concatenate(pair)[used] for pair in pairs]
    return Selection(owner.astype(np.int32), *whole, np.concatenate([high.window_rows, rows]))


def multiply(
    matrix: Csr,
    selection: Selection,
    width: int,
    target: TableTarget,
    dtype: DType = DType.FLOAT16,
    **schedule: int,
) -> TileSpmmPlan:
    """Build, run over NaN and compare with the reference."""
    problem = Problem(Op.SPMM, matrix, width, dtype)
    plan = TileSpmmPlan(problem, target, TileFormat.from_csr(matrix, selection), {}, **{"work": 16, **schedule})
    run_checked(plan, problem)
    assert plan.stored >= matrix.nnz
    return plan


RANDOM = np.random.default_rng(4)
MATRIX = random_csr(77, 290, [*RANDOM.integers(0, 40, 40), 290, 0, 0, *RANDOM.integers(0, 5, 34)])
BLOCKED = {
    # Nothing divides by a block; some block rows are empty, and one is divided between thread blocks.
    "mixed": random_csr(133, 4717, [*RANDOM.integers(0, 40, 60), *[0] * 40, 4717, *RANDOM.integers(0, 9, 32)]),
    **AWKWARD,
}


@pytest.mark.one_in(3)
@every_instance(SPMM_TILES, where=lambda instance: instance.values["T"] in NARROW)
def test_every_instance(instance: Instance, target: TableTarget) -> None:
    schedule: dict[str, Any] = {name: int(instance.values[name]) for name in ("vector", "vectors", "lanes")}
    ahead = int(instance.values["ahead"])
    columns = schedule["columns"] = int(instance.values["columns"])
    schedule["dtype"] = DTYPES[str(instance.values["T"])]
    schedule["shallow"] = ahead == AHEAD[columns][1]
    width = 2 * 8 * columns + 8  # a tile more than full ones
    if not instance.values["mixed"]:
        full = random_csr(77, 290, [1, 290, *np.random.default_rng(5).integers(1, 60, 75)])
        for height, alone in ((16, ALONE[0]), (8, ALONE[1]), (8, ALONE[0])):
            plan = multiply(full, select(full, 1.0, height=height), width, target, alone=alone, **schedule)
            assert plan.deterministic
            assert plan.config["ahead"] == ahead
        return
    for share, alone in ((0.6, ALONE[0]), (1.0, ALONE[1]), (0.0, ALONE[0])):
        plan = multiply(MATRIX, select(MATRIX, share), width, target, alone=alone, **schedule)
        assert plan.deterministic == (share == 1.0)
        multiply(MATRIX, select(MATRIX, share, height=8), width, target, alone=alone, **schedule)
    plan = multiply(MATRIX, both_heights(MATRIX, 0.5), width, target, alone=ALONE[0], **schedule)
    assert not plan.deterministic
    if columns == 4:  # what is narrow has no other
        narrow = {**schedule, "columns": 8}
        assert multiply(MATRIX, select(MATRIX, 0.6), 24, target, alone=ALONE[0], **narrow).config["columns"] == 4


@pytest.mark.parametrize(
    "matrix",
    [
        random_csr(5, 4, [0] * 5),
        random_csr(1, 1, [1]),
        random_csr(40, 30, [0] * 20 + [1] + [0] * 19),
        random_csr(70, 1, [int(i % 3 == 0) for i in range(70)]),
        random_csr(20, 9_000, [3] * 7 + [9_000] + [0] * 12),
    ],
    ids=["no_nonzeros", "one_by_one", "a_window_of_one_nonzero", "one_column", "a_row_over_thread_blocks"],
)
def test_extremes(matrix: Csr, target: TableTarget) -> None:
    for share in (1.0, 0.5):
        for height in HEIGHTS:
            multiply(matrix, select(matrix, share, height=height), 32, target, vector=4, lanes=8)


def test_long_panels_are_divided_and_added_up(target: TableTarget) -> None:
    for height, share in ((16, 1.0), (8, 1.0), (16, 0.9)):
        matrix = random_csr(height, 16 * 4 * MOST + 40, [400] * (height - 1) + [16 * 4 * MOST + 40])
        plan = multiply(matrix, select(matrix, share, height=height), 8, target, vector=8, lanes=8)
        assert plan.deterministic == (share == 1.0)


@pytest.mark.parametrize("width", [8, 72, 136])
@pytest.mark.parametrize("name", BLOCKED)
def test_sr_bcrs_is_panels(name: str, width: int, target: TableTarget) -> None:
    problem, held = Problem(Op.SPMM, BLOCKED[name], width, DType.FLOAT16), SrBcrsFormat.from_csr(BLOCKED[name])
    for alone in (ALONE[0], ALONE[-1]):
        plan = TileSpmmPlan(problem, target, TileFormat.of_blocks(held), {}, alone=alone)
        run_checked(plan, problem)
        assert (plan.stored, plan.deterministic) == (held.stored, True)


@pytest.mark.parametrize(("share", "height"), [(1.0, 16), (1.0, 8), (0.0, 16)])
def test_values_are_read_where_the_plan_says(share: float, height: int, target: TableTarget) -> None:
    selection = select(MATRIX, share, height=height)

    def build(problem: Problem) -> TileSpmmPlan:
        return TileSpmmPlan(problem, target, TileFormat.from_csr(problem.matrix, selection), {}, work=16)

    run_with_other_values(build, Problem(Op.SPMM, MATRIX, 24, DType.FLOAT16))


def test_a_mixture_says_of_no_array_that_it_holds_all_values(target: TableTarget) -> None:
    assert multiply(MATRIX, select(MATRIX, 0.6), 24, target).values is None


@pytest.mark.parametrize("width", [24, 136])
def test_pieces_of_rows_are_added_up_in_one_order(width: int, target: TableTarget) -> None:
    full = random_csr(77, 290, [1, 290, *np.random.default_rng(5).integers(1, 60, 75)])
    blocks = in_blocks(full)
    assert {8, 16} == set(blocks.height.tolist())
    held = TileFormat.from_csr(full, blocks)
    assert Panels.of([*held.blocks.values()], ALONE[0]).use(77).shared.size > 40
    problem = Problem(Op.SPMM, full, width, DType.FLOAT16)
    plan = TileSpmmPlan(problem, target, held, {}, vector=8, lanes=8, work=16)
    assert plan.deterministic
    operands, results = dense_operands(problem), []
    for _ in range(3):  # counters are as before after every run
        results.append(np.full(problem.out_shape, np.nan, np.float16))
        plan.run(operands, results[-1])
    assert reference(problem, operands).max_error(results[0]) <= tolerance(problem)
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)


@pytest.mark.xdist_group("tile_spmm")
@pytest.mark.parametrize("order", ["1", "2", "5", "6"])
def test_who_brings_the_last_of_three_pieces_adds_up(
    order: str, target: TableTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPMARK_HOST_ORDER", order)
    columns = 16 * 4 * MOST * 2 + 40  # a panel of three thread blocks
    matrix = random_csr(8, columns, [*[20] * 7, columns])
    plan = multiply(matrix, select(matrix, 1.0, height=8), 8, target, vector=8, lanes=8)
    assert plan.deterministic


def test_a_run_after_one_that_was_aborted_is_right(target: TableTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counters that an aborted grid leaves behind would make another warp believe that it brings the last piece."""
    full = random_csr(77, 290, [1, 290, *np.random.default_rng(5).integers(1, 60, 75)])
    problem = Problem(Op.SPMM, full, 24, DType.FLOAT16)
    held = TileFormat.from_csr(full, in_blocks(full))
    plan = TileSpmmPlan(problem, target, held, {}, vector=8, lanes=8, work=16)
    launch = HostKernel.launch

    def aborted(kernel: HostKernel, grid: Any, args: Any, *rest: Any, **options: Any) -> None:
        launch(kernel, grid, args, *rest, **options)
        if kernel.instance.template is SPMM_TILES:
            args[-1][:] = 1
            raise KernelFault("the grid was aborted")

    with monkeypatch.context() as patch:
        patch.setattr(HostKernel, "launch", aborted)
        with pytest.raises(KernelFault, match="aborted"):
            run_checked(plan, problem)
    run_checked(plan, problem)


def test_refuses(target: TableTarget) -> None:
    held = TileFormat.from_csr(MATRIX, select(MATRIX, 0.5))
    runs = replace(select(MATRIX, 0.0), kind=np.full(int((MATRIX.row_lengths > 0).sum()), RUN, np.int8))
    for problem, tiles in (
        (Problem(Op.SPMM, MATRIX, 20, DType.FLOAT16), held),
        (Problem(Op.SPMM, MATRIX, 32, DType.FLOAT16), TileFormat.from_csr(MATRIX, runs)),
        (Problem(Op.SPMM, MATRIX, 32, DType.FLOAT16), TileFormat.from_csr(MATRIX, select(MATRIX, 0.5, height=4))),
    ):
        with pytest.raises(BuildError, match="J a multiple of 8"):
            TileSpmmPlan(problem, target, tiles, {}, vector=8, lanes=8, work=16)
