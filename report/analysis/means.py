"""Geometric-mean speed-ups that say which cases they cover: a mean over solved cases is silent about the others.

A mean that ranks implementations is taken over the cases that all of them solved. An implementation that solved no more
than half of the cases that any solved has no such mean: the others would be judged by its few cases.

Matrices of one pattern count once, under one name (`spmark.report.analysis.cases.each_problem_once`).

Beside this mean stand the mean over each implementation's own cases, the cases left out, by reason, and the kinds of
matrices (real, pattern, synthetic, twin) where a mean mixes several.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from spmark.records.schema import Status
from spmark.report.analysis.cases import PROBLEM, each_problem_once
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
    frame, rivals = _judged(derived, keys)
    matrices, solved = None if "matrix" in by else "matrix", rivals[rivals["solved"]]
    means = rivals.drop_duplicates("place").sort_values("place").set_index("place")
    means = means.assign(kinds=means["in_group"].map(frame.groupby("in_group")["matrix_kind"].agg(_kinds)))
    means = means[[*keys, "kinds", "label", "implementation", "problems"]].join(
        [
            _means(rivals[rivals["common"]].sort_values("problem"), matrices, "common_"),
            _means(solved, matrices),
            solved.groupby("place")["wide"].mean().rename("wide_share"),
            _left_out(rivals),
        ]
    )
    means = means.fillna({"cases": 0, "common_cases": 0, "left_out": ""}).astype({"cases": int, "common_cases": int})
    return means.reset_index()[[*keys, *_COLUMNS]]


def mean_speedups_by_kind(derived: pd.DataFrame, by: Sequence[str] = ()) -> pd.DataFrame:
    """Give `mean_speedups` of each kind of matrix on its own, then, where there are several kinds, of all mixed.

    Returns
    -------
    DataFrame
        As `mean_speedups` gives it; ``kinds`` is one kind, or ``mixed: pattern, twin`` in the rows that mix.
    """
    of_all, known = mean_speedups(derived, by), derived[derived["matrix_kind"] != ""]
    if known["matrix_kind"].nunique() < 2:
        return of_all
    alone = mean_speedups(known, ["matrix_kind", *by]).sort_values("matrix_kind", kind="stable")
    return pd.concat([alone[of_all.columns], of_all], ignore_index=True)


def common_kinds(derived: pd.DataFrame) -> dict[tuple[str, str], set[str]]:
    """Give the kinds of matrices, by op and dtype, that the means over common cases of `mean_speedups` cover."""
    keys = ["op", "dtype"]
    rivals = _judged(derived, keys)[1]
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


def _judged(derived: pd.DataFrame, keys: list[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Give the rows that means read, each problem once, and of these the rivals', with what becomes of each.

    Both have numbers of a row's group (``in_group``), of its ``place`` (group and label) and of its ``problem``, by
    which rows are grouped faster than by texts, and the group's ``problems``. The rivals' have ``solved``, ``common``
    (in the mean that ranks) and ``why`` a row is left out.
    """
    frame = each_problem_once(derived[list(dict.fromkeys([*keys, *_READ]))])
    for name, of in (("in_group", keys), ("place", [*keys, "label"]), ("problem", [*keys, *PROBLEM])):
        frame = frame.assign(**{name: frame.groupby(of).ngroup()})
    frame = frame.assign(problems=frame.groupby("in_group")["problem"].transform("nunique"))
    rivals = frame[~frame["is_baseline"]]
    known = np.isfinite(rivals["speedup"])
    solved = rivals[known]
    own, of_any = (solved.groupby(of)["problem"].transform("nunique") for of in ("place", "in_group"))
    ranked = solved[2 * own > of_any]
    by_all = ranked.groupby("problem")["place"].transform("size") == ranked.groupby("in_group")["place"].transform(
        "nunique"
    )
    of_baseline = frame[frame["is_baseline"]].replace({"status": {Status.OK.value: "of another machine"}})
    became = dict(zip(of_baseline["problem"], of_baseline["status"], strict=True))
    why = np.select(
        [rivals["status"] != Status.OK.value, rivals["samples"] == 0],
        [rivals["status"], "not timed"],
        [f"baseline {became.get(problem, NOT_RUN)}" for problem in rivals["problem"]],
    )
    return frame, rivals.assign(solved=known, common=rivals.index.isin(by_all.index[by_all]), why=why)


def _means(rows: pd.DataFrame, clusters: str | None, prefix: str = "") -> pd.DataFrame:
    """Give the mean of each place with its interval over the values of a column, or over cases, and its cases."""
    ratios, drawn = rows["speedup"].to_numpy(np.float64), rows[clusters].to_numpy() if clusters else None
    name, cases = f"{prefix}speedup", f"{prefix}cases"
    means = {
        place: (*geometric_mean(ratios[own], None if drawn is None else drawn[own]).columns(name).values(), len(own))
        for place, own in rows.groupby("place").indices.items()
    }
    return pd.DataFrame.from_dict(means, "index", columns=[name, f"{name}_low", f"{name}_high", cases])


def _left_out(rivals: pd.DataFrame) -> pd.Series[str]:
    """Count, for each place, the problems without a speed-up by reason, with those that nobody ran there."""
    counts = Counter(rivals.loc[~rivals["solved"], ["place", "why"]].itertuples(index=False, name=None))
    tried = rivals.groupby("place").agg(rows=("problem", "size"), problems=("problems", "first"))
    counts.update({(place, NOT_RUN): problems - rows for place, rows, problems in tried.itertuples()})
    told: dict[int, list[str]] = {}
    for (place, why), count in sorted(counts.items(), key=lambda item: item[0][1]):
        if count:
            told.setdefault(place, []).append(f"{count} {why}")
    return pd.Series({place: ", ".join(of) for place, of in told.items()}, name="left_out")
