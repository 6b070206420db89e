"""The few rows that a command prints when a sweep is done."""

from __future__ import annotations

from math import isnan
from typing import Any

import pandas as pd

from spmark.impls.core.record import Status
from spmark.report.analysis.cases import WIDE_MARK, WIDE_SPEEDUP, choose_baseline, derive
from spmark.report.analysis.means import MOSTLY, mean_speedups
from spmark.report.records import current
from spmark.report.tables.cells import cell

WIDE_LEGEND = (
    f"{WIDE_MARK} at least half of the cases have a 95 % interval that reaches more than {WIDE_SPEEDUP:.0%} from their "
    "speed-up to either side: measure again on a machine that does nothing else"
)


def short_table(frame: pd.DataFrame, baseline: str | None = None) -> list[dict[str, Any]]:
    """Sum up loaded records in one row per device, op, dtype and label.

    Parameters
    ----------
    frame : DataFrame
        As `spmark.report.records.load_records` gives it.
    baseline : str, optional
        Chosen as `spmark.report.analysis.cases.choose_baseline` does.

    Returns
    -------
    list of dict
        ``device``, ``op``, ``dtype``, ``implementation`` (the label), ``speedup`` (text with its interval, over the
        label's own cases, `WIDE_MARK` where `WIDE_LEGEND` holds, and the kinds of matrices where it mixes them; empty
        without one, ``baseline`` for the baseline itself), ``ok`` and ``failed`` (numbers of cases), ``left_out``
        (text: what the mean does not cover).
    """
    keys, rows = ["op", "dtype", "label"], []
    for device, part in current(frame).groupby("device", sort=False):
        derived = derive(part.reset_index(drop=True), choose_baseline(part, baseline))
        means: Any = mean_speedups(derived).set_index(keys)
        for key, cases in derived.groupby(keys):
            ok = int((cases["status"] == Status.OK.value).sum())
            row = {"device": device} | dict(zip(("op", "dtype", "implementation"), key, strict=True))
            row |= {"speedup": "baseline", "ok": ok, "failed": len(cases) - ok, "left_out": ""}
            if key in means.index:
                mean = means.loc[key]
                row["speedup"] = _qualified(mean)
                row["left_out"] = "" if isnan(mean["speedup"]) else mean["left_out"]
            rows.append(row)
    return rows


def _qualified(mean: pd.Series[Any]) -> str:
    speedup = cell("speedup", mean["speedup"], mean["speedup_low"], mean["speedup_high"])
    if speedup and mean["wide_share"] >= MOSTLY:
        speedup += f" {WIDE_MARK}"
    return f"{speedup} ({mean['kinds']})" if speedup and mean["kinds"].startswith("mixed") else speedup
