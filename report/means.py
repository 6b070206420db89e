"""Geometric-mean speed-ups that say what they cover: a mean over the cases that worked is silent about the others.

Beside each mean stand the cases that were left out, by reason, and the mean over the cases that every implementation
of the group solved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from math import isfinite
from typing import Any

import pandas as pd

from spmark.impls.core.record import Status
from spmark.report.derive import Key, Row, problem_key
from spmark.report.statistics import geometric_mean

NOT_RUN = "not run"
_COLUMNS = (
    "label", "implementation", "speedup", "speedup_low", "speedup_high", "cases", "left_out", "common_speedup",
    "common_cases",
)  # fmt: skip


def mean_speedups(derived: pd.DataFrame, by: Sequence[str] = ()) -> pd.DataFrame:
    """Give the geometric mean of every label's speed-ups in every group.

    Parameters
    ----------
    derived : DataFrame
        As `spmark.report.derive.derive` gives it.
    by : sequence of str
        Columns that split the groups further than ``op`` and ``dtype``: ``matrix``, ``width`` or none.

    Returns
    -------
    DataFrame
        One row per group and label, the baseline's own rows left out: ``op``, ``dtype``, ``by``; ``speedup`` with its
        interval, over cases within one matrix and over whole matrices else; ``cases`` that it covers; ``left_out``,
        why the group's other problems are not in it (``2 timeout, 1 baseline unsupported``); ``common_speedup`` over
        the ``common_cases`` that all labels with any speed-up share. Ordered by op, dtype, ``by`` and label.
    """
    keys = ["op", "dtype", *by]
    rows = [
        dict(zip(keys, group, strict=True)) | row
        for group, part in derived.groupby(keys, sort=True)
        for row in _group(part.to_dict("records"), clustered="matrix" not in by)
    ]
    return pd.DataFrame(rows, columns=[*keys, *_COLUMNS])


def _group(rows: Sequence[Row], clustered: bool) -> list[dict[str, Any]]:
    problems = dict.fromkeys(problem_key(row) for row in rows)
    baselines = {problem_key(row): row for row in rows if row["is_baseline"]}
    by_label: dict[str, dict[Key, Row]] = {}
    for row in sorted((row for row in rows if not row["is_baseline"]), key=_label):
        by_label.setdefault(row["label"], {})[problem_key(row)] = row
    covered = {label: _covered(cases) for label, cases in by_label.items()}
    solved = [set(ratios) for ratios in covered.values() if ratios]
    common = set.intersection(*solved) if solved else set()
    return [
        {
            "label": label,
            "implementation": next(iter(cases.values()))["implementation"],
            **_mean(covered[label], clustered),
            "left_out": _left_out(problems, cases, covered[label], baselines),
            "common_speedup": geometric_mean([covered[label][key] for key in common & covered[label].keys()]).value,
            "common_cases": len(common) if covered[label] else 0,
        }
        for label, cases in by_label.items()
    ]


def _label(row: Row) -> str:
    return str(row["label"])


def _covered(cases: Mapping[Key, Row]) -> dict[Key, float]:
    return {key: row["speedup"] for key, row in cases.items() if isfinite(row["speedup"])}


def _mean(ratios: Mapping[Key, float], clustered: bool) -> dict[str, float]:
    clusters: list[Hashable] | None = [key[2] for key in ratios] if clustered else None
    mean = geometric_mean(list(ratios.values()), clusters)
    return {"speedup": mean.value, "speedup_low": mean.low, "speedup_high": mean.high, "cases": len(ratios)}


def _left_out(
    problems: Mapping[Key, None], cases: Mapping[Key, Row], covered: Mapping[Key, float], baselines: Mapping[Key, Row]
) -> str:
    reasons: Counter[str] = Counter()
    for key in problems:
        if key not in covered:
            reasons[_why(cases.get(key), baselines.get(key))] += 1
    return ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))


def _why(row: Row | None, baseline: Row | None) -> str:
    if row is None:
        return NOT_RUN
    if row["status"] != Status.OK.value:
        return str(row["status"])
    if not row["samples"]:
        return "not timed"
    return f"baseline {baseline['status'] if baseline else NOT_RUN}"
