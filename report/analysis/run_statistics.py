"""The values of each case in each run, as logarithms with their errors: spreads and comparisons start from these.

A logarithm turns ratios into differences, and a relative spread into a standard deviation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import log, nan, sqrt
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import special

from spmark.impls.core.record import Status
from spmark.report.analysis.statistics import CONFIDENCE, FEWEST_SAMPLES, ratio_interval

TIME, SPEEDUP, PHASE = "time", "speedup", "phase "
"""Quantities: the median time, the speed-up over the interleaved baseline, and ``phase`` with a phase's name."""
CACHED_PHASES = frozenset({"compile"})
"""Phases that are not observed: their seconds depend on whether a cache was warm, which no record says."""
LEAST_PHASE_S = 1e-3
"""Shorter phases are not observed: they cost nothing, and their spread is that of the operating system."""
COLUMNS = (
    "device", "device_kind", "case_id", "pattern", "implementation_version", "quantity", "value", "error",
    "duration_us",
)  # fmt: skip
_NORMAL = float(special.ndtri((1 + CONFIDENCE) / 2))


@dataclass(frozen=True)
class Observed:
    """One quantity of one case over the runs of one side; (n,) float64 arrays in the order of the runs."""

    value: NDArray[np.float64]
    """Natural logarithms."""
    error: NDArray[np.float64]
    """Standard errors within each run."""
    duration_us: NDArray[np.float64]
    """Durations, which the spread between runs depends on."""


def by_case(seen: pd.DataFrame) -> dict[tuple[str, str], dict[str, Observed]]:
    """Group what `observe` gives by device and case, and then by quantity."""
    cases: dict[tuple[str, str], dict[str, Observed]] = {}
    for (device, case, quantity), rows in seen.groupby(["device", "case_id", "quantity"], sort=False):
        columns = (rows[name].to_numpy(np.float64) for name in ("value", "error", "duration_us"))
        cases.setdefault((str(device), str(case)), {})[str(quantity)] = Observed(*columns)
    return cases


def observe(frame: pd.DataFrame) -> pd.DataFrame:
    """Reduce every ok run to its observed quantities.

    Parameters
    ----------
    frame : DataFrame
        As `spmark.report.records.load_every_run` gives it.

    Returns
    -------
    DataFrame
        Of `COLUMNS`, one row per run and quantity, in the frame's order: ``value`` is the natural logarithm, ``error``
        its standard error within the run (0 for a phase, which is measured once), ``duration_us`` what the spread
        between runs depends on. Medians of fewer than `FEWEST_SAMPLES` samples have no error (NaN).
    """
    ok = frame[frame["status"] == Status.OK.value]
    rows = [
        (run.device, run.device_kind, run.case_id, run.pattern, run.implementation_version, *seen)
        for run in ok.itertuples()
        for seen in _quantities(run)
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _quantities(run: Any) -> Iterator[tuple[str, float, float, float]]:
    own, beside = run.samples_us, run.baseline_samples_us
    if own.size:
        median = float(np.median(own))
        yield TIME, log(median), log_median_error(own), median
        if beside.size:
            ratio = ratio_interval(beside, own)
            yield SPEEDUP, log(ratio.value), log(ratio.high / ratio.low) / 2 / _NORMAL, median
    for phase, seconds in run.phases_s.items():
        if phase not in CACHED_PHASES and seconds >= LEAST_PHASE_S:
            yield PHASE + phase, log(seconds), 0.0, seconds * 1e6


def log_median_error(samples: ArrayLike) -> float:
    """Give the standard error of the logarithm of a median; NaN for fewer than `FEWEST_SAMPLES` samples.

    The error is the bootstrap's, in closed form: the resampled median is the i-th smallest sample with a probability
    that the incomplete beta function gives (Maritz and Jarrett, A Note on Estimating the Variance of the Sample Median,
    Journal of the American Statistical Association 1978). O(n log n).
    """
    logs = np.log(np.sort(np.asarray(samples, np.float64)))
    if logs.size < FEWEST_SAMPLES:
        return nan
    half = (logs.size + 1) / 2
    weights = np.diff(special.betainc(half, half, np.arange(logs.size + 1) / logs.size))
    mean = float(weights @ logs)
    return sqrt(max(0.0, float(weights @ (logs - mean) ** 2)))
