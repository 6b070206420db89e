"""How well one order of candidates agrees with another."""

from __future__ import annotations

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
