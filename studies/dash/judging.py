"""How good the chosen configs of a matrix are, without letting anyone choose by the noise of the times that judge.

Every config has two times, from two halves of its samples. Whatever is chosen, the best of a method's first k or the
optimum, is chosen by the first half and valued by the second. An optimum that were chosen and valued by the same
samples would be too good by their noise, and a method's share of it too low.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.errors import DatasetError
from spmark.studies.collected import CollectedRow


@dataclass(frozen=True, eq=False)
class Halves:
    """Times of one matrix's configs from two halves of their samples."""

    chosen_by_s: NDArray[np.float64]
    """(n,) float64."""
    valued_by_s: NDArray[np.float64]
    """(n,) float64."""
    default: int
    """Number of the platform's default config."""

    @classmethod
    def of(cls, row: CollectedRow) -> Halves:
        """Give the times of a row's configs that have samples, in their order.

        Raises
        ------
        DatasetError
            The default config has no samples.
        """
        if not row.configs[0].chosen_by_us:
            raise DatasetError(f"{row.matrix}: expected samples of the default config, found {row.configs[0].reason}")
        timed = [one for one in row.configs if one.chosen_by_us]
        chosen_by, valued_by = (
            1e-6 * np.array([np.median(samples) for samples in half])
            for half in ([one.chosen_by_us for one in timed], [one.valued_by_us for one in timed])
        )
        return cls(chosen_by, valued_by, default=0)

    def best(self, scores: NDArray[np.float64], count: int) -> float:
        """Give the seconds of the best of the first ``count`` configs by score; equal scores keep their order."""
        first = np.argsort(scores, kind="stable")[:count]
        return float(self.valued_by_s[first[self.chosen_by_s[first].argmin()]])

    @property
    def optimum(self) -> float:
        """Seconds of the best config."""
        return float(self.valued_by_s[self.chosen_by_s.argmin()])

    def judge(self, scores: NDArray[np.float64], count: int) -> Gain:
        """Judge the best of the first ``count`` configs by score."""
        default = float(self.valued_by_s[self.default])
        return Gain(speedup=default / self.best(scores, count), optimum=default / self.optimum)


@dataclass(frozen=True)
class Gain:
    """Speed-ups over the default config of one matrix, or their geometric means over matrices."""

    speedup: float
    """Of the chosen config."""
    optimum: float
    """Of the best config: what any method could gain."""

    @property
    def share(self) -> float:
        """The chosen config's speed-up over the optimum's."""
        return self.speedup / self.optimum


def overall(gains: Sequence[Gain]) -> Gain:
    """Give the geometric means over matrices; NaN without a matrix."""
    if not gains:
        return Gain(float("nan"), float("nan"))
    logs = np.log([(one.speedup, one.optimum) for one in gains]).mean(0)
    return Gain(*np.exp(logs).tolist())


def excess(gains: Sequence[Gain]) -> float:
    """Give the mean of chosen over best time, minus one, in percent (DASH, appendix A.2: APE); NaN without a matrix."""
    return float(np.mean([100 * abs(1 / one.share - 1) for one in gains])) if gains else float("nan")
