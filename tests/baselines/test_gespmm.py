"""Ring two: every instance of gespmm's tables, run on the host under sanitizers; and which instance a problem gets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from problems import dense_operands, random_csr
from tables import TableTarget, every_instance, table_target

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.operators import reference
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.core.tolerance import tolerance
from spmark.impls.gespmm.plan import GeSpmm, sddmm_vector_and_lanes
from spmark.impls.kernels.csr_spmm import SPMM_CSR, CsrSpmmPlan, vector_and_lanes
from spmark.impls.kernels.sddmm import SDDMM_CSR, SddmmPlan
from spmark.impls.runtime.device import shipped_calibration
from spmark.impls.runtime.template import C_TYPES, Instance

# Up to four stages of 32 non-zeros a row: what is staged over must have been read.
MATRIX = random_csr(23, 97, [0, 1, 2, 3, 97, 7, 0, 33, 64, 5] * 2 + [1, 0, 9])
DTYPES = {name: dtype for dtype, name in C_TYPES.items()}
spmm_target = table_target(SPMM_CSR)
sddmm_target = table_target(SDDMM_CSR)


def error_and_limit(plan: CsrSpmmPlan | SddmmPlan, problem: Problem) -> tuple[float, float]:
    operands = dense_operands(problem)
    out = np.full(problem.out_shape, np.nan, problem.dtype.numpy)
    plan.run(operands, out)
    return reference(problem, operands).max_error(out), tolerance(problem)


@pytest.mark.one_in(3)
@every_instance(SPMM_CSR)
def test_every_spmm_instance(instance: Instance, spmm_target: TableTarget) -> None:
    values = instance.values
    vector, lanes, coarsen = (int(values[key]) for key in ("vector", "lanes", "coarsen"))
    # A tile and a part of one: the last lanes have nothing to do.
    problem = Problem(Op.SPMM, MATRIX, vector * (lanes * coarsen + 3), DTYPES[str(values["T"])])
    plan = CsrSpmmPlan(problem, spmm_target, {}, vector=vector, lanes=lanes, coarsen=coarsen)
    error, limit = error_and_limit(plan, problem)
    assert error <= limit


@pytest.mark.one_in(4)
@every_instance(SDDMM_CSR)
def test_every_sddmm_instance(instance: Instance, sddmm_target: TableTarget) -> None:
    values = instance.values
    vector, lanes = int(values["vector"]), int(values["lanes"])
    width = vector * (lanes + 3)
    batch, searched, threads = int(values["batch"]), bool(values["searched"]), int(values["threads"])
    schedule: dict[str, Any] = {"vector": vector, "lanes": lanes, "batch": batch, "searched": searched}
    for scaled in (False, True):
        problem = Problem(Op.SDDMM, MATRIX, width, DTYPES[str(values["T"])], scaled=scaled)
        plan = SddmmPlan(problem, sddmm_target, {}, **schedule, threads=threads)
        error, limit = error_and_limit(plan, problem)
        assert error <= limit


@pytest.mark.parametrize("dtype", list(DType))
@pytest.mark.parametrize("width", [*range(1, 70), 96, 100, 127, 128, 130, 256, 500, 512, 1000])
def test_loads_are_aligned_in_every_row_and_in_the_table(width: int, dtype: DType) -> None:
    for choose, template in ((vector_and_lanes, SPMM_CSR), (sddmm_vector_and_lanes, SDDMM_CSR)):
        vector, lanes = choose(width, dtype)
        assert width % vector == 0
        assert vector * dtype.itemsize <= 16
        assert vector in template.space["vector"]
        assert lanes in template.space["lanes"]


def h200() -> DeviceSpec:
    return DeviceSpec.load(Path(shipped_calibration("nvidia-h200")))


def test_widths_beyond_the_grid_are_refused() -> None:
    reason = GeSpmm().unsupported(Problem(Op.SPMM, MATRIX, 2 * 65535 * 32 + 1), h200())
    assert reason is not None
    assert "expected J of at most" in reason
    assert GeSpmm().unsupported(Problem(Op.SPMM, MATRIX, 512), h200()) is None


def test_an_illegal_tunable_is_refused() -> None:
    with pytest.raises(ValueError, match="coarsen"):
        GeSpmm(coarsen=3)
