"""The unfused relational operator: which way to multiply stays, and rows of more edges than a thread adds up."""

from __future__ import annotations

import numpy as np
import pytest
from races import MadeUpTimer
from relational import drawn, relational_problems, run_relational

from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.errors import DeviceError
from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import DType
from spmark.impls.core.relational import RelationalProblem
from spmark.impls.gather_gemm_scatter import plan as module
from spmark.impls.runtime.device import find
from spmark.impls.runtime.target import open_target
from spmark.impls.table import create
from spmark.impls.tuning import timer

HOST = find("host-simt")
GPU = HOST.model_copy(update={"kind": DeviceKind.CUDA, "name": "made-up"})
PROBLEM = relational_problems((16, 32))["hub-16-32-float16"]


@pytest.mark.parametrize(("grouped_us", "kept"), [(5.0, "grouped"), (20.0, "each"), (None, "each")], ids=str)
def test_the_faster_way_to_multiply_stays(grouped_us: float | None, kept: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where cuBLAS has no grouped call, the other way stays."""

    def cost(config: Config) -> float:
        if config["products"] == "each":
            return 10.0
        if grouped_us is None:
            raise DeviceError("expected cublas, found none that fits")
        return grouped_us

    monkeypatch.setattr(module, "open_target", lambda device: open_target(HOST))
    monkeypatch.setattr(timer, "PlanTimer", lambda problem, device: MadeUpTimer(cost))
    plan = create("gather_gemm_scatter").build(PROBLEM, GPU)
    assert plan.config == {"products": kept}
    assert plan.search is not None
    assert len(plan.search.seen) == 2
    assert plan.phases_s["search"] > 0


def test_a_row_of_many_edges_is_added_up_in_pieces() -> None:
    matrix = drawn(10, 500, [40, 300], hub=400)
    assert matrix.longest_row > 2 * 64
    plan = create("gather_gemm_scatter").build(RelationalProblem(matrix, 8, 12, DType.FLOAT16), HOST)
    out = run_relational(plan, RelationalProblem(matrix, 8, 12, DType.FLOAT16))
    assert np.isfinite(out).all()
    assert plan.deterministic
