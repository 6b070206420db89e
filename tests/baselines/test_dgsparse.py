"""dgsparse: every instance on the host under sanitizers, non-zeros past whole blocks, and what it refuses."""

from __future__ import annotations

import pytest
from problems import matrices, random_csr, run_checked
from tables import TableTarget, every_instance, table_target

from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.dgsparse.plan import BLOCK, SDDMM_COO, CooSddmmPlan, DgSparse
from spmark.impls.runtime.device import find
from spmark.impls.runtime.template import Instance

HOST = find("host-simt")
MATRIX = random_csr(23, 97, [0, 1, 2, 3, 97, 7, 0, 33, 64, 5] * 2 + [1, 0, 9])
target = table_target(SDDMM_COO)


@every_instance(SDDMM_COO)
def test_every_instance(instance: Instance, target: TableTarget) -> None:
    vector = int(instance.values["vector"])
    for columns in (1, 32, 64 + vector):  # less than a step, one, and two with a part of one
        problem = Problem(Op.SDDMM, MATRIX, vector * (-(-columns // vector) | 1))
        plan = CooSddmmPlan(problem, target)
        run_checked(plan, problem)
        assert plan.config == {"vector": vector}


@pytest.mark.parametrize("nnz", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK - 1])
def test_non_zeros_past_whole_blocks(nnz: int, target: TableTarget) -> None:
    for width in (32, 34, 33):
        problem = Problem(Op.SDDMM, random_csr(3, 60, [0, nnz, 0]), width)
        plan = CooSddmmPlan(problem, target)
        run_checked(plan, problem)
        assert plan.device_bytes == 8 * nnz
        assert "convert" in plan.phases_s


def test_what_dgsparse_does_not_compute_is_refused() -> None:
    matrix = matrices()["wide"]
    half = DgSparse().unsupported(Problem(Op.SDDMM, matrix, 32, DType.FLOAT16), HOST)
    scaled = DgSparse().unsupported(Problem(Op.SDDMM, matrix, 32, scaled=True), HOST)
    assert half is not None
    assert "expected float32" in half
    assert scaled is not None
    assert "does not multiply by A" in scaled
    assert DgSparse().unsupported(Problem(Op.SDDMM, matrix, 33), HOST) is None
