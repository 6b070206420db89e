"""What the configs of one implementation do beside each other: time and search time over those of its first label.

The papers' ablations are of this kind: without withdrawing, with one level, with another order of rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from spmark.report.derive.cases import PROBLEM, SPENT_PHASES
from spmark.report.derive.groups import ALL, MOST_POOLED, groups_of, in_panel_order, panels_of
from spmark.report.derive.statistics import Interval, geometric_mean
from spmark.report.figures.panels import grouped_bars, name_groups, ratio_axis, stacked
from spmark.report.figures.plot import Plot, looks_of
from spmark.report.figures.style import WIDTH_IN, in_style
from spmark.report.tables.table import Table

RATIOS = ("time_ratio", "search_ratio")
_NAMES = {"time_ratio": "variant-times", "search_ratio": "variant-searches"}
MOST_VARIANTS = 8
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
        As `spmark.report.derive.cases.derive` gives it.

    Returns
    -------
    DataFrame
        The rows with ``over`` (the label that bears the implementation's name, else the one that was run first),
        ``time_ratio`` and ``search_ratio``; 2 means that this config takes twice as long. Ratios of times are of
        speed-ups over the interleaved baseline where both have one, so that the drift between two cases cancels. A
        search is all that is spent on a matrix before its first run but the upload.
    """
    rows = derived[derived["median_us"].notna() & ~derived["is_baseline"]]
    spent = rows["phases_s"].map(lambda phases: sum(phases.get(phase, 0.0) for phase in SPENT_PHASES))
    rows = rows.assign(spent_s=spent)
    parts = [_of_one(part) for _, part in rows.groupby("implementation", sort=True) if part["label"].nunique() > 1]
    return pd.concat(parts, ignore_index=True) if parts else rows.iloc[:0].assign(over="", time_ratio=0, search_ratio=0)


def _of_one(rows: pd.DataFrame) -> pd.DataFrame:
    name = str(rows["implementation"].iloc[0])
    earliest = rows.sort_values("started_at", kind="stable")["label"]
    over = name if name in set(earliest) else str(earliest.iloc[0])
    first = rows[rows["label"] == over].drop_duplicates(list(PROBLEM), keep="last")
    beside = first[[*PROBLEM, "median_us", "speedup", "spent_s"]].rename(
        columns={"median_us": "first_us", "speedup": "first_speedup", "spent_s": "first_s"}
    )
    found = rows[rows["label"] != over].merge(beside, on=list(PROBLEM))
    drifting = found["median_us"] / found["first_us"]
    time = (found["first_speedup"] / found["speedup"]).where(lambda ratio: ratio.notna(), drifting)
    search = (found["spent_s"] / found["first_s"]).where((found["spent_s"] > 0) & (found["first_s"] > 0))
    return found.assign(over=over, time_ratio=time, search_ratio=search)


def variants(derived: pd.DataFrame) -> pd.DataFrame:
    """Give geometric means of `variant_cases` for every group of matrices, and over all of a panel.

    Returns
    -------
    DataFrame
        ``op, dtype, group, label, over, implementation, cases`` and the two ratios with 95 % intervals: over the cases
        of a matrix, over the matrices of a pool and of ``all``.
    """
    cases = variant_cases(derived)
    groups, order = groups_of(cases) if len(cases) else (cases["matrix"], [])
    keys = ["op", "dtype", "group", "label", "over", "implementation"]
    rows = [
        dict(zip(keys, key, strict=True)) | _means(part)
        for named in (cases.assign(group=groups), cases.assign(group=ALL))
        for key, part in named.groupby(keys, sort=True)
    ]
    frame = pd.DataFrame(rows, columns=list(_COLUMNS))
    place = {group: at for at, group in enumerate([*order, ALL])}
    return in_panel_order(frame.sort_values("group", key=lambda names: names.map(place), kind="stable"))


def _means(part: pd.DataFrame) -> dict[str, float]:
    clusters = list(part["matrix"]) if part["matrix"].nunique() > 1 else None
    found: dict[str, float] = {"cases": len(part)}
    for name in RATIOS:
        known = part[name].to_numpy(np.float64)
        of = None if clusters is None else [c for c, value in zip(clusters, known, strict=True) if np.isfinite(value)]
        mean = geometric_mean(known[np.isfinite(known)], of)
        found |= {name: mean.value, f"{name}_low": mean.low, f"{name}_high": mean.high}
    return found


def variant_table(derived: pd.DataFrame) -> Table:
    """Give `variants` with what a reader must know."""
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
        As `spmark.report.derive.cases.derive` gives it; `drawable` must hold for it.
    ratio : str
        Out of `RATIOS`.
    width_in : float
        Width of the figure in inches.
    """
    columns = [name for name in _COLUMNS if name not in RATIOS and not name.endswith(("_low", "_high"))]
    data = variants(derived)
    data = data[data[ratio].notna()][[*columns, ratio, f"{ratio}_low", f"{ratio}_high"]].reset_index(drop=True)
    series, panels = looks_of(data), panels_of(data)
    groups = list(dict.fromkeys(data["group"]))
    figure, axes = stacked(len(panels), series, "bars", groups, width_in)
    what = "time" if ratio == "time_ratio" else "search time"
    firsts = ", ".join(dict.fromkeys(data["over"]))
    for ax, ((op, dtype), part) in zip(axes, panels, strict=True):
        ax.set_title(f"{op}, {dtype}", loc="left")
        ax.set_ylabel(f"{what} over\n{_shortened(firsts)}")
        here = [group for group in groups if group in set(part["group"])]
        bars = {
            (str(row["group"]), str(row["label"])): Interval(row[ratio], row[f"{ratio}_low"], row[f"{ratio}_high"])
            for row in part.to_dict("records")
        }
        grouped_bars(ax, bars, here, series, start=1.0, missing=set())
        name_groups(ax, here, (), width_in)
        ratio_axis(ax)
    spent = "" if ratio == "time_ratio" else f" ({', '.join(SPENT_PHASES)})"
    caption = (
        f"Geometric-mean {what}{spent} of each config over that of {firsts} (1.0): above 1 it takes longer. Whiskers "
        "are 95 % intervals over the widths of a matrix, and over matrices in pools of layers and in the shaded group, "
        "over the cases that both solved."
    )
    return Plot(_NAMES[ratio], caption, figure, data)


def drawable(derived: pd.DataFrame, ratio: str) -> bool:
    """Tell whether there are configs to draw, and few enough of them and of matrices for bars."""
    cases = variant_cases(derived)
    cases = cases[cases[ratio].notna()]
    if cases.empty:
        return False
    _, order = groups_of(cases)
    return cases["label"].nunique() <= MOST_VARIANTS and len(order) <= MOST_POOLED


def _shortened(names: Sequence[str] | str, most: int = 24) -> str:
    text = str(names)
    return text if len(text) <= most else "the first"
