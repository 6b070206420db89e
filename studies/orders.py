"""Orders of candidates: how well two agree (Kendall's tau, DASH's ordered pair accuracy), and trees that learn one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.errors import needed

_SETTINGS = {
    "objective": "lambdarank",
    "num_leaves": 15,
    "verbosity": -1,
    "deterministic": True,
    "num_threads": 1,
    "seed": 0,
}


def kendall(left: NDArray[np.float64], right: NDArray[np.float64]) -> float:
    """Give Kendall's tau-b of two scores of the same candidates; NaN where one is constant or there are none.

    O(n log n).
    """
    if left.size < 2:
        return float("nan")
    from scipy.stats import kendalltau

    return float(kendalltau(left, right).statistic)


def share_in_order(scores: NDArray[np.float64], seconds: NDArray[np.float64], noise: float) -> float:
    """Give the ordered pair accuracy of n configs of one matrix (DASH, appendix A.4 and figure 6).

    It is the share of pairs whose slower config has the higher score; NaN without pairs. The paper takes all pairs.
    Here the greater time of a pair is above 1 + ``noise`` times the smaller one. O(n^2).
    """
    slower = seconds[:, None] > (1 + noise) * seconds
    return float((scores[:, None] > scores)[slower].mean()) if slower.any() else float("nan")


def ranking_trees(
    groups: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]], grades: int, rounds: int, **settings: Any
) -> Any:
    """Train LightGBM's lambdarank.

    Parameters
    ----------
    groups : sequence of (features, times)
        Of the candidates of each problem, (n, f) and (n,).
    grades : int
        A candidate's relevance is the best time over its own, in steps of one part in so many.
    rounds : int
        Trees.
    **settings
        Of LightGBM, beside those that all studies have.

    Returns
    -------
    lightgbm.Booster

    Raises
    ------
    UnsupportedError
        LightGBM is not installed.
    """
    lightgbm = needed("lightgbm", "LightGBM", "study")
    features, times = zip(*groups, strict=True)
    graded = np.concatenate([np.floor(one.min() / one * grades).astype(np.int64) for one in times])
    data = lightgbm.Dataset(np.concatenate(features), graded, group=[one.size for one in times])
    return lightgbm.train({**_SETTINGS, "label_gain": list(range(grades + 1)), **settings}, data, rounds)
