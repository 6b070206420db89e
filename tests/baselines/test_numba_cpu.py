from __future__ import annotations

import numpy as np
import pytest
from problems import dense_operands, problems

from spmark.impls.numba_cpu import kernels
from spmark.impls.numba_cpu.plan import NumbaCpu
from spmark.impls.runtime.device import find


@pytest.mark.parametrize("name", ["spmm-hub-J32-float32", "sddmm_scaled-hub-J32-float32"])
def test_kernels_compile_when_they_are_built_and_never_in_a_run(name: str) -> None:
    problem = problems()[name]
    plan = NumbaCpu().build(problem, find("cpu"))
    kernel = kernels.spmm if name.startswith("spmm") else kernels.sddmm
    before = len(kernel.signatures)
    assert before >= 1
    operands = dense_operands(problem)
    plan.run(operands, np.empty(problem.out_shape, np.float32))
    assert len(kernel.signatures) == before
