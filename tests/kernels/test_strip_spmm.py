"""SpMM over 16 x 16 blocks by one warp a block row, on the host."""

from __future__ import annotations

import numpy as np
import pytest
from problems import random_csr, run_checked, run_with_other_values
from tables import AWKWARD, TableTarget

from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.formats.bsr import BsrFormat
from spmark.impls.kernels.block_spmm import SPMM_STRIPS, STRIPS, StripSpmmPlan

RANDOM = np.random.default_rng(11)
MATRICES = {
    # Nothing divides by a block; some block rows are empty, others have more blocks than a warp has lanes.
    "mixed": random_csr(133, 717, [*RANDOM.integers(0, 40, 60), *[0] * 40, 717, *RANDOM.integers(0, 9, 32)]),
    **AWKWARD,
}


@pytest.fixture(scope="module")
def target(request: pytest.FixtureRequest) -> TableTarget:
    whole = TableTarget(request.session)
    whole.load(list(SPMM_STRIPS.instances()))
    return whole


@pytest.mark.one_in(7)
@pytest.mark.parametrize("width", [8, 64, 136])
@pytest.mark.parametrize("strips", STRIPS)
@pytest.mark.parametrize("tile", [32, 64])
@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16])
def test_product(dtype: DType, name: str, tile: int, strips: int, width: int, target: TableTarget) -> None:
    problem = Problem(Op.SPMM, MATRICES[name], width, dtype)
    plan = StripSpmmPlan(problem, target, BsrFormat.from_csr(problem.matrix, 16, 16), {}, strips=strips, tile=tile)
    run_checked(plan, problem)
    assert plan.config == {"strips": strips, "tile": tile}
    assert plan.deterministic


def test_values_are_read_where_the_plan_says(target: TableTarget) -> None:
    problem = Problem(Op.SPMM, MATRICES["mixed"], 64, DType.FLOAT16)

    def build(problem: Problem) -> StripSpmmPlan:
        return StripSpmmPlan(problem, target, BsrFormat.from_csr(problem.matrix, 16, 16), {}, strips=2, tile=32)

    run_with_other_values(build, problem)
