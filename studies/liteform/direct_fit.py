"""How CSR as it comes runs fastest and how it compares with CELL, from times of both on some matrices.

Losses are averaged over matrices of about the same non-zeros, mean length and spread of lengths. Near matrices count
more (Nadaraya, "On estimating regression", 1964), as in `spmark.studies.liteform.schedule_fit`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from spmark.impls.core.problem import DType
from spmark.impls.liteform.features import Features
from spmark.impls.liteform.schedule import DirectEntry, DirectSchedule

_NNZ = tuple(1 << power for power in range(12, 25, 2))
_MEANS = (1.5, 3.0, 6.0, 12.0, 25.0, 50.0, 100.0)
_SPREADS = (0.0, 0.4, 0.8, 1.6, 3.2)
_REACH_NNZ, _REACH_MEAN, _REACH_SPREAD = 1.0, 0.7, 0.4
"""Standard deviations of the weights: powers of two of non-zeros and of mean length, and spread."""
_DOUBT = 0.1
"""As how many matrices it counts that CSR takes `_WORSE` longer, before any measurement."""
_WORSE = 0.1
_DIGITS = 4


@dataclass(frozen=True)
class DirectTrials:
    """Times of one matrix at one J."""

    dtype: DType
    width: int
    """J."""
    features: Features
    direct_us: Mapping[DirectSchedule, float]
    cell_us: float
    """The fastest CELL."""

    @property
    def spread(self) -> float:
        """Standard deviation of the rows' lengths over their mean."""
        return self.features.std_length / (self.features.avg_length or 1.0)


def fitted_direct(trials: Sequence[DirectTrials]) -> list[DirectEntry]:
    """Choose over a grid of non-zeros, mean lengths and spreads; points far from every matrix are left out.

    Parameters
    ----------
    trials : sequence of DirectTrials
        Trials of one device.
    """
    kinds = dict.fromkeys((one.dtype, one.width) for one in trials)
    return [entry for kind in kinds for entry in _grid([one for one in trials if (one.dtype, one.width) == kind])]


def _grid(trials: Sequence[DirectTrials]) -> Iterator[DirectEntry]:
    """Give an entry for every point of the grid with a matrix nearby, for trials of one dtype and J."""
    schedules = sorted({schedule for one in trials for schedule in one.direct_us}, key=repr)
    losses = np.array([[np.log(one.direct_us.get(s, np.nan) / one.cell_us) for s in schedules] for one in trials])
    tried, losses = ~np.isnan(losses), np.nan_to_num(losses)
    sizes = np.log2([max(one.features.nnz, 1) for one in trials])
    means = np.log2([one.features.avg_length or 1.0 for one in trials])
    spreads = np.array([one.spread for one in trials])
    for nnz, mean, spread in product(_NNZ, _MEANS, _SPREADS):
        away = ((sizes - np.log2(nnz)) / _REACH_NNZ) ** 2 + ((means - np.log2(mean)) / _REACH_MEAN) ** 2
        near = np.exp(-(away + ((spreads - spread) / _REACH_SPREAD) ** 2) / 2)
        if near.sum() < _DOUBT:
            continue
        expected = (near @ losses + _WORSE * _DOUBT) / (near @ tried + _DOUBT)
        best = int(np.argmin(expected))
        yield DirectEntry(
            dtype=trials[0].dtype,
            width=trials[0].width,
            nnz=nnz,
            mean_length=mean,
            spread=spread,
            schedule=schedules[best],
            loss=round(float(expected[best]), _DIGITS),
        )
