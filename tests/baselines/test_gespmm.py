"""Ring two: every instance of gespmm's tables, run on the host under sanitizers; and which instance a problem gets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from problems import random_csr, run_checked
from tables import DTYPES, TableTarget, every_instance, table_target

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.problem import Op, Problem
from spmark.impls.gespmm.plan import GeSpmm
from spmark.impls.kernels.csr_spmm import SPMM_CSR, THREADS, CsrSpmmPlan
from spmark.impls.kernels.sddmm import SDDMM_CSR, SddmmPlan
from spmark.impls.runtime.device import shipped_calibration
from spmark.impls.runtime.template import Instance

# Up to four stages of 32 non-zeros a row: what is staged over must have been read.
MATRIX = random_csr(23, 97, [0, 1, 2, 3, 97, 7, 0, 33, 64, 5] * 2 + [1, 0, 9])
spmm_target = table_target(SPMM_CSR)
sddmm_target = table_target(SDDMM_CSR)


@pytest.mark.one_in(3)
@every_instance(SPMM_CSR)
def test_every_spmm_instance(instance: Instance, spmm_target: TableTarget) -> None:
    values = instance.values
    vector, lanes, coarsen = (int(values[key]) for key in ("vector", "lanes", "coarsen"))
    # A tile and a part of one: the last lanes have nothing to do.
    problem = Problem(Op.SPMM, MATRIX, vector * (lanes * coarsen + 3), DTYPES[str(values["T"])])
    schedule = {"vector": vector, "lanes": lanes, "coarsen": coarsen, "threads": THREADS}
    plan = CsrSpmmPlan(problem, spmm_target, SPMM_CSR, vector * lanes * coarsen, {}, **schedule)
    run_checked(plan, problem)


def test_the_last_positions_that_a_matrix_may_have(tmp_path: Path, spmm_target: TableTarget) -> None:
    """The steps after a row's last non-zero pass 2^31 where this non-zero is the last that int32 can number."""
    end, length, width = 2**31 - 1, 33, 8
    for name, dtype, element in (("indices", np.int32, 1), ("values", np.float32, 2.0)):
        with (tmp_path / name).open("wb") as file:
            file.truncate(4 * end)
            file.seek(4 * (end - length))
            file.write(np.full(length, element, dtype).tobytes())
    indices = np.memmap(tmp_path / "indices", np.int32, "r", shape=(end,))
    values = np.memmap(tmp_path / "values", np.float32, "r", shape=(end,))
    dense, out = np.array([[np.nan] * width, [0.5] * width], np.float32), np.full((1, width), np.nan, np.float32)
    (kernel,) = spmm_target.load([SPMM_CSR.instance(T="float", vector=1, lanes=8, coarsen=1, threads=128)])
    indptr = np.array([end - length, end], np.int32)
    kernel.launch((1, 1, 1), (np.int32(1), np.int32(width), indptr, indices, values, dense, out))
    assert out.tolist() == [[float(length)] * width]


@pytest.mark.one_in(4)
@every_instance(SDDMM_CSR)
def test_every_sddmm_instance(instance: Instance, sddmm_target: TableTarget) -> None:
    values = instance.values
    vector, lanes = int(values["vector"]), int(values["lanes"])
    width = vector * (lanes + 3)
    batch, threads = int(values["batch"]), int(values["threads"])
    schedule: dict[str, Any] = {"vector": vector, "lanes": lanes, "batch": batch}
    for scaled in (False, True):
        problem = Problem(Op.SDDMM, MATRIX, width, DTYPES[str(values["T"])], scaled=scaled)
        plan = SddmmPlan(problem, sddmm_target, {}, **schedule, threads=threads)
        run_checked(plan, problem)


def h200() -> DeviceSpec:
    return DeviceSpec.load(Path(shipped_calibration("nvidia-h200")))


def test_widths_beyond_the_grid_are_refused() -> None:
    reason = GeSpmm().unsupported(Problem(Op.SPMM, MATRIX, 2 * 65535 * 32 + 1), h200())
    assert reason is not None
    assert "expected J of at most" in reason
    assert GeSpmm().unsupported(Problem(Op.SPMM, MATRIX, 512), h200()) is None
