"""Every derived number of the report: intervals, ratios, means, break-even counts and floors.

Times enter as raw samples; nothing here draws a conclusion from fewer samples than its method needs, and random
resampling is seeded, so that the same records give the same report.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from math import ceil, inf, nan

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import special

CONFIDENCE = 0.95
FEWEST_SAMPLES = 6
"""Samples below which no 95 % interval of a median exists, see `median_rank`: 2^-5 is the first power under 5 %."""
_RESAMPLES = 2000
_FEWEST_RESAMPLES = 1000
_PAIR_DRAWS = 1 << 18
_MEAN_RESAMPLES = 10_000
_FEWEST_RESAMPLED = 8
"""Clusters from which a bootstrap's interval of a mean holds the truth as often as it says."""
_CHUNK = 1 << 22


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95 % interval; the ends are NaN where there are too few samples for one."""

    value: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half the interval's length over the estimate."""
        return (self.high - self.low) / 2 / self.value if self.value else nan

    def columns(self, name: str) -> dict[str, float]:
        """Give the columns of a table: the value under this name, and its two ends."""
        return {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}


NOTHING = Interval(nan, nan, nan)


@cache
def median_rank(count: int, confidence: float = CONFIDENCE) -> int:
    """Give the rank r for which the r-th smallest and r-th largest of ``count`` samples enclose the median.

    Returns
    -------
    int
        The largest r, counted from 1, with P(Binomial(count, 1/2) < r) at most (1 - confidence) / 2; 0 where even the
        smallest and the largest sample do not reach the confidence. Conover, Practical Nonparametric Statistics, 3.2.
    """
    tails = special.bdtr(np.arange(count // 2, dtype=np.float64), count, 0.5)
    return int(np.searchsorted(tails, (1 - confidence) / 2, side="right"))


def median_interval(samples: ArrayLike, confidence: float = CONFIDENCE) -> Interval:
    """Give the median with its distribution-free interval between two order statistics.

    Parameters
    ----------
    samples : (n,) array_like
        In any unit, which is the result's, and any order. O(n log n).
    """
    ordered = np.sort(np.asarray(samples, np.float64))
    if ordered.size == 0:
        return NOTHING
    middle, rank = median_of(ordered), median_rank(ordered.size, confidence)
    if rank == 0:
        return Interval(middle, nan, nan)
    return Interval(middle, float(ordered[rank - 1]), float(ordered[ordered.size - rank]))


def median_of(ordered: NDArray[np.float64]) -> float:
    """Give the median of rising numbers; NumPy's function takes ten times as long for a hundred of them."""
    return float(ordered[(ordered.size - 1) // 2] + ordered[ordered.size // 2]) / 2


def ratio_interval(numerator: ArrayLike, denominator: ArrayLike, seed: int = 0) -> Interval:
    """Give the ratio of two medians with a bootstrap percentile interval.

    Samples that were taken in turn share the state of the machine (clock, heat). Where both have the same length the
    i-th of one stands beside the i-th of the other, and pairs are drawn, which keeps the shared state; otherwise each
    side is drawn on its own (Efron and Tibshirani, An Introduction to the Bootstrap, chapters 8 and 13).

    Parameters
    ----------
    numerator, denominator : (n,) and (m,) array_like
        Positive, same unit, in the order taken. A speed-up is baseline over own.
    seed : int
        Of the resampling.

    Returns
    -------
    Interval
        The ends are NaN where a side has fewer than `FEWEST_SAMPLES`. O(n) per resample for pairs, O(1) else.
    """
    above, below = np.asarray(numerator, np.float64), np.asarray(denominator, np.float64)
    if above.size == 0 or below.size == 0:
        return NOTHING
    ratio = median_of(np.sort(above)) / median_of(np.sort(below))
    if min(above.size, below.size) < FEWEST_SAMPLES:
        return Interval(ratio, nan, nan)
    return Interval(ratio, *_ends_of_ratio(above.tobytes(), below.tobytes(), seed))


def ratio_intervals(numerators: Iterable[ArrayLike], denominators: Iterable[ArrayLike]) -> list[Interval]:
    """Give `ratio_interval` of each pair of samples, in order.

    Pairs of as many samples are taken one after another: these have the same resamples, which are drawn once.
    """
    pairs = [
        (np.asarray(above, np.float64), np.asarray(below, np.float64))
        for above, below in zip(numerators, denominators, strict=True)
    ]
    found = [NOTHING] * len(pairs)
    for place in sorted(range(len(pairs)), key=lambda place: pairs[place][0].size):
        found[place] = ratio_interval(*pairs[place])
    return found


@lru_cache(maxsize=1 << 15)
def _ends_of_ratio(numerator: bytes, denominator: bytes, seed: int) -> tuple[float, float]:
    """Give the interval of a ratio of medians; a page, its device's overview and the scorecard ask for the same."""
    above, below = np.frombuffer(numerator, np.float64), np.frombuffer(denominator, np.float64)
    if above.size == below.size:
        drawn = _paired_ratios(above, below, seed)
    else:
        rng = np.random.default_rng(seed)
        drawn = _drawn_medians(above, rng) / _drawn_medians(below, rng)
    low, high = np.quantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def _paired_ratios(above: NDArray[np.float64], below: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    # Many samples make each resample dear and its medians steady: fewer resamples suffice.
    resamples = min(_RESAMPLES, max(_FEWEST_RESAMPLES, _PAIR_DRAWS // above.size))
    parts = [_medians(above, draw) / _medians(below, draw) for draw in _draws(above.size, resamples, seed)]
    return np.concatenate(parts)


def _draws(size: int, resamples: int, seed: int) -> Iterable[NDArray[np.intp]]:
    """Give the indices of resamples of ``size`` each, (n, size) at a time."""
    if size * resamples <= _CHUNK:
        return (_one_draw(size, resamples, seed),)
    rng, step = np.random.default_rng(seed), max(1, _CHUNK // size)
    steps = (min(step, resamples - start) for start in range(0, resamples, step))
    return (_drawn(rng, size, rows) for rows in steps)


@lru_cache(maxsize=8)
def _one_draw(size: int, resamples: int, seed: int) -> NDArray[np.intp]:
    """Give the indices at once; neighbours in a report mostly have as many samples, and so the same indices."""
    draw = _drawn(np.random.default_rng(seed), size, resamples)
    draw.flags.writeable = False
    return draw


def _drawn(rng: np.random.Generator, size: int, resamples: int) -> NDArray[np.intp]:
    return rng.integers(size, size=(resamples, size), dtype=np.int32).astype(np.intp)


def _medians(samples: NDArray[np.float64], draw: NDArray[np.intp]) -> NDArray[np.float64]:
    """Give the median of each resample: its middle ranks tell it, and small integers are sorted the fastest."""
    order, small = np.argsort(samples, kind="stable"), np.min_scalar_type(max(samples.size - 1, 1 << 8))
    ranks = np.empty(samples.size, small)
    ranks[order] = np.arange(samples.size, dtype=small)
    rows = ranks.take(draw, mode="clip")  # every index is there: no check, and no copy of the indices
    rows.sort(axis=1)
    ordered, lower, upper = samples[order], (samples.size - 1) // 2, samples.size // 2
    return np.asarray((ordered[rows[:, lower]] + ordered[rows[:, upper]]) / 2)


def _drawn_medians(samples: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    # A resample is samples[floor(n U)] for n uniform U, so its median needs only the middle order statistics of
    # those U, and these are Beta distributed: the same law as drawing every element, at O(1) a resample.
    ordered, n = np.sort(samples), samples.size
    half = n // 2
    if n % 2:
        return ordered[np.floor(n * rng.beta(half + 1, half + 1, _RESAMPLES)).astype(np.int64)]
    upper = rng.beta(half + 1, half, _RESAMPLES)
    lower = upper * rng.random(_RESAMPLES) ** (1 / half)
    ranks = np.floor(n * np.stack([lower, upper])).astype(np.int64)
    return np.asarray(ordered[ranks].mean(axis=0))


def geometric_mean(ratios: ArrayLike, clusters: ArrayLike | None = None, seed: int = 0) -> Interval:
    """Give the geometric mean with an interval over cases, or over clusters of cases.

    From 8 clusters on the interval is a bootstrap's, whose quantiles are moved outwards as a Student interval would
    be (Hesterberg, What Teachers Should Know About the Bootstrap, The American Statistician 2015, section 4.2). Fewer
    clusters have Student's own interval of the logarithms with the jackknife's standard error, since no resample lies
    beyond the extremes: its interval of two clusters would hold the truth half of the time. That of two clusters is
    very wide by right.

    Parameters
    ----------
    ratios : (n,) array_like
        Positive, finite.
    clusters : (n,) array_like, optional
        Cluster of each case. Clusters are drawn whole, since the widths of one matrix are not independent cases.
    seed : int
        Of the resampling.

    Returns
    -------
    Interval
        The ends are NaN with fewer than two cases or clusters. O(n) per resample.
    """
    logs = np.log(np.asarray(ratios, np.float64))
    if logs.size == 0:
        return NOTHING
    groups = np.arange(logs.size) if clusters is None else pd.factorize(np.asarray(clusters, object))[0]
    sums, counts = np.bincount(groups, logs).astype(np.float64), np.bincount(groups)
    mean = float(np.exp(logs.mean()))
    if sums.size < 2:
        return Interval(mean, nan, nan)
    if sums.size < _FEWEST_RESAMPLED:
        half = student_half(sums, counts)
        return Interval(mean, float(np.exp(logs.mean() - half)), float(np.exp(logs.mean() + half)))
    return Interval(mean, *_ends_of_mean(sums.tobytes(), counts.tobytes(), seed))


def student_half(sums: NDArray[np.float64], cases: NDArray[np.intp]) -> float:
    """Give half of Student's interval of the mean of all cases, from each cluster's sum and number of cases."""
    clusters, total = sums.size, cases.sum()
    # How far the mean moves without each cluster (Efron and Tibshirani, chapter 11).
    moved = (sums - cases * (sums.sum() / total)) / (total - cases)
    student = float(special.stdtrit(clusters - 1, (1 + CONFIDENCE) / 2))
    return student * float(np.sqrt((clusters - 1) / clusters * (moved**2).sum()))


@lru_cache(maxsize=1 << 14)
def _ends_of_mean(sums: bytes, counts: bytes, seed: int) -> tuple[float, float]:
    """Give the interval of a geometric mean from each cluster's sum of logarithms and number of cases.

    A report asks for most intervals several times, in figures of two widths and in tables.
    """
    of_clusters, cases = np.frombuffer(sums, np.float64), np.frombuffer(counts, np.intp)
    clusters, alike = of_clusters.size, cases.min() == cases.max()
    parts = []
    for draw in _draws(clusters, _MEAN_RESAMPLES, seed):
        # Clusters of one size need no second gathering.
        drawn = clusters * cases[0] if alike else cases[draw].sum(axis=1)
        parts.append(of_clusters[draw].sum(axis=1) / drawn)
    student = special.stdtrit(clusters - 1, (1 + CONFIDENCE) / 2)
    tail = float(special.ndtr(-student * np.sqrt(clusters / (clusters - 1))))
    low, high = np.exp(np.quantile(np.concatenate(parts), [tail, 1 - tail]))
    return float(low), float(high)


def mean_of(ratios: ArrayLike) -> float:
    """Give the geometric mean of positive ratios alone."""
    return float(np.exp(np.log(np.asarray(ratios, np.float64)).mean()))


def break_even(build_s: float, run_us: float, baseline_build_s: float, baseline_run_us: float) -> float:
    """Give the number of runs from which on build plus runs cost no more than the baseline's.

    Returns
    -------
    float
        A whole number; 0 where building and running are both no dearer; infinite where running is slower, or no
        faster after a dearer build; NaN where a time is not known.
    """
    extra_s, saved_s = build_s - baseline_build_s, (baseline_run_us - run_us) * 1e-6
    if np.isnan(extra_s) or np.isnan(saved_s):
        return nan
    if saved_s < 0 or (saved_s == 0 and extra_s > 0):
        return inf
    # A whole quotient stays whole although its two sides are rounded.
    return 0.0 if extra_s <= 0 else float(ceil(extra_s / saved_s * (1 - 1e-12)))


def floor_us(amount: float, per_second: float) -> float:
    """Give the least time, in microseconds, of ``amount`` bytes or flops at a measured rate; NaN without a rate."""
    return amount / per_second * 1e6 if per_second > 0 else nan
