"""SpMM over blocks on the matrix unit: every instance on the host, and what thread blocks read first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from problems import dense_operands, random_csr, run_checked
from tables import AWKWARD, DTYPES, TableTarget, every_instance, table_target

from spmark.impls.core.errors import BuildError
from spmark.impls.core.operators import reference
from spmark.impls.core.problem import Csr, DType, Op, Problem
from spmark.impls.core.tolerance import tolerance
from spmark.impls.formats.bsr import BsrFormat, DbsrFormat, SrBcrsFormat
from spmark.impls.kernels.block_spmm import SPMM_BLOCKS, BlockSpmmPlan
from spmark.impls.runtime.host.ring import HostTarget
from spmark.impls.runtime.template import Instance

RANDOM = np.random.default_rng(5)
# The second hundred of rows is empty, so that some block rows of every height are; nothing divides by a block.
MATRIX = random_csr(301, 217, [*RANDOM.integers(0, 30, 99), 217, *[0] * 128, *RANDOM.integers(0, 9, 73)])
target = table_target(SPMM_BLOCKS)


def check(problem: Problem, target: HostTarget, held: Any, **schedule: Any) -> BlockSpmmPlan:
    plan = BlockSpmmPlan(problem, target, held, {}, **schedule)
    run_checked(plan, problem)
    assert plan.stored == held.stored
    return plan


@pytest.mark.one_in(3)
@every_instance(SPMM_BLOCKS)
def test_every_instance(instance: Instance, target: TableTarget) -> None:
    rows, tile, depth = (int(instance.values[name]) for name in ("rows", "tile", "depth"))
    # One column tile and a part of another.
    width = tile + 8 if instance.values["vector"] == 8 else tile + 3
    problem = Problem(Op.SPMM, MATRIX, width, DTYPES[str(instance.values["T"])])
    for steps, turned, parts in ((1, False, 3), (2, True, 1)):
        if instance.values["gathered"]:
            held: Any = SrBcrsFormat.from_csr(MATRIX, rows, steps * depth)
        else:
            held = (BsrFormat if turned else DbsrFormat).from_csr(MATRIX, rows, steps * depth)
        plan = check(problem, target, held, tile=tile, depth=depth, turned=turned, parts=parts)
        assert plan.config == {"tile": tile, "depth": depth, "turned": turned, "parts": parts}
        assert plan.deterministic


@pytest.mark.one_in(3)
@pytest.mark.parametrize("width", [8, 1])
@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_matrices(name: str, width: int, target: TableTarget) -> None:
    matrix = AWKWARD[name]
    problem = Problem(Op.SPMM, matrix, width, DType.FLOAT16)
    depth = 32 if width == 8 else 16
    for held in (
        BsrFormat.from_csr(matrix, 32, 32),
        DbsrFormat.from_csr(matrix, 32, 32),
        SrBcrsFormat.from_csr(matrix, 16, 32),
    ):
        check(problem, target, held, tile=64, depth=depth, turned=True)
        check(problem, target, held, tile=64, depth=depth, turned=True, parts=8)


@pytest.mark.parametrize("turned", [False, True])
def test_counters_are_zero_again_after_each_run(turned: bool, target: TableTarget) -> None:
    problem = Problem(Op.SPMM, MATRIX, 136, DType.FLOAT16)  # two tiles of columns and a part of a third
    held = BsrFormat.from_csr(MATRIX, 32, 32)
    plan = check(problem, target, held, tile=64, depth=32, turned=turned, parts=4)
    (operand,) = dense_operands(problem)
    results = [np.full(problem.out_shape, np.nan, np.float16) for _ in range(2)]
    for out in results:
        plan.run([operand], out)
    assert reference(problem, [operand]).max_error(results[1]) <= tolerance(problem)
    np.testing.assert_array_equal(results[0], results[1])


def test_blocks_that_no_kernel_takes_are_refused(small_matrix: Csr, target: TableTarget) -> None:
    problem = Problem(Op.SPMM, small_matrix, 8, DType.FLOAT16)
    with pytest.raises(BuildError, match="expected rows out of"):
        BlockSpmmPlan(problem, target, BsrFormat.from_csr(small_matrix, 48, 32), {}, tile=64, depth=32)
