"""How well the order that a cost model gives to configs agrees with their measured times."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

TOP = (1, 5, 10)
"""Sizes of the shortlists that may hold the fastest config."""
REGRETS = ("regret", "tuned_regret", "chance_regret")
ALL = "all"
"""Stands for every source, and for every implementation."""


def judge(scores: NDArray[np.float64], times_us: NDArray[np.float64]) -> dict[str, float]:
    """Judge the scores of one problem's configs.

    Configs with equal scores are in a random order: figures are expected values over all of these orders. A config
    without a score comes after all others.

    Parameters
    ----------
    scores : (n,) float64
        Lower is better; NaN where the model knows nothing of a config, but not everywhere.
    times_us : (n,) float64
        Measured medians.

    Returns
    -------
    dict
        Takes O(n log n). The keys:

        - ``regret``: time of the config with the least score over the least time, minus one.
        - ``tuned_regret``: the same for the fastest of several configs with the least score, which a search finds that
          measures all of these.
        - ``chance_regret``: the mean of ``tuned_regret`` over all different scores in place of the least one, which is
          the regret of a model that knows nothing.
        - ``kendall``: Kendall's tau-b of scores and times, NaN where all of either are equal.
        - ``top_1``, ``top_5`` and ``top_10``: probability that the fastest config is among so many with the least
          scores.
    """
    ranked = np.where(np.isnan(scores), np.inf, scores)
    best = int(np.argmin(times_us))
    first = times_us[ranked == ranked.min()] / times_us[best]
    before, tied = np.count_nonzero(ranked < ranked[best]), np.count_nonzero(ranked == ranked[best])
    fastest = pd.Series(times_us).groupby(ranked).min() / times_us[best]
    judged = {"regret": float(first.mean() - 1), "tuned_regret": float(first.min() - 1)}
    judged["chance_regret"] = float(fastest.mean() - 1)
    judged["kendall"] = float(stats.kendalltau(ranked, times_us).statistic)
    return judged | {f"top_{size}": float(np.clip((size - before) / tied, 0, 1)) for size in TOP}


def summary(cases: pd.DataFrame) -> pd.DataFrame:
    """Summarise the judgements of many problems.

    Parameters
    ----------
    cases : DataFrame
        ``implementation, source, candidates`` and what `judge` gives, one row for each problem; at least one.

    Returns
    -------
    DataFrame
        One row for each implementation and source, then one for the implementation where it has several sources, and at
        the end one for everything where there are several implementations. ``cases``; the median of ``candidates``;
        the `REGRETS`, geometric means of one plus the regret, minus one; ``regret_median``; the
        median of ``kendall``; the means of ``top_1, top_5, top_10``.
    """
    groups = []
    for name, own in cases.groupby("implementation", sort=True):
        groups += [(name, source, part) for source, part in own.groupby("source", sort=True)]
        groups += [(name, ALL, own)] if own["source"].nunique() > 1 else []
    groups += [(ALL, ALL, cases)] if cases["implementation"].nunique() > 1 else []
    rows = [{"implementation": name, "source": source, **_figures(part)} for name, source, part in groups]
    return pd.DataFrame(rows)


def _figures(part: pd.DataFrame) -> dict[str, Any]:
    means = {name: float(stats.gmean(1 + part[name]) - 1) for name in REGRETS}
    return {
        "cases": len(part),
        "candidates": float(part["candidates"].median()),
        **means,
        "regret_median": float(part["regret"].median()),
        "kendall": float(part["kendall"].median()),
        **{f"top_{size}": float(part[f"top_{size}"].mean()) for size in TOP},
    }
