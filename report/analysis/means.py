"""Geometric-mean speed-ups that say which cases they cover: a mean over solved cases is silent about the others.

A mean that ranks implementations is taken over the cases that all of them solved. An implementation that solved no more
than half of the cases that any solved has no such mean: the others would be judged by its few cases.

Matrices of one pattern count once, under one name (`spmark.report.analysis.cases.each_problem_once`).

Beside this mean stand the mean over each implementation's own cases, the cases left out, by reason, and the kinds of
matrices (real, pattern, synthetic, twin) where a mean mixes several.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from spmark.records.schema import Status
from spmark.report.analysis.cases import PROBLEM, beside, each_problem_once
from spmark.report.analysis.statistics import Interval, geometric_mean

NOT_RUN = "not run"
_READ = (
    *PROBLEM, "pattern", "matrix_kind", "is_baseline", "label", "implementation", "started_at", "status", "samples",
    "speedup", "wide",
)  # fmt: skip
"""Columns that means are made of: selecting rows of all columns takes longer."""
MOSTLY = 0.5
"""Share of wide cases from which a mean is marked: the mean's own interval does not show such cases."""
_COLUMNS = (
    "kinds", "label", "implementation", "common_speedup", "common_speedup_low", "common_speedup_high", "common_cases",
    "speedup", "speedup_low", "speedup_high", "cases", "wide_share", "left_out", "problems",
)  # fmt: skip


def mean_speedups(derived: pd.DataFrame, by: Sequence[str] = ()) -> pd.DataFrame:
    """Give the geometric mean of every label's speed-ups in every group.

    Parameters
    ----------
    derived : DataFrame
        As `spmark.report.analysis.cases.derive` gives it.
    by : sequence of str
        Columns that split the groups further than ``op`` and ``dtype``: ``matrix``, ``width`` or none.

    Returns
    -------
    DataFrame
        One row per group and label, ordered by op, dtype, ``by`` and label; the baseline's own rows are left out.
        Intervals are over cases within one matrix and over whole matrices else. Columns:

        - ``op``, ``dtype``, ``by``, and ``kinds`` of the group's matrices.
        - ``common_speedup`` with its interval, over the ``common_cases`` that all labels share which solved more than
          half of the cases that any solved; NaN for the other labels.
        - ``speedup`` with its interval over the label's own ``cases``; ``wide_share``, the share of these cases whose
          own interval is wide.
        - ``left_out``, why the group's other ``problems`` are not among these cases
          (``2 timeout, 1 baseline unsupported``).
    """
    keys = ["op", "dtype", *by]
    frame = _numbered(derived, keys)
    rivals, places, clustered = _judged(frame, keys), [*keys, "label"], "matrix" not in by
    solved = rivals[rivals["solved"]]
    means = rivals.groupby(places).agg(implementation=("implementation", "first"), problems=("problems", "first"))
    parts = (
        _means(rivals[rivals["common"]].sort_values("problem"), places, clustered, "common_"),
        _means(solved, places, clustered),
        solved.groupby(places)["wide"].mean().rename("wide_share"),
        _left_out(rivals, places),
    )
    for part in parts:
        means = means.join(part)
    means = means.join(frame.groupby(keys)["matrix_kind"].agg(_kinds).rename("kinds"), on=keys)
    means = means.fillna({"cases": 0, "common_cases": 0, "left_out": ""}).astype({"cases": int, "common_cases": int})
    return means.reset_index()[[*keys, *_COLUMNS]]


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


def common_kinds(derived: pd.DataFrame) -> dict[tuple[str, str], set[str]]:
    """Give the kinds of matrices, by op and dtype, that the means over common cases of `mean_speedups` cover."""
    keys = ["op", "dtype"]
    rivals = _judged(_numbered(derived, keys), keys)
    found: Any = rivals[rivals["common"]].groupby(keys)["matrix_kind"].agg(set)
    return dict(found.items())


