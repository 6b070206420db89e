"""featgraph: every instance on the host under sanitizers, narrow operands, and what it refuses."""

from __future__ import annotations

import pytest
from problems import matrices, random_csr, run_checked
from tables import DTYPES, TableTarget, every_instance, table_target

from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.featgraph.plan import EDGE_SDDMM, WARP, EdgeSddmmPlan, FeatGraph
from spmark.impls.runtime.device import find
from spmark.impls.runtime.template import Instance

MATRIX = random_csr(23, 97, [0, 1, 2, 3, 97, 7, 0, 33, 64, 5] * 2 + [1, 0, 9])
target = table_target(EDGE_SDDMM)


@every_instance(EDGE_SDDMM)
def test_every_instance(instance: Instance, target: TableTarget) -> None:
    values = instance.values
    for width in (1, WARP - 1) if values["lanes"] == 1 else (WARP, 3 * WARP + 5):
        problem = Problem(Op.SDDMM, MATRIX, width, DTYPES[str(values["T"])])
        plan = EdgeSddmmPlan(problem, target)
        run_checked(plan, problem)
        assert plan.config == {"lanes": values["lanes"]}
        assert plan.deterministic


@pytest.mark.parametrize("nnz", [0, 1, 7, 8, 9])
def test_non_zeros_past_whole_blocks(nnz: int, target: TableTarget) -> None:
    problem = Problem(Op.SDDMM, random_csr(3, 60, [0, nnz, 0]), 40)
    plan = EdgeSddmmPlan(problem, target)
    run_checked(plan, problem)
    assert plan.device_bytes == 8 * nnz
    assert "convert" in plan.phases_s


def test_scaling_is_refused() -> None:
    host, matrix = find("host-simt"), matrices()["wide"]
    refused = FeatGraph().unsupported(Problem(Op.SDDMM, matrix, 32, scaled=True), host)
    assert refused is not None
    assert "does not multiply by A" in refused
    assert FeatGraph().unsupported(Problem(Op.SDDMM, matrix, 3, DType.FLOAT16), host) is None
