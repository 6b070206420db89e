"""Geometric-mean speed-ups that say what they cover: a mean over the cases that worked is silent about the others.

A mean that ranks implementations is taken over the cases that all of them solved; one that solved no more than half of
what any solved has no such mean, since the others would be judged by the little that it can do. Beside it stand the
mean over each one's own cases, the cases that were left out, by reason, and the kinds of matrices (real, pattern,
synthetic, twin) that it mixes, if it does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from math import isfinite, nan
from typing import Any

import numpy as np
import pandas as pd

from spmark.impls.core.record import Status
from spmark.report.derive.cases import PROBLEM, Key, Row, problem_key
from spmark.report.derive.statistics import geometric_mean

NOT_RUN = "not run"
_READ = (*PROBLEM, "is_baseline", "label", "implementation", "speedup", "wide", "status", "samples")
"""What a group is judged by: rows of all columns take longer to make than means."""
_COLUMNS = (
    "kinds", "label", "implementation", "common_speedup", "common_speedup_low", "common_speedup_high", "common_cases",
    "speedup", "speedup_low", "speedup_high", "cases", "wide_share", "left_out",
)  # fmt: skip


def mean_speedups(derived: pd.DataFrame, by: Sequence[str] = ()) -> pd.DataFrame:
    """Give the geometric mean of every label's speed-ups in every group.

    Parameters
    ----------
    derived : DataFrame
        As `spmark.report.derive.cases.derive` gives it.
    by : sequence of str
        Columns that split the groups further than ``op`` and ``dtype``: ``matrix``, ``width`` or none.

    Returns
    -------
    DataFrame
        One row per group and label, the baseline's own rows left out: ``op``, ``dtype``, ``by``; ``kinds`` of the
        group's matrices; ``common_speedup`` with its interval, over the ``common_cases`` that all labels share which
        solved more than half of the cases that any solved (NaN for the other labels); ``speedup`` with its interval
        over the label's own ``cases``; ``wide_share``, the share of these whose own interval is wide; ``left_out``, why
        the group's other problems are not among these (``2 timeout, 1 baseline unsupported``). Intervals are over cases
        within one matrix and over whole matrices else. Ordered by op, dtype, ``by`` and label.
    """
    keys = ["op", "dtype", *by]
    rows = [
        dict(zip(keys, group, strict=True)) | {"kinds": kinds(part)} | row
        for group, part in derived.groupby(keys, sort=True)
        for row in _group(part[list(_READ)].to_dict("records"), clustered="matrix" not in by)
    ]
    return pd.DataFrame(rows, columns=[*keys, *_COLUMNS])


def mean_speedups_by_kind(derived: pd.DataFrame, by: Sequence[str] = ()) -> pd.DataFrame:
    """Give `mean_speedups` of each kind of matrix on its own, then, where there are several kinds, of all mixed.

    Returns
    -------
    DataFrame
        As `mean_speedups` gives it; ``kinds`` is one kind, or ``mixed: pattern, twin`` in the rows that mix.
    """
    present = sorted({kind for kind in derived["matrix_kind"] if kind})
    alone = [mean_speedups(derived[derived["matrix_kind"] == kind], by) for kind in present if len(present) > 1]
    return pd.concat([*alone, mean_speedups(derived, by)], ignore_index=True)


def mostly_wide(mean: Mapping[Hashable, Any]) -> bool:
    """Tell whether at least half of a mean's cases have a wide interval, which the mean's own does not show."""
    return bool(mean["wide_share"] >= 0.5)


def kinds(frame: pd.DataFrame) -> str:
    """Name the kinds of matrices in a frame: one, or ``mixed: ...``; empty where no matrix was loaded."""
    present = sorted({str(kind) for kind in frame["matrix_kind"] if kind})
    return ("mixed: " if len(present) > 1 else "") + ", ".join(present)


def _group(rows: Sequence[Row], clustered: bool) -> list[dict[str, Any]]:
    problems = dict.fromkeys(problem_key(row) for row in rows)
    baselines = {problem_key(row): row for row in rows if row["is_baseline"]}
    by_label: dict[str, dict[Key, Row]] = {}
    for row in sorted((row for row in rows if not row["is_baseline"]), key=_label):
        by_label.setdefault(row["label"], {})[problem_key(row)] = row
    covered = {label: _covered(cases) for label, cases in by_label.items()}
    solved = set().union(*covered.values())
    ranked = {label: ratios for label, ratios in covered.items() if 2 * len(ratios) > len(solved)}
    common = sorted(solved.intersection(*ranked.values()))
    return [
        {
            "label": label,
            "implementation": next(iter(cases.values()))["implementation"],
            **_mean({key: ranked[label][key] for key in common if label in ranked}, clustered, "common_"),
            **_mean(covered[label], clustered),
            "wide_share": float(np.mean([cases[key]["wide"] for key in covered[label]])) if covered[label] else nan,
            "left_out": _left_out(problems, cases, covered[label], baselines),
        }
        for label, cases in by_label.items()
    ]


def _label(row: Row) -> str:
    return str(row["label"])


def _covered(cases: Mapping[Key, Row]) -> dict[Key, float]:
    return {key: row["speedup"] for key, row in cases.items() if isfinite(row["speedup"])}


def _mean(ratios: Mapping[Key, float], clustered: bool, prefix: str = "") -> dict[str, float]:
    clusters: list[Hashable] | None = [key[2] for key in ratios] if clustered else None
    mean = geometric_mean(list(ratios.values()), clusters)
    named = {"speedup": mean.value, "speedup_low": mean.low, "speedup_high": mean.high, "cases": len(ratios)}
    return {prefix + name: value for name, value in named.items()}


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
