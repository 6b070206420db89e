"""Geometric-mean speed-ups that say what they cover: a mean over the cases that worked is silent about the others.

A mean that ranks implementations is taken over the cases that all of them solved; one that solved no more than half of
what any solved has no such mean, since the others would be judged by the little that it can do. Beside it stand the
mean over each one's own cases, the cases that were left out, by reason, and the kinds of matrices (real, pattern,
synthetic, twin) that it mixes, if it does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pandas as pd

from spmark.impls.core.record import Status
from spmark.report.derive.cases import PROBLEM, beside
from spmark.report.derive.statistics import Interval, geometric_mean

NOT_RUN = "not run"
_READ = (*PROBLEM, "matrix_kind", "is_baseline", "label", "implementation", "speedup", "wide", "status", "samples")
"""What means are made of: frames of all columns take longer to cut."""
MOSTLY = 0.5
"""Share of wide cases from which a mean is marked: its own interval does not show them."""
_COLUMNS = (
    "kinds", "label", "implementation", "common_speedup", "common_speedup_low", "common_speedup_high", "common_cases",
    "speedup", "speedup_low", "speedup_high", "cases", "wide_share", "left_out", "problems",
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
        the group's other ``problems`` are not among these (``2 timeout, 1 baseline unsupported``). Intervals are over
        cases within one matrix and over whole matrices else. Ordered by op, dtype, ``by`` and label.
    """
    keys = ["op", "dtype", *by]
    frame = derived[list(dict.fromkeys([*keys, *_READ]))].drop_duplicates([*keys, *PROBLEM, "label"], keep="last")
    frame = frame.assign(problem=frame.groupby([*keys, *PROBLEM]).ngroup())
    frame = frame.assign(problems=frame.groupby(keys)["problem"].transform("nunique"))
    of_group = frame.groupby(keys)["matrix_kind"].agg(_kinds).to_dict()
    rows = []
    for key, cases in _judged(frame, keys).groupby([*keys, "label"]):
        solved, problems = cases[cases["solved"]], int(cases["problems"].iloc[0])
        reasons = Counter(cases.loc[~cases["solved"], "why"]) + Counter({NOT_RUN: problems - len(cases)})
        named = {
            "kinds": of_group[key[:-1]],
            "implementation": cases["implementation"].iloc[0],
            **_mean(cases[cases["common"]].sort_values("problem"), "matrix" not in by, "common_"),
            **_mean(solved, "matrix" not in by),
            "wide_share": solved["wide"].mean(),
            "left_out": ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items())),
            "problems": problems,
        }
        rows.append(dict(zip([*keys, "label"], key, strict=True)) | named)
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


def kinds(frame: pd.DataFrame) -> str:
    """Name the kinds of matrices in a frame: one, or ``mixed: ...``; empty where no matrix was loaded."""
    return _kinds(frame["matrix_kind"])


def _kinds(of_rows: pd.Series[str]) -> str:
    present = sorted({str(kind) for kind in of_rows if kind})
    return ("mixed: " if len(present) > 1 else "") + ", ".join(present)


def over_matrices(rows: pd.DataFrame, column: str) -> Interval:
    """Give the geometric mean of a column's finite values, with an interval over matrices, or over one's cases."""
    known = rows[np.isfinite(rows[column])]
    return geometric_mean(known[column], list(known["matrix"]) if rows["matrix"].nunique() > 1 else None)


def _judged(frame: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Give the rivals' rows with ``solved``, ``common`` (in the mean that ranks) and ``why`` a row is left out."""
    rivals = frame[~frame["is_baseline"]]
    solved = rivals[np.isfinite(rivals["speedup"])]
    own, of_any = (solved.groupby(of)["problem"].transform("nunique") for of in ([*keys, "label"], keys))
    ranked = solved[2 * own > of_any]
    by_all = ranked.groupby("problem")["label"].transform("size") == ranked.groupby(keys)["label"].transform("nunique")
    baseline = beside(rivals, frame[frame["is_baseline"]], "status")["status"].fillna(NOT_RUN)
    why = np.select(
        [rivals["status"] != Status.OK.value, rivals["samples"] == 0],
        [rivals["status"], "not timed"],
        "baseline " + baseline,
    )
    return rivals.assign(
        solved=rivals.index.isin(solved.index), common=rivals.index.isin(by_all.index[by_all]), why=why
    )


def _mean(cases: pd.DataFrame, clustered: bool, prefix: str = "") -> dict[str, float]:
    mean = geometric_mean(cases["speedup"], list(cases["matrix"]) if clustered else None)
    return mean.columns(f"{prefix}speedup") | {f"{prefix}cases": len(cases)}
