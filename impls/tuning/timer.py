"""The clock of a race: plans of one problem run on random operands, are checked, and are timed from cold caches."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import cached_property, partial
from threading import get_ident
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.errors import BuildError
from spmark.impls.core.interfaces import Plan
from spmark.impls.core.operators import RandomOperand, Reference, random_operands, reference, sampled_rows
from spmark.impls.core.relational import AnyProblem
from spmark.impls.core.tolerance import why_wrong
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.timing import HostStopwatch, Run, Stopping, Stopwatch, take_samples

_CHECKED_ROWS = 512
_LONG_US = 50_000.0
"""The time of a run that needs no warm-up: a search that meets such plans would take minutes."""
_ALTERNATING = Stopping(max_samples=50, max_seconds=0.1, warmups=2, batch=5)
_HOST_S = 0.1
"""Seconds for the samples of one plan on the host, where a run or emptying the caches may take tens of milliseconds."""


class PlanTimer(Stopwatch):
    """One problem on a device with operands, a result and a reference on some rows, for any number of plans.

    It draws the order of several runs anew for each round. A plan that ran right after another with the same code found
    this code in the multiprocessors' caches (9.9 us instead of 13.7), so that no order may repeat.

    Parameters
    ----------
    problem : Problem or RelationalProblem
    device : DeviceSpec
        The GPU of this machine; all others stand for the host's cores.
    seed : int
        Seed of the operands, and of the order in which plans take turns.
    """

    def __init__(self, problem: AnyProblem, device: DeviceSpec, seed: int = 0) -> None:
        self._problem, self._on_gpu = problem, device.kind is DeviceKind.CUDA
        self._random = np.random.default_rng(seed)
        ours: Any = np, nullcontext, HostStopwatch(device.l2_bytes), RandomOperand.fill, _taken
        if self._on_gpu:
            from spmark.impls.runtime.cuda import cuda_faults
            from spmark.impls.runtime.cudalab import CudaStopwatch, draw, taken
            from spmark.impls.runtime.withcupy import cupy

            drawing, taking = partial(draw, arch=device.arch), partial(taken, dtype=problem.dtype, arch=device.arch)
            ours = cupy, cuda_faults, CudaStopwatch(device), drawing, taking
        xp, self._faults, stopwatch, drawing, self._taken = ours
        self._stopwatch: Stopwatch = stopwatch
        self._sources = random_operands(problem, seed)
        self._operands = [xp.empty(shape, problem.dtype.numpy) for shape in problem.operand_shapes]
        for source, operand in zip(self._sources, self._operands, strict=True):
            drawing(source, operand)
        self._out = xp.empty(problem.out_shape, problem.dtype.numpy)

    def batch(self, runs: Sequence[Run], rounds: int, cold: bool) -> NDArray[np.float64]:
        """Time every run once in each round."""
        if len(runs) == 1:
            return self._stopwatch.batch(runs, rounds, cold)
        times = np.empty((len(runs), rounds))
        for turn in range(rounds):
            order = self._random.permutation(len(runs))
            times[order, turn] = self._stopwatch.batch([runs[at] for at in order], 1, cold)[:, 0]
        return times

    @cached_property
    def _reference(self) -> Reference:
        rows = sampled_rows(self._problem)
        longest = int(np.argmax(self._problem.matrix.row_lengths))
        some = rows[:: max(1, rows.size // _CHECKED_ROWS)]
        return reference(self._problem, self._sources, np.union1d(some, [longest]))

    def check(self, plan: Plan) -> None:
        """Refuse a plan whose result is wrong.

        Raises
        ------
        BuildError
            The result is wrong; says by how much.
        KernelFault
            The plan broke the GPU.
        """
        with self._faults():
            self._forget()
            plan.run(self._operands, self._out)
            selected = self._taken(self._out, self._reference.places(self._problem, plan.order))
        unwritten = int(np.count_nonzero(np.isnan(self._problem.dtype.numbers(selected))))
        reason = why_wrong(self._problem, self._reference.max_error(selected), unwritten, plan.half_sums)
        if reason is not None:
            raise BuildError(f"wrong result: {reason}")

    def _forget(self) -> None:
        """Fill the result with NaN: on a GPU with bytes of ones, since a first process would compile CuPy's kernel."""
        if self._on_gpu:
            self._out.data.memset_async(0xFF, self._out.nbytes)
        else:
            self._out.fill(self._problem.dtype.nan)

    def times_us(self, plans: Sequence[Plan], rounds: int) -> list[list[float]]:
        """Time every plan once in each round from cold caches, in an order drawn for the round; microseconds.

        On a GPU one run warms up, beside that of `check`. Where it takes a twentieth of a second or longer for one of
        the plans, it is the sample.
        On the host there are fewer rounds, at least two, where the time of `_HOST_S` a plan is up.
        """
        runs = self._runs(plans)
        if not self._on_gpu:
            most_s = _HOST_S * len(plans)
            stopping = Stopping(half_width=0, min_samples=2, max_samples=rounds, max_seconds=most_s, warmups=1, batch=1)
            return take_samples(self, runs, stopping).times_us
        samples = self.batch(runs, 1, cold=True)
        if samples.min(axis=1).max() < _LONG_US:
            samples = self.batch(runs, rounds, cold=True)
        return [[round(float(time), 3) for time in times] for times in samples]

    def alternating_us(self, plans: Sequence[Plan]) -> list[list[float]]:
        """Time plans by turns, by the suite's protocol, each from cold caches, in an order drawn for each round.

        Samples are taken until all medians are known to 1 %, at least 10 and at most 50, or a tenth of a second is up.
        """
        return take_samples(self, self._runs(plans), _ALTERNATING).times_us

    def _runs(self, plans: Sequence[Plan]) -> list[Run]:
        """Give what is timed; a device's plan need not look at the same operands again, which takes half of a call."""
        calls = [plan.enqueue if isinstance(plan, DevicePlan) else plan.run for plan in plans]
        return [partial(call, self._operands, self._out) for call in calls]


def _taken(array: NDArray[Any], places: NDArray[np.int64] | None) -> NDArray[Any]:
    """Give rows of a result, or all of it; as `spmark.impls.runtime.cudalab.taken` does on a GPU."""
    return array if places is None else array[places]


_OPEN: WeakValueDictionary[tuple[int, int, str], PlanTimer] = WeakValueDictionary()


def timer_of(problem: AnyProblem, device: DeviceSpec) -> PlanTimer:
    """Give the timer that a race of this thread has for the same problem object, or a new one.

    In a race among implementations most of them race by themselves: operands, reference and flush buffer are shared.
    """
    key = id(problem), get_ident(), device.name  # a timer keeps its problem, so no other one has its number meanwhile
    timer = _OPEN.get(key)
    if timer is None:
        timer = _OPEN[key] = PlanTimer(problem, device)
    return timer
