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


@dataclass(frozen=True, eq=False)
class Halves:
    """Times of one matrix's configs from two halves of their samples."""

    chosen_by_s: NDArray[np.float64]
    """(n,) float64."""
    valued_by_s: NDArray[np.float64]
    """(n,) float64."""
    default: int
    """Number of the platform's default config."""

    def judge(self, scores: NDArray[np.float64], count: int) -> Gain:
        """Judge the best of the first ``count`` configs by score; equal scores keep the order of the configs."""
        first = np.argsort(scores, kind="stable")[:count]
        chosen = first[self.chosen_by_s[first].argmin()]
        optimum = self.chosen_by_s.argmin()
        default, best, found = (float(self.valued_by_s[which]) for which in (self.default, optimum, chosen))
        return Gain(speedup=default / found, optimum=default / best)


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