def kinds(frame: pd.DataFrame) -> str:
    """Name the kinds of matrices in a frame: one, or ``mixed: ...``; empty where no matrix was loaded."""
    return _kinds(frame["matrix_kind"])


def _kinds(of_rows: pd.Series[str]) -> str:
    present = sorted({str(kind) for kind in of_rows if kind})
    return ("mixed: " if len(present) > 1 else "") + ", ".join(present)


def by_group(frame: pd.DataFrame, keys: list[str], of: Callable[[pd.DataFrame], Mapping[str, Any]]) -> pd.DataFrame:
    """Give one row for each group, in the order of the keys: its keys, and what ``of`` gives of the group's rows."""
    return pd.DataFrame([dict(zip(keys, key, strict=True)) | dict(of(part)) for key, part in frame.groupby(keys)])


def over_matrices(rows: pd.DataFrame, column: str) -> Interval:
    """Give the geometric mean of a column's finite values, with an interval over matrices, or over one's cases."""
    ratios, matrices = rows[column].to_numpy(np.float64), rows["matrix"].to_numpy()
    known = np.isfinite(ratios)
    return geometric_mean(ratios[known], matrices[known] if len(set(matrices)) > 1 else None)


def _numbered(derived: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Give the rows that means read, each problem once, with a number for each problem and a group's problems."""
    frame = each_problem_once(derived[list(dict.fromkeys([*keys, *_READ]))])
    frame = frame.assign(problem=frame.groupby([*keys, *PROBLEM]).ngroup())
    return frame.assign(problems=frame.groupby(keys)["problem"].transform("nunique"))


def _judged(frame: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Give the rivals' rows with ``solved``, ``common`` (in the mean that ranks) and ``why`` a row is left out."""
    rivals = frame[~frame["is_baseline"]]
    solved = rivals[np.isfinite(rivals["speedup"])]
    own, of_any = (solved.groupby(of)["problem"].transform("nunique") for of in ([*keys, "label"], keys))
    ranked = solved[2 * own > of_any]
    by_all = ranked.groupby("problem")["label"].transform("size") == ranked.groupby(keys)["label"].transform("nunique")
    baseline = beside(rivals, frame[frame["is_baseline"]], "status")["status"].fillna(NOT_RUN)
    baseline = baseline.replace(Status.OK.value, "of another machine")
    why = np.select(
        [rivals["status"] != Status.OK.value, rivals["samples"] == 0],
        [rivals["status"], "not timed"],
        "baseline " + baseline,
    )
    return rivals.assign(
        solved=rivals.index.isin(solved.index), common=rivals.index.isin(by_all.index[by_all]), why=why
    )


def _means(rows: pd.DataFrame, places: list[str], clustered: bool, prefix: str = "") -> pd.DataFrame:
    ratios, matrices = rows["speedup"].to_numpy(np.float64), rows["matrix"].to_numpy()
    name, cases = f"{prefix}speedup", f"{prefix}cases"
    groups: dict[Any, Any] = rows.groupby(places).indices
    means = [
        (*key, *geometric_mean(ratios[own], matrices[own] if clustered else None).columns(name).values(), len(own))
        for key, own in groups.items()
    ]
    return pd.DataFrame(means, columns=[*places, name, f"{name}_low", f"{name}_high", cases]).set_index(places)


def _left_out(rivals: pd.DataFrame, places: list[str]) -> pd.Series[str]:
    failed = rivals[~rivals["solved"]].groupby([*places, "why"]).size().rename("count").reset_index()
    groups = rivals.groupby(places)
    absent = (groups["problems"].first() - groups.size()).rename("count").reset_index().assign(why=NOT_RUN)
    counts = pd.concat([failed, absent[absent["count"] > 0]]).sort_values("why")
    told = [f"{n} {why}" for n, why in zip(counts["count"], counts["why"], strict=True)]
    counts = counts.assign(left_out=pd.Series(told, counts.index, object))
    return counts.groupby(places)["left_out"].agg(", ".join)
