"""Lookups of a claim's number in studies of moved cost models.

A speed-up has the metrics ``top1`` and ``top5`` (geometric means over matrices of the first choice, and of the best of
five), ``greatest_top1`` and ``greatest_top5`` (of one matrix) and ``optimum``. A score has ``top1_share`` and
``top5_share`` (of the optimum's speed-up), ``ape``, ``opa``, ``tau``, and ``advantage``, which is by how much the first
choice's speed-up exceeds that of another method.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite, nan
from typing import Any, Final

import pandas as pd

from spmark.report.analysis.statistics import Interval, geometric_mean
from spmark.report.analysis.transfers import PANEL, SIZES, Moved, panels_of
from spmark.report.claims.published import Claim, Measure, Statistic

DEFAULT: Final = "default"
"""Stands for the platform's default config, which speed-ups are over."""
_SPEEDUPS = {
    "top1": "top1_speedup", "top5": "top5_speedup", "optimum": "optimum_speedup",
    "greatest_top1": "greatest_top1_speedup", "greatest_top5": "greatest_top5_speedup",
}  # fmt: skip
_SCORES = {
    "top1_share": "top1_share", "top5_share": "top5_share", "ape": "ape_share", "opa": "opa_score", "tau": "tau_score",
}  # fmt: skip
_ADVANTAGE = "advantage"


@dataclass(frozen=True)
class MovedNumber:
    """A number of a study, in the claim's unit."""

    interval: Interval
    matrices: int
    remark: str
    """Which panel and sizes, and over what the interval is."""


def known_metric(measure: Measure) -> bool:
    """Tell whether a measure names a metric of its statistic, and another method where one is needed."""
    if measure.statistic is Statistic.TRANSFER_SPEEDUP:
        return measure.metric in _SPEEDUPS and bool(measure.over)
    if measure.metric == _ADVANTAGE:
        return bool(measure.over) and measure.over != DEFAULT
    return measure.metric in _SCORES and not measure.over


def moved_number(claim: Claim, moved: Moved | None) -> MovedNumber | str:
    """Find a claim's number, or say which result is missing."""
    measure, op = claim.measure, claim.conditions.op
    if not known_metric(measure):
        over = f" over {measure.over!r}" if measure.over else ""
        return f"expected a metric of {measure.statistic}, found {measure.metric!r}{over}"
    if moved is None or moved.gains.empty:
        return "no study of moved cost models among these results"
    for title, part in panels_of(moved.gains[moved.gains["target"] == measure.target]):
        rows = _of_sizes(part[(part["op"] == op) & (part["method"] == measure.of)], measure)
        if len(rows):
            return _number(claim, moved, title, rows.to_dict("records")[0])
    sizes = [f"{getattr(measure, name)} {name.replace('_', ' ')}" for name in SIZES if getattr(measure, name)]
    return f"no result of {measure.of} on {measure.target}" + (f" with {' and '.join(sizes)}" if sizes else "")


def _of_sizes(rows: pd.DataFrame, measure: Measure) -> pd.DataFrame:
    """Keep the rows of the sizes that a measure names, or of the headline sizes where the measure names none."""
    asked = {name: getattr(measure, name) for name in SIZES if getattr(measure, name)}
    if not asked:
        return rows[rows["headline"].astype(bool)]
    for name, count in asked.items():
        rows = rows[rows[name] == count]
    return rows.sort_values("headline", ascending=False, kind="stable")


def _number(claim: Claim, moved: Moved, title: str, row: Mapping[Any, Any]) -> MovedNumber | str:
    measure, scale = claim.measure, 100.0 if claim.unit == "%" else 1.0
    sizes = f"{row['source_matrices']} and {row['target_matrices']} matrices to learn from"
    told = f"{title}, {sizes}, {row['seeds']} seed{'s' if row['seeds'] > 1 else ''}, {row['matrices']} matrices judged"
    if measure.over not in ("", DEFAULT):
        ratio = _over(moved, row, measure)
        if not isfinite(ratio.value):
            return f"no result of {measure.over} on {measure.target}"
        taken = 1.0 if measure.metric == _ADVANTAGE else 0.0
        return MovedNumber(_scaled(ratio, scale, taken), row["matrices"], f"{told}; interval over matrices")
    column = _SPEEDUPS[measure.metric] if measure.statistic is Statistic.TRANSFER_SPEEDUP else _SCORES[measure.metric]
    interval = Interval(row[column], row.get(f"{column}_low", nan), row.get(f"{column}_high", nan))
    if not isfinite(interval.value):
        return f"no {measure.metric} of {measure.of} on {measure.target}"
    return MovedNumber(_scaled(interval, scale), row["matrices"], told)


def _over(moved: Moved, row: Mapping[str, Any], measure: Measure) -> Interval:
    """Give the ratio of the first choices of two methods at the headline sizes, over matrices."""
    column = _SPEEDUPS.get(measure.metric, "top1_speedup")
    here = moved.matrices
    for name in PANEL:
        here = here[here[name] == row[name]]
    by_method = {str(name): part.set_index("matrix")[column] for name, part in here.groupby("method")}
    if not {measure.of, measure.over} <= by_method.keys():
        return Interval(nan, nan, nan)
    return geometric_mean((by_method[measure.of] / by_method[measure.over]).dropna())


def _scaled(interval: Interval, scale: float, taken: float = 0.0) -> Interval:
    return Interval(*(scale * (end - taken) for end in (interval.value, interval.low, interval.high)))
