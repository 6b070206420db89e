"""What a search does with a plan that it built: run it on random operands, check it, time it from cold caches."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import BuildError
from spmark.impls.core.interfaces import Plan
from spmark.impls.core.operators import random_operands, reference, sampled_rows, tolerance
from spmark.impls.core.problem import Problem
from spmark.impls.runtime.cuda import cuda_faults
from spmark.impls.runtime.cudatiming import CudaStopwatch
from spmark.impls.runtime.timing import Stopping, take_samples
from spmark.impls.runtime.withcupy import cupy

_CHECKED_ROWS = 512
_WARMUPS, _SAMPLES = 2, 9
_ALTERNATING = Stopping(max_samples=50, max_seconds=0.1, warmups=_WARMUPS, batch=5)


class Trial:
    """One problem on a GPU with operands, a result and a reference on some rows, for any number of plans.

    Parameters
    ----------
    problem : Problem
    device : DeviceSpec
        Of the GPU that is there.
    """

    def __init__(self, problem: Problem, device: DeviceSpec) -> None:
        self._problem, self._stopwatch = problem, CudaStopwatch(device)
        sources = random_operands(problem, 0)
        self._operands = [cupy.empty(source.shape, problem.dtype.numpy) for source in sources]
        for source, operand in zip(sources, self._operands, strict=True):
            source.fill(operand, cupy)
        self._out = cupy.empty(problem.out_shape, problem.dtype.numpy)
        rows = sampled_rows(problem)
        longest = int(np.argmax(problem.matrix.row_lengths))
        some = rows[:: max(1, rows.size // _CHECKED_ROWS)]
        self._reference = reference(problem, sources, np.union1d(some, [longest]))

    def samples_us(self, plan: Plan) -> list[float]:
        """Check a plan, then give times of its runs in microseconds, each from cold caches.

        Raises
        ------
        BuildError
            Its result is wrong; says by how much.
        KernelFault
            It broke the device.
        """
        self.check(plan)
        return self.times_us(plan)

    def check(self, plan: Plan) -> None:
        """Refuse a plan whose result is wrong; raises as `samples_us`."""
        with cuda_faults():
            self._out.fill(np.nan)
            plan.run(self._operands, self._out)
            selected = cupy.asnumpy(self._reference.select(self._problem, self._out, plan.order))
        error, allowed = self._reference.max_error(selected), tolerance(self._problem)
        if not error <= allowed:
            raise BuildError(f"wrong result: expected an error of at most {allowed:.3g}, found {error:.3g}")

    def times_us(self, plan: Plan, samples: int = _SAMPLES) -> list[float]:
        """Give times of a plan that was checked, in microseconds, each from cold caches."""
        run = [lambda: plan.run(self._operands, self._out)]
        self._stopwatch.batch(run, _WARMUPS, cold=True)
        return [float(sample) for sample in self._stopwatch.batch(run, samples, cold=True)[0]]

    def alternating_us(self, plans: Sequence[Plan]) -> list[list[float]]:
        """Give times of plans that were checked, in alternation by the suite's protocol, microseconds, each cold.

        Samples are taken until all medians are known to 1 %, at least 10 and at most 50, or a tenth of a second is up.
        """
        runs = [partial(plan.run, self._operands, self._out) for plan in plans]
        return take_samples(self._stopwatch, runs, _ALTERNATING).times_us
