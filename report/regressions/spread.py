"""How far the same code is from itself: the spread of medians over repeated runs (A/A), which thresholds rest on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from spmark.impls.core.errors import RecordError
from spmark.impls.core.record import Status
from spmark.report.load.records import load_every_run


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
        Folders or files of records; every ok record of a case is one run of it.

    Raises
    ------
    RecordError
        No case was run twice by the same code.
    """
    frame = load_every_run(paths)
    frame = frame[frame["status"] == Status.OK.value]
    rows = []
    for (device, case, _), runs in frame.groupby(["device", "case_id", "implementation_version"], sort=False):
        if len(runs) < 2:
            continue
        medians = np.array([np.median(samples) for samples in runs["samples_us"]])
        beside = [np.median(samples) if len(samples) else np.nan for samples in runs["baseline_samples_us"]]
        rows.append(
            {
                "device": device,
                "case_id": case,
                "runs": len(runs),
                "median_us": medians.mean(),
                "deviation": _deviation(medians),
                "range": np.ptp(medians) / medians.mean(),
                "ratio_deviation": _deviation(np.array(beside) / medians),
            }
        )
    if not rows:
        where = ", ".join(map(str, paths))
        raise RecordError(f"{where}: expected cases that were run at least twice by the same code, found none")
    return pd.DataFrame(rows)


def spread(paths: Sequence[Path]) -> list[Spread]:
    """Sum up `spread_by_case` for every device."""
    return [
        Spread(
            device=str(device),
            cases=len(cases),
            runs=int(cases["runs"].min()),
            typical=float(cases["deviation"].median()),
            worst=float(cases["deviation"].max()),
            typical_range=float(cases["range"].median()),
            worst_range=float(cases["range"].max()),
            ratio_typical=float(cases["ratio_deviation"].median()),
            ratio_worst=float(cases["ratio_deviation"].max()),
        )
        for device, cases in spread_by_case(paths).groupby("device", sort=False)
    ]


def _deviation(values: NDArray[np.float64]) -> float:
    return float(values.std(ddof=1) / values.mean())
