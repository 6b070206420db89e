"""Do two sides differ by more than runs of the same code do: a t test with moderated variance.

The variance of one run's value is known from two sources, which are weighed by their degrees of freedom (Smyth, Linear
Models and Empirical Bayes Methods, Statistical Applications in Genetics and Molecular Biology 2004):

- the trend of `spmark.report.analysis.spreadmodel`, to which the errors within the runs are added;
- repeated runs of the case: runs that the trend was learned from, and runs of the two sides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf, log, sqrt

import numpy as np
from scipy import stats

from spmark.report.analysis.run_statistics import Observed
from spmark.report.analysis.spreadmodel import Trend
from spmark.report.analysis.statistics import CONFIDENCE, Interval

ERROR_RATE = 0.05
"""Share of false alarms among flagged changes, and chance of an alarm where nothing changed."""
OWN_DF = 4
"""Degrees of freedom from which a case's own repeats replace a trend that was learned from no runs."""
GOAL, POWER, MOST_RUNS = 0.10, 0.9, 200
"""For `Difference.runs_needed`: the change, how often it should be found, and the most runs of a side."""
_LEAST_VARIANCE = 1e-12
_LARGEST_LOG = 700.0


@dataclass(frozen=True)
class Difference:
    """A difference of two means of logarithms, with its error."""

    before: float
    """Geometric mean over the runs, in the unit of the quantity."""
    after: float
    error: float
    """Standard error of the logarithm of ``after / before``."""
    df: float
    """Degrees of freedom of the error."""
    runs: tuple[int, int]
    prior_df: float
    """Degrees of freedom that the trend counts as."""

    @property
    def log_ratio(self) -> float:
        """Logarithm of after over before."""
        return log(self.after / self.before)

    @property
    def p(self) -> float:
        """Two-sided p value where nothing else is tested."""
        return float(2 * stats.t.sf(abs(self.log_ratio) / self.error, self.df))

    @property
    def ratio(self) -> Interval:
        """After over before, with an interval that includes the spread between runs."""
        wide = float(stats.t.ppf((1 + CONFIDENCE) / 2, self.df)) * self.error
        return Interval(exp(self.log_ratio), _exp(self.log_ratio - wide), _exp(self.log_ratio + wide))

    def threshold(self, tests: int) -> float:
        """Give the relative change that would be flagged if it were the only one among ``tests``."""
        return _exp(float(stats.t.isf(ERROR_RATE / 2 / tests, self.df)) * self.error) - 1

    def runs_needed(self, tests: int) -> float:
        """Give the runs of each side that find a change of `GOAL` with probability `POWER`, alone among ``tests``.

        Returns
        -------
        float
            A whole number, or infinite where `MOST_RUNS` do not suffice.
        """
        counts = np.arange(1, MOST_RUNS + 1)
        df = self.prior_df + 2.0 * (counts - 1)
        known = df > 0
        counts, df = counts[known], df[known]
        variance = self.error**2 / sum(1 / n for n in self.runs)
        reach = stats.t.isf(ERROR_RATE / 2 / tests, df) + stats.t.ppf(POWER, df)
        enough = np.sqrt(2 * variance / counts) * reach <= np.log1p(GOAL)
        return float(counts[enough.argmax()]) if enough.any() else inf


def difference(
    before: Observed, after: Observed, trends: Sequence[tuple[Trend, bool]], case_id: str = ""
) -> Difference:
    """Compare the runs of two sides in one quantity of one case.

    Parameters
    ----------
    before, after : Observed
        The runs of either side, at least one.
    trends : sequence of (Trend, bool)
        Of either side, and whether it was learned from runs. One that was not gives way to the case's own repeats as
        soon as these have `OWN_DF` degrees of freedom.
    case_id : str
        Case, which the trends may know from repeated runs.
    """
    sides = (before, after)
    within = [float((side.error**2).mean()) for side in sides]
    expected = [
        trend.variance(float(np.median(side.duration_us))) + error2
        for (trend, _), side, error2 in zip(trends, sides, within, strict=True)
    ]
    squares = [float(((side.value - side.value.mean()) ** 2).sum()) for side in sides]
    own_df = before.value.size + after.value.size - 2
    learned = all(known for _, known in trends)
    prior = min(trend.df for trend, _ in trends) if learned or own_df < OWN_DF else 0.0
    first, second = (trend for trend, _ in trends)
    known, known_df = first.known.get(case_id, (0.0, 0)) if first == second else (0.0, 0)
    # Both sides share the factor by which the case deviates from its trend, which itself deviates by none.
    deviation = prior + known_df * known + sum(s / e for s, e in zip(squares, expected, strict=True))
    prior += known_df
    factor = deviation / (prior + own_df)
    # Repeats that agree by chance, or to a clock's last digit, do not undo the error within a run.
    variances = [max(factor * e, w, _LEAST_VARIANCE) for e, w in zip(expected, within, strict=True)]
    return Difference(
        before=exp(float(before.value.mean())),
        after=exp(float(after.value.mean())),
        error=sqrt(sum(v / side.value.size for v, side in zip(variances, sides, strict=True))),
        df=prior + own_df,
        runs=(before.value.size, after.value.size),
        prior_df=prior,
    )


def adjusted(p: Sequence[float]) -> list[float]:
    """Correct p values of one family for their number.

    By Benjamini and Hochberg, Controlling the False Discovery Rate (Journal of the Royal Statistical Society B 1995).
    Where nothing changed, this correction raises an alarm as rarely as Holm's. Where a change slows many cases at once,
    as a change of shared code does, this one finds more.

    The correction holds for cases that err together, as the cases of one run do (Benjamini and Yekutieli, The Control
    of the False Discovery Rate in Multiple Testing under Dependency, Annals of Statistics 2001).
    """
    return [float(value) for value in stats.false_discovery_control(list(p), method="bh")] if len(p) else []


def _exp(value: float) -> float:
    return exp(min(value, _LARGEST_LOG))
