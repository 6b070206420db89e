"""Which schedule to take where, from the times of many on some matrices.

Hardly two matrices were tried with the same schedules. The loss of a schedule against the best is therefore averaged
over matrices of about the same size and widest bucket, and near matrices count more (Nadaraya, "On estimating
regression", 1964).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from spmark.impls.core.problem import DType
from spmark.impls.liteform.schedule import CellSchedule, ScheduleEntry, nearest

MANY: Final = 6
"""Least number of schedules of one format that are compared."""
_NNZ = tuple(1 << power for power in range(12, 25, 2))
_MAX_WIDTHS = (8, 16, 32, 64, 128, 512)
_REACH_NNZ, _REACH_WIDTH = 1.0, 0.5
"""Standard deviations of the weights, in powers of two."""
_ANYWHERE = 0.001
"""Weight of matrices of quite another size: they decide where nothing near was measured."""
_UNTRIED, _DOUBT = 0.15, 1.0
"""Loss that every schedule is given before any measurement, and as how many matrices this loss counts."""


@dataclass(frozen=True)
class Trials:
    """Times of many schedules of one format of one matrix."""

    dtype: DType
    width: int
    """J."""
    nnz: int
    max_width: int
    gathered: bool
    times_us: Mapping[CellSchedule, float]


def fitted_entries(trials: Sequence[Trials]) -> list[ScheduleEntry]:
    """Choose schedules over a grid of sizes and widest buckets; leave out entries that the nearest entry repeats.

    Parameters
    ----------
    trials : sequence of Trials
        Trials of one device.
    """
    kinds = dict.fromkeys((one.dtype, one.width, one.gathered) for one in trials)
    return [
        entry
        for kind in kinds
        for entry in _thinned(list(_grid([t for t in trials if (t.dtype, t.width, t.gathered) == kind])))
    ]


def _grid(trials: Sequence[Trials]) -> Iterator[ScheduleEntry]:
    """Give the best schedule at every point of the grid, for trials of one dtype, J and order of rows."""
    schedules = sorted({schedule for one in trials for schedule in one.times_us}, key=repr)
    losses = np.full((len(trials), len(schedules)), np.nan)
    for place, one in enumerate(trials):
        best = min(one.times_us.values())
        for number, schedule in enumerate(schedules):
            if schedule in one.times_us:
                losses[place, number] = np.log(one.times_us[schedule] / best)
    tried, losses = ~np.isnan(losses), np.nan_to_num(losses)
    sizes = np.log2([max(one.nnz, 1) for one in trials])
    widths = np.log2([one.max_width for one in trials])
    for max_width in _MAX_WIDTHS:
        legal = [number for number, one in enumerate(schedules) if one.canonical(max_width) == one]
        for nnz in _NNZ:
            away = ((sizes - np.log2(nnz)) / _REACH_NNZ) ** 2 + ((widths - np.log2(max_width)) / _REACH_WIDTH) ** 2
            near = np.exp(-away / 2) + _ANYWHERE
            expected = (near @ losses + _UNTRIED * _DOUBT) / (near @ tried + _DOUBT)
            if legal:
                chosen = schedules[min(legal, key=lambda number: expected[number])]
                first = trials[0]
                yield ScheduleEntry(
                    dtype=first.dtype,
                    width=first.width,
                    gathered=first.gathered,
                    nnz=nnz,
                    max_width=max_width,
                    schedule=chosen,
                )


def _thinned(entries: list[ScheduleEntry]) -> list[ScheduleEntry]:
    kept = list(entries)
    for entry in entries:
        rest = [other for other in kept if other is not entry]
        same = [e for e in entries if nearest(kept, e).schedule != nearest(rest, e).schedule] if rest else entries
        if not same:
            kept = rest
    return kept
