"""Timing formats of one matrix on a GPU, for labels and for tables of schedules: checked, and from cold caches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import SpmarkError, UnsupportedError
from spmark.impls.core.problem import Csr, DType, Op, Problem
from spmark.impls.formats.cell import cell_layout
from spmark.impls.kernels.ell_buckets import EllBucketsPlan
from spmark.impls.kernels.hyb_convert import HybConverter
from spmark.impls.kernels.trial import Trial
from spmark.impls.liteform.compose import Form
from spmark.impls.liteform.cost import count
from spmark.impls.liteform.labels import WIDTHS
from spmark.impls.liteform.plan import LiteForm
from spmark.impls.liteform.schedule import Entry, Schedule, candidates, schedule_for
from spmark.impls.liteform.search import search
from spmark.impls.runtime.target import open_target


class GpuTimer:
    """A `spmark.impls.liteform.labels.Timer` of one matrix on the GPU that is there.

    Parameters
    ----------
    matrix : Csr
    device : DeviceSpec
    dtype : DType
    widths : sequence of int
        J; operands of all of them are held at once.
    """

    def __init__(self, matrix: Csr, device: DeviceSpec, dtype: DType, widths: Sequence[int] = WIDTHS) -> None:
        self._matrix, self._device, self._target = matrix, device, open_target(device)
        self._problems = {width: Problem(Op.SPMM, matrix, width, dtype) for width in widths}
        self._converter = HybConverter(next(iter(self._problems.values())), self._target)
        self._trials = {width: Trial(problem, device) for width, problem in self._problems.items()}

    def fixed(self, form: Form, width: int) -> list[float]:
        """Time CSR or BSR; refused where the dtype has no kernel for blocks."""
        problem, chosen = self._problems[width], LiteForm(format=form.value)
        reason = chosen.unsupported(problem, self._device)
        if reason:
            raise UnsupportedError(reason)
        return self._trials[width].samples_us(chosen.build(problem, self._device))

    def cell(self, partitions: int, max_width: int) -> Mapping[int, list[float]]:
        """Time CELL with the same cap in all partitions; it is converted once for all widths."""
        layout = cell_layout(self._matrix, [max_width] * partitions)
        arrays = self._converter.fill(layout)
        found: dict[int, list[float]] = {}
        for width, problem in self._problems.items():
            schedule = schedule_for(self._device.name, width, problem.dtype, max_width)
            plan = EllBucketsPlan(problem, self._target, layout, {}, arrays=arrays, **schedule.arguments())
            found[width] = self._trials[width].samples_us(plan)
        return found


def fastest_schedule(
    matrix: Csr, device: DeviceSpec, dtype: DType, width: int, max_width: int
) -> tuple[Schedule, list[tuple[Schedule, float]]]:
    """Time the schedules of one condition on one matrix; gives the fastest, and all that were timed in microseconds.

    Raises
    ------
    UnsupportedError
        None could be built.
    """
    problem, target = Problem(Op.SPMM, matrix, width, dtype), open_target(device)
    trial, layout = Trial(problem, device), cell_layout(matrix, [max_width])
    arrays = HybConverter(problem, target).fill(layout)
    times: list[tuple[Schedule, float]] = []
    for schedule in candidates(width, dtype, max_width):
        try:
            plan = EllBucketsPlan(problem, target, layout, {}, arrays=arrays, **schedule.arguments())
            times.append((schedule, float(np.median(trial.samples_us(plan)))))
        except SpmarkError:
            continue
    if not times:
        raise UnsupportedError(f"no schedule could be built for J = {width} and buckets up to {max_width}")
    return min(times, key=lambda pair: pair[1])[0], times


def schedule_entries(
    matrices: Sequence[Csr], device: DeviceSpec, dtypes: Iterable[DType], widths: Sequence[int] = WIDTHS
) -> list[Entry]:
    """Measure a table: for every dtype, J and composed width the schedule of least geometric mean over the matrices.

    Each matrix is composed in one partition by the cost model; matrices with the same widest bucket share an entry.
    """
    entries = []
    for dtype in dtypes:
        for width in widths:
            groups: dict[int, list[Csr]] = {}
            for matrix in matrices:
                power = int(search(count(matrix, 1), width).powers[0])
                groups.setdefault(1 << power, []).append(matrix)
            for max_width, group in sorted(groups.items()):
                logs: dict[Schedule, list[float]] = {}
                for matrix in group:
                    for schedule, time_us in fastest_schedule(matrix, device, dtype, width, max_width)[1]:
                        logs.setdefault(schedule, []).append(float(np.log(time_us)))
                whole = {schedule: np.mean(found) for schedule, found in logs.items() if len(found) == len(group)}
                if whole:
                    best = min(whole, key=lambda schedule: whole[schedule])
                    entries.append(Entry(dtype=dtype, width=width, max_width=max_width, schedule=best))
    return entries
