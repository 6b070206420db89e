"""How well one order of candidates agrees with another: Kendall's tau, and the ordered pair accuracy (OPA) of DASH."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


def kendall(left: NDArray[np.float64], right: NDArray[np.float64]) -> float:
    """Give Kendall's tau-b of two scores of the same candidates; NaN where one is constant or there are none.

    O(n log n).
    """
    if left.size < 2:
        return float("nan")
    from scipy.stats import kendalltau

    return float(kendalltau(left, right).statistic)


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of configs of one matrix whose times differ by more than noise (DASH, appendix A.4 and figure 6).

    The paper takes all pairs. Here pairs closer than the noise of measuring are left out.
    """

    slower: NDArray[np.int64]
    """(p,) int64: number of the slower config."""
    faster: NDArray[np.int64]
    """(p,) int64: number of the faster one."""

    @classmethod
    def of(cls, seconds: NDArray[np.float64], noise: float) -> Pairs:
        """Give the pairs whose greater time is above 1 + ``noise`` times the smaller one; O(n^2)."""
        return cls(*np.nonzero(seconds[:, None] > (1 + noise) * seconds[None, :]))

    def share_in_order(self, scores: NDArray[np.float64]) -> float:
        """Give the ordered pair accuracy: the share of pairs whose slower config has the higher score; NaN without."""
        if not self.slower.size:
            return float("nan")
        return float((scores[self.slower] > scores[self.faster]).mean())
