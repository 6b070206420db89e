"""Blocks of X Y^T on the host's matrix unit: every instance, partial blocks, and the tables that its tasks are."""

from __future__ import annotations

import numpy as np
import pytest
from problems import random_csr, run_checked
from tables import DTYPES, TableTarget, every_instance, table_target

from spmark.impls.core.problem import Csr, DType, Op, Problem
from spmark.impls.formats.bsr import BsrFormat
from spmark.impls.kernels.block_sddmm import BLOCK_SDDMM, BlockSddmmPlan
from spmark.impls.runtime.host.ring import HostTarget
from spmark.impls.runtime.template import Instance

PARTIAL = random_csr(75, 131, ([0] * 33 + [1, 131, 7, 40, 16, 2]) + [3, 0, 90, 17, 5, 64] * 6)
"""Two empty block rows first, one full row, rows and columns that no block divides."""
LONG = random_csr(17, 12_000, [0, 10_000, *[3] * 15])


def full_blocks(size: int) -> Csr:
    """Give a matrix of full blocks: two in the first block row, none in the second, five in the third."""
    columns = [(1, 4), (), (0, 1, 2, 4, 5)]
    rng = np.random.default_rng(size)
    dense = np.zeros((3 * size, 6 * size), np.float32)
    for row, some in enumerate(columns):
        for col in some:
            part = rng.uniform(0.5, 1, (size, size)) * rng.choice([-1, 1], (size, size))
            dense[row * size : (row + 1) * size, col * size : (col + 1) * size] = part
    rows, cols = dense.nonzero()
    return Csr.checked(
        dense.shape, np.append(0, np.cumsum(np.bincount(rows, minlength=3 * size))), cols, dense[rows, cols]
    )


target = table_target(BLOCK_SDDMM)


def check(problem: Problem, block: int, target: HostTarget, units: int = 2, threads: int = 128) -> BlockSddmmPlan:
    held = BsrFormat.from_csr(problem.matrix, block, block)
    plan = BlockSddmmPlan(problem, target, held, {}, units=units, threads=threads)
    run_checked(plan, problem)
    return plan


@pytest.mark.full
@every_instance(BLOCK_SDDMM)
def test_every_instance(instance: Instance, target: TableTarget) -> None:
    values = instance.values
    block, vector = int(values["block"]), int(values["vector"])
    matrix = full_blocks(block) if values["full"] else PARTIAL
    for width, scaled in ((9 * vector, False), (17 * vector, True)):
        check(
            Problem(Op.SDDMM, matrix, width, DTYPES[str(values["T"])], scaled), block, target, threads=instance.threads
        )


def test_full_blocks_at_an_odd_width(target: TableTarget) -> None:
    check(Problem(Op.SDDMM, full_blocks(16), 33, DType.FLOAT16), 16, target)


@pytest.mark.full
@pytest.mark.parametrize("units", [1, 3, 400])
@pytest.mark.parametrize("block", [16, 32])
def test_a_long_row_and_every_cut(block: int, units: int, target: TableTarget) -> None:
    plan = check(Problem(Op.SDDMM, LONG, 8, DType.FLOAT16), block, target, units)
    assert plan.config == {"block": block, "units": units, "threads": 128}
    assert plan.stored == BsrFormat.from_csr(LONG, block, block).stored


@pytest.mark.parametrize("width", [1, 64, 65, 130])
def test_one_column_and_no_columns_left_over(width: int, target: TableTarget) -> None:
    check(Problem(Op.SDDMM, random_csr(40, 1, [1, 0, 1, 1] * 10), width, DType.FLOAT16), 16, target)
    check(Problem(Op.SDDMM, random_csr(1, 40, [25]), width, DType.FLOAT16, True), 32, target)
