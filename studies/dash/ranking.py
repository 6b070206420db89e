"""The ranking loss and the ordered pair accuracy (OPA) of configs.

DASH (COGNATE), appendix A.4 and figure 6. The paper sums over all pairs. Here the loss is the mean, so that matrices
with other numbers of pairs weigh the same, and pairs closer than the noise of measuring are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spmark.impls.dash.withtorch import Tensor


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of configs of one matrix whose times differ by more than noise."""

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


def ranking_loss(scores: Tensor, slower: Tensor, faster: Tensor, margin: float) -> Tensor:
    """Give the mean over pairs of ``max(0, margin - (score of the slower - score of the faster))``; 0 without pairs.

    Parameters
    ----------
    scores : (n,) tensor
    slower, faster : (p,) int64 tensors
        As `Pairs` has them.
    margin : float
    """
    if not len(slower):
        return scores.sum() * 0
    return (margin - (scores[slower] - scores[faster])).relu().mean()
