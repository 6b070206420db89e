"""Two-stage SDDMM on the host: awkward matrices (every instance: test_gespmm.py)."""

from __future__ import annotations

import pytest
from problems import run_checked
from tables import AWKWARD, TableTarget, table_target

from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.kernels.sddmm import SDDMM_CSR, SddmmPlan

target = table_target(SDDMM_CSR)


@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_matrices(name: str, target: TableTarget) -> None:
    matrix = AWKWARD[name]
    for width, vector, dtype, scaled in ((1, 1, DType.FLOAT32, True), (33, 1, DType.FLOAT16, False)):
        problem = Problem(Op.SDDMM, matrix, width, dtype, scaled)
        plan = SddmmPlan(problem, target, {}, vector=vector, lanes=8, batch=4)
        run_checked(plan, problem)
        # The array of rows belongs to the plan, and its making to the build.
        values = matrix.nnz * dtype.itemsize if scaled else 0
        assert plan.device_bytes == 8 * matrix.nnz + values
        assert "convert" in plan.phases_s
