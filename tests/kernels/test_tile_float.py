"""SpMM over tiles in float32, each product as three of tf32: every instance on the host, and how accurate it is."""

from __future__ import annotations

import numpy as np
import pytest
from kernels.test_tile_spmm import MATRIX, select
from problems import dense_operands, random_csr
from tables import TableTarget, every_instance, table_target

from spmark.impls.core.errors import BuildError
from spmark.impls.core.operators import Reference, reference
from spmark.impls.core.problem import Csr, DType, Op, Problem
from spmark.impls.core.tolerance import tolerance
from spmark.impls.formats.tiles import TileFormat
from spmark.impls.kernels.tile_spmm import SPMM_TILES, TileSpmmPlan
from spmark.impls.kernels.tile_tasks import ALONE, MOST
from spmark.impls.runtime.template import Instance

LOADS = {"vector": 4, "work": 16}
target = table_target(SPMM_TILES)


def multiply(
    matrix: Csr, share: float, width: int, target: TableTarget, **schedule: int
) -> tuple[TileSpmmPlan, np.ndarray, Reference]:
    """Build, run over NaN and compare with the reference."""
    problem = Problem(Op.SPMM, matrix, width, DType.FLOAT32)
    held = TileFormat.from_csr(matrix, select(matrix, share))
    plan = TileSpmmPlan(problem, target, held, {}, **{**LOADS, "lanes": 8, **schedule})
    operands = dense_operands(problem)
    out = np.full(problem.out_shape, np.nan, np.float32)
    plan.run(operands, out)
    truth = reference(problem, operands)
    assert truth.max_error(out) <= tolerance(problem)
    return plan, out, truth


@pytest.mark.full
@every_instance(SPMM_TILES, where=lambda instance: instance.values["T"] == "float")
def test_every_instance(instance: Instance, target: TableTarget) -> None:
    width, lanes = 24 if instance.values["columns"] == 4 else 2 * 64 + 8, int(instance.values["lanes"])
    full = random_csr(77, 290, [1, 290, *np.random.default_rng(5).integers(1, 60, 75)])
    cases = ((MATRIX, 0.6), (MATRIX, 1.0), (MATRIX, 0.0)) if instance.values["mixed"] else ((full, 1.0),)
    for matrix, share in cases:
        for alone in ALONE:
            plan, _, _ = multiply(matrix, share, width, target, lanes=lanes, alone=alone)
            assert plan.deterministic == (share == 1.0)
            assert plan.config["ahead"] == 1


def test_rows_of_one_product_lose_no_more_than_the_lowest_terms(target: TableTarget) -> None:
    """Where nothing is added up, the error is that of the split: low x low, 2^-22 of the product."""
    _, out, truth = multiply(random_csr(160, 300, [1] * 160), 1.0, 64, target)
    error = np.abs(out - truth.result) / truth.magnitude
    assert 2.0**-25 < error.max() <= 2.0**-22 + 2.0**-23
    plain = np.abs(np.float32(out).view(np.uint32) & 0x1FFF)
    assert plain.max() > 0  # not tf32


def test_long_sums_are_as_accurate_as_float32(target: TableTarget) -> None:
    matrix = random_csr(16, 4096, [4096] * 2 + [900] * 14)
    problem = Problem(Op.SPMM, matrix, 8, DType.FLOAT32)
    _, out, truth = multiply(matrix, 1.0, 8, target)
    assert truth.max_error(out) < tolerance(problem) / 20
    assert not multiply(random_csr(16, 16 * 4 * MOST + 40, [400] * 15 + [4136]), 1.0, 8, target)[0].deterministic


@pytest.mark.parametrize(
    "matrix",
    [random_csr(5, 4, [0] * 5), random_csr(1, 1, [1]), random_csr(40, 30, [0] * 20 + [1] + [0] * 19)],
    ids=["no_nonzeros", "one_by_one", "a_window_of_one_nonzero"],
)
def test_extremes(matrix: Csr, target: TableTarget) -> None:
    for share in (1.0, 0.5):
        multiply(matrix, share, 32, target)


def test_refuses(target: TableTarget) -> None:
    held = TileFormat.from_csr(MATRIX, select(MATRIX, 0.5))
    problem = Problem(Op.SPMM, MATRIX, 32, DType.FLOAT32)
    with pytest.raises(BuildError, match=r"static_asserts allow, found .*'vectors': 2"):
        TileSpmmPlan(problem, target, held, {}, lanes=8, vectors=2, **LOADS)
    low = TileFormat.from_csr(MATRIX, select(MATRIX, 0.5, height=8))
    for wrong, tiles in ((problem, low), (Problem(Op.SPMM, MATRIX, 20, DType.FLOAT32), held)):
        with pytest.raises(BuildError, match=r"J a multiple of 8, block tiles of \(16,\) rows"):
            TileSpmmPlan(wrong, target, tiles, {}, lanes=8, **LOADS)
