"""SDDMM over tiles in one grid: every instance of the fused kernel, on the host under sanitizers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from kernels.test_tile_spmm import MATRIX, select
from problems import dense_operands, random_csr
from tables import DTYPES, TableTarget, every_instance, table_target

from spmark.impls.core.errors import BuildError
from spmark.impls.core.operators import reference
from spmark.impls.core.problem import Csr, DType, Op, Problem
from spmark.impls.core.tolerance import tolerance
from spmark.impls.formats.tiles import BLOCK, RUN, Selection, TileFormat
from spmark.impls.kernels.tile_sddmm import SDDMM_TILES, TileSddmmPlan
from spmark.impls.runtime.template import Instance

target = table_target(SDDMM_TILES)


def with_runs(matrix: Csr, share: float) -> Selection:
    """Give a share of the non-zeros to block tiles, the others to runs."""
    selection = select(matrix, share)
    return replace(selection, kind=np.where(selection.kind == BLOCK, BLOCK, RUN).astype(np.int8))


def sample(
    matrix: Csr,
    share: float,
    width: int,
    scaled: bool,
    target: TableTarget,
    schedule: dict[str, int],
    dtype: DType = DType.FLOAT16,
) -> TileSddmmPlan:
    """Build, run over NaN and compare with the reference, in both orders, whose elements are the same."""
    problem = Problem(Op.SDDMM, matrix, width, dtype, scaled)
    held = TileFormat.from_csr(matrix, with_runs(matrix, share))
    operands, truth = dense_operands(problem), reference(problem, dense_operands(problem))
    found = []
    for in_tiles in (True, False):
        plan = TileSddmmPlan(problem, target, held, {}, in_tiles=in_tiles, **schedule)
        out = np.full(problem.out_shape, dtype.nan, dtype.numpy)
        plan.run(operands, out)
        found.append(truth.select(problem, out, plan.order))
        assert truth.max_error(found[-1]) <= tolerance(problem)
    np.testing.assert_array_equal(*found)
    assert plan.order is None
    assert plan.deterministic
    return plan


@pytest.mark.one_in(3)
@every_instance(SDDMM_TILES)
def test_every_instance(instance: Instance, target: TableTarget) -> None:
    schedule = {"lanes": int(instance.values["lanes"]), "batch": int(instance.values["batch"])}
    vector = int(instance.values["vector"])
    widths = {1: (1, 67), 2: (2, 70), 8: (8, 72, 136)}[vector]
    for width, (share, groups) in zip(widths, ((0.6, 2), (1.0, 3), (0.3, 1)), strict=False):
        dtype = DTYPES[str(instance.values["T"])]
        sample(MATRIX, share, width, width % 4 == 0, target, {**schedule, "groups": groups}, dtype)


@pytest.mark.full
@pytest.mark.parametrize(
    "matrix",
    [
        random_csr(5, 4, [0] * 5),
        random_csr(1, 1, [1]),
        random_csr(40, 30, [0] * 20 + [1] + [0] * 19),
        random_csr(20, 9_000, [3] * 7 + [9_000] + [0] * 12),
    ],
    ids=["no_nonzeros", "one_by_one", "a_window_of_one_nonzero", "a_row_of_9000"],
)
def test_extremes(matrix: Csr, target: TableTarget) -> None:
    for share in (1.0, 0.5, 0.0):
        sample(matrix, share, 16, True, target, {"lanes": 8, "batch": 4, "groups": 8})


def test_an_order_of_tiles_is_another_and_spares_positions(target: TableTarget) -> None:
    problem = Problem(Op.SDDMM, MATRIX, 32, DType.FLOAT16, scaled=True)
    held = TileFormat.from_csr(MATRIX, with_runs(MATRIX, 0.5))
    schedule = {"lanes": 8, "batch": 4, "groups": 8}
    in_csr, in_tiles = (TileSddmmPlan(problem, target, held, {}, in_tiles=on, **schedule) for on in (False, True))
    assert in_csr.device_bytes - in_tiles.device_bytes == 4 * MATRIX.nnz
    assert (np.sort(in_tiles.order) == np.arange(MATRIX.nnz)).all()
    operands, out = dense_operands(problem), np.full(problem.out_shape, np.nan, np.float16)
    in_tiles.run(operands, out)
    truth = reference(problem, operands)
    assert truth.max_error(truth.select(problem, out, in_tiles.order)) <= tolerance(problem)
    assert truth.max_error(truth.select(problem, out)) > 0.1
    swapped = in_tiles.order.copy()
    swapped[[3, 90]] = swapped[[90, 3]]
    assert truth.max_error(truth.select(problem, out, swapped)) > 0.01


def test_refuses(target: TableTarget) -> None:
    schedule = {"lanes": 8, "batch": 4, "groups": 8}
    held = TileFormat.from_csr(MATRIX, with_runs(MATRIX, 0.5))
    with pytest.raises(BuildError, match="expected 16-bit floats"):
        TileSddmmPlan(Problem(Op.SDDMM, MATRIX, 8, DType.FLOAT32), target, held, {}, **schedule)
    ell = TileFormat.from_csr(MATRIX, select(MATRIX, 0.5))
    with pytest.raises(BuildError, match="and ELL tiles"):
        TileSddmmPlan(Problem(Op.SDDMM, MATRIX, 8, DType.FLOAT16), target, ell, {}, **schedule)
