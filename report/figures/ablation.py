"""The configs of one implementation beside each other: time and search time over those of its first label.

The papers' ablations are of this kind: without withdrawing, with one level, with another order of rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from spmark.report.analysis import means
from spmark.report.analysis.cases import ALL, MOST_POOLED, beside, groups_of, in_panel_order, spent_s
from spmark.report.figures.findings import CASE, leading
from spmark.report.figures.panels import by_group, said_ratio
from spmark.report.figures.plot import Plot, looks_of, not_drawn
from spmark.report.figures.style import WIDTH_IN, in_style
from spmark.report.tables.table import Table

RATIOS: Mapping[str, tuple[str, str, str]] = {
    "time_ratio": ("variant-times", "time", "is fastest"),
    "search_ratio": ("variant-searches", "search time", "searches the shortest"),
}
"""Of each ratio the name of its figure, what it is of, and what the least one does."""
_MOST_LETTERS = 24
MOST_VARIANTS = 12
"""Labels up to which bars are drawn; more are in the table alone."""
_COLUMNS = (
    "op", "dtype", "group", "label", "over", "implementation", "cases",
    "time_ratio", "time_ratio_low", "time_ratio_high", "search_ratio", "search_ratio_low", "search_ratio_high",
)  # fmt: skip


def variant_cases(derived: pd.DataFrame) -> pd.DataFrame:
    """Give the cases of further labels with their time and search time over those of the implementation's first.

    Parameters
    ----------
    derived : DataFrame
        As `spmark.report.analysis.cases.derive` gives it.

    Returns
    -------
    DataFrame
        The rows with ``over`` (the label that bears the implementation's name, else the one that was run first),
        ``time_ratio`` and ``search_ratio``; 2 means that this config takes twice as long.

        Ratios of times are of speed-ups over the interleaved baseline where both have one, so that the drift between
        two cases cancels. Search time is all time spent on a matrix before its first run, except for the upload.
    """
    rows = derived[derived["median_us"].notna() & ~derived["is_baseline"]]
    rows = rows.assign(spent_s=spent_s(rows["phases_s"]))
    none = rows.iloc[:0].assign(over="", time_ratio=0.0, search_ratio=0.0)
    parts = [_of_one(str(name), part) for name, part in rows.groupby("implementation")]
    return pd.concat([none, *parts], ignore_index=True)


def _of_one(name: str, rows: pd.DataFrame) -> pd.DataFrame:
    labels = rows.sort_values("started_at", kind="stable")["label"]
    over = name if (labels == name).any() else str(labels.iloc[0])
    rest = rows[rows["label"] != over]
    first = beside(rest, rows[rows["label"] == over], "median_us", "speedup", "spent_s")
    time = (first["speedup"] / rest["speedup"]).fillna(rest["median_us"] / first["median_us"])
    search = (rest["spent_s"] / first["spent_s"]).where((rest["spent_s"] > 0) & (first["spent_s"] > 0))
    return rest.assign(over=over, time_ratio=time, search_ratio=search)[first["median_us"].notna()]


def variants(derived: pd.DataFrame) -> pd.DataFrame:
    """Give geometric means of `variant_cases` for every group of matrices, and over all of a panel.

    Returns
    -------
    DataFrame
        ``op, dtype, group, label, over, implementation, cases`` and the two ratios with 95 % intervals: over the cases
        of a matrix, over the matrices of a pool and of ``all``.
    """
    cases = variant_cases(derived)
    groups, order = groups_of(cases)
    both = pd.concat([cases.assign(group=groups), cases.assign(group=ALL)])
    frame = means.by_group(both, list(_COLUMNS[:6]), _ratios).reindex(columns=list(_COLUMNS))
    place = {group: at for at, group in enumerate([*order, ALL])}
    return in_panel_order(frame.sort_values("group", key=lambda names: names.map(place), kind="stable"))


def _ratios(cases: pd.DataFrame) -> dict[str, Any]:
    time, search = (means.over_matrices(cases, name).columns(name) for name in RATIOS)
    return {"cases": len(cases)} | time | search


def variant_table(derived: pd.DataFrame) -> Table:
    """Give `variants` as a table, with a note for the reader."""
    note = (
        "Time of one run, and seconds from the matrix to its plan, of each config over those of the label beside it: "
        "above 1 it takes longer. Geometric means over the cases that both solved, with 95 % intervals over the widths "
        "of a matrix, and over matrices in pools and in ‘all’."
    )
    return Table("variants", "Configs of one implementation beside each other", note, variants(derived))


@in_style
def variant_ratios(derived: pd.DataFrame, ratio: str, width_in: float = WIDTH_IN) -> Plot:
    """Draw one of `RATIOS` as bars for each group of matrices.

    Parameters
    ----------
    derived : DataFrame
        As `spmark.report.analysis.cases.derive` gives it; `drawable` must hold for it.
    ratio : str
        Out of `RATIOS`.
    width_in : float
        Width of the figure in inches.
    """
    data = variants(derived)
    columns = [ratio, f"{ratio}_low", f"{ratio}_high"]
    data = data.loc[data[ratio].notna(), [*_COLUMNS[:7], *columns]].reset_index(drop=True)
    name, what, leads = RATIOS[ratio]
    firsts = ", ".join(dict.fromkeys(data["over"]))
    axis = f"{what} over\n{firsts if len(firsts) <= _MOST_LETTERS else 'the first'}"
    told = [leading(part, ratio, leads, said_ratio, less=True) for part in _with_firsts(variant_cases(derived), ratio)]
    series = looks_of(data, derived, [label for one in told for label in one.labels])
    figure = by_group(data, series, columns, list(dict.fromkeys(data["group"])), width_in, axis=axis)
    caption = (
        f"Geometric-mean {what} of each config over that of {firsts} (1.0; above, it takes longer), with 95 % "
        f"intervals, over the cases that both solved{not_drawn(data, series)}."
    )
    heading = f"{what.capitalize()} of each config over that of {firsts}"
    finding = " ".join(one.text for one in told)
    return Plot(name, caption, figure, data, heading, finding)


def _with_firsts(cases: pd.DataFrame, ratio: str) -> list[pd.DataFrame]:
    """Give the cases of each first label's configs, with those of the first label itself, whose ratio is 1."""
    known = cases[cases[ratio].notna()]
    own = known.drop_duplicates(["op", "dtype", *CASE, "over"])
    both = pd.concat([known, own.assign(label=own["over"], **{ratio: 1.0})], ignore_index=True)
    return [part for _, part in both.groupby("over", sort=True)]


def drawable(derived: pd.DataFrame, ratio: str) -> bool:
    """Tell whether there are configs to draw, and few enough of them and of matrices for bars."""
    cases = variant_cases(derived)
    cases = cases[cases[ratio].notna()]
    return 0 < cases["label"].nunique() <= MOST_VARIANTS and len(groups_of(cases)[1]) <= MOST_POOLED
