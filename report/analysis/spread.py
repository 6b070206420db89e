"""The spread of medians over repeated runs of the same code (A/A), which thresholds rest on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from spmark.impls.core.errors import RecordError
from spmark.impls.core.record import Status
from spmark.report.analysis.cases import medians
from spmark.report.records import load_every_run

_CASE = ["device", "case_id", "pattern", "implementation_version", "flush"]


@dataclass(frozen=True)
class Spread:
    """Spread of medians over runs, all relative to the case's mean median."""

    device: str
    cases: int
    runs: int
    """Fewest runs of a case."""
    typical: float
    """Median over cases of the standard deviation."""
    worst: float
    """Largest standard deviation of a case."""
    typical_range: float
    """Median over cases of largest minus smallest."""
    worst_range: float
    ratio_typical: float
    """Median over cases of the standard deviation of the ratio to the interleaved baseline; NaN without baselines."""
    ratio_worst: float


def spread_by_case(paths: Sequence[Path]) -> pd.DataFrame:
    """Give one row per case: runs, mean median in us, and relative spreads of the median and of the baseline ratio.

    Parameters
    ----------
    paths : sequence of Path
        Folders or files of records; every ok record of a case and pattern is one run of it.

    Raises
    ------
    RecordError
        No case was run twice by the same code.
    """
    frame = load_every_run(paths)
    frame = frame[frame["status"] == Status.OK.value]
    own, beside = medians(frame["samples_us"]), medians(frame["baseline_samples_us"])
    runs = frame.assign(median_us=own, ratio=beside / own).groupby(_CASE, sort=False)
    cases = runs.agg(
        runs=("median_us", "size"),
        median_us=("median_us", "mean"),
        deviation=("median_us", _deviation),
        range=("median_us", np.ptp),
        ratio_deviation=("ratio", _deviation),
    )
    cases = cases[cases["runs"] > 1].reset_index().drop(columns=["pattern", "implementation_version", "flush"])
    if cases.empty:
        where = ", ".join(map(str, paths))
        raise RecordError(f"{where}: expected cases that were run at least twice by the same code, found none")
    return cases.assign(range=cases["range"] / cases["median_us"])


def spread(paths: Sequence[Path]) -> list[Spread]:
    """Sum up `spread_by_case` for every device."""
    devices = (
        spread_by_case(paths)
        .groupby("device", sort=False)
        .agg(
            cases=("runs", "size"),
            runs=("runs", "min"),
            typical=("deviation", "median"),
            worst=("deviation", "max"),
            typical_range=("range", "median"),
            worst_range=("range", "max"),
            ratio_typical=("ratio_deviation", "median"),
            ratio_worst=("ratio_deviation", "max"),
        )
    )
    return [Spread(*row) for row in devices.reset_index().itertuples(index=False)]


def _deviation(of_runs: pd.Series[float]) -> float:
    values = of_runs.to_numpy(np.float64)
    return float(values.std(ddof=1) / values.mean()) if len(values) > 1 else np.nan
