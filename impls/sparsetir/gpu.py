"""Measuring candidates of the search: a format is converted and uploaded once, every result is checked."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import BuildError
from spmark.impls.core.operators import random_operands, reference, sampled_rows, tolerance
from spmark.impls.core.problem import Op, Problem
from spmark.impls.formats.hyb import HybFormat
from spmark.impls.kernels.ell_buckets import EllBucketsPlan
from spmark.impls.kernels.sddmm import SddmmPlan
from spmark.impls.runtime.cuda import cuda_faults
from spmark.impls.runtime.cudatiming import CudaStopwatch
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import open_target

_CHECKED_ROWS = 512
_WARMUPS, _SAMPLES = 2, 9


class Laboratory:
    """One problem with operands, a reference on some rows, and the format that was used last."""

    def __init__(self, problem: Problem, device: DeviceSpec) -> None:
        self._problem, self._target, self._stopwatch = problem, open_target(device), CudaStopwatch(device)
        sources = random_operands(problem, 0)
        self._operands = [cupy.empty(source.shape, problem.dtype.numpy) for source in sources]
        for source, operand in zip(sources, self._operands, strict=True):
            source.fill(operand, cupy)
        self._out = cupy.empty(problem.out_shape, problem.dtype.numpy)
        rows = sampled_rows(problem)
        longest = int(np.argmax(problem.matrix.row_lengths))
        some = rows[:: max(1, rows.size // _CHECKED_ROWS)]
        self._reference = reference(problem, sources, np.union1d(some, [longest]))
        self._held: tuple[tuple[int, int], HybFormat, list[Any]] | None = None

    def measure(self, config: dict[str, Any]) -> list[float]:
        """Give samples of a config in microseconds, from cold caches.

        Raises
        ------
        BuildError
            It cannot be built, or its result is wrong.
        """
        spmm = self._problem.op is Op.SPMM
        plan = self._over_hyb(config) if spmm else SddmmPlan(self._problem, self._target, {}, **config)
        with cuda_faults():
            self._out.fill(np.nan)
            plan.run(self._operands, self._out)
            selected = cupy.asnumpy(self._reference.select(self._problem, self._out))
        error = self._reference.max_error(selected)
        if not error <= tolerance(self._problem):
            raise BuildError(
                f"wrong result: expected an error of at most {tolerance(self._problem):.3g}, found {error:.3g}"
            )
        run = [lambda: plan.run(self._operands, self._out)]
        self._stopwatch.batch(run, _WARMUPS, cold=True)
        return [float(sample) for sample in self._stopwatch.batch(run, _SAMPLES, cold=True)[0]]

    def _over_hyb(self, config: dict[str, Any]) -> DevicePlan:
        schedule = dict(config)
        key = schedule.pop("c"), schedule.pop("max_width")
        if self._held is None or self._held[0] != key:
            self._held = None
            self._held = key, HybFormat.from_csr(self._problem.matrix, *key), []
        _, held, arrays = self._held
        form = {"c": key[0], "max_width": key[1]}
        plan = EllBucketsPlan(self._problem, self._target, held, form, arrays=arrays, **schedule)
        arrays[:] = plan.arrays
        return plan
