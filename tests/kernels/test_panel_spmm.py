"""SpMM over SR-BCRS(8, 16) on the matrix unit, run on the host under sanitizers."""

from __future__ import annotations

import numpy as np
import pytest
from problems import random_csr, run_checked
from tables import AWKWARD, DTYPES, TableTarget, every_instance, table_target

from spmark.impls.core.problem import Op, Problem
from spmark.impls.formats.bsr import SrBcrsFormat
from spmark.impls.kernels.block_spmm import SPMM_PANELS, WarpSpmmPlan
from spmark.impls.runtime.template import Instance

RANDOM = np.random.default_rng(6)
MATRICES = {
    "mixed": random_csr(75, 131, [*RANDOM.integers(0, 40, 30), *[0] * 20, 131, *RANDOM.integers(0, 5, 24)]),
    **AWKWARD,
}
target = table_target(SPMM_PANELS)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", MATRICES)
@every_instance(SPMM_PANELS)
def test_every_instance(instance: Instance, name: str, target: TableTarget) -> None:
    matrix, tile = MATRICES[name], int(instance.values["tile"])
    width = tile + 8 if instance.values["vector"] == 8 else tile + 3
    problem = Problem(Op.SPMM, matrix, width, DTYPES[str(instance.values["T"])])
    held = SrBcrsFormat.from_csr(matrix, 8, 16)
    for turned in (False, True):
        plan = WarpSpmmPlan(problem, target, held, {}, tile=tile, turned=turned)
        run_checked(plan, problem)
        assert plan.config == {"tile": tile, "turned": turned}
        assert (plan.stored, plan.deterministic) == (held.stored, True)
