"""The figure of what building costs phase by phase, over the size of the matrix.

After figures 8 and 9 of Peng, Thomadakis, Pienaar and Kestor, "LiteForm", HPDC 2025, and figure 11 of Lin et al.,
"LO-SpMM", ACM TACO 2024.
"""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
import pandas as pd
from matplotlib.ticker import FuncFormatter

from spmark.impls.core.interfaces import PHASES
from spmark.report.analysis.cases import spent_s
from spmark.report.analysis.groups import in_panel_order, panels_of
from spmark.report.figures.findings import Finding, leading, said_seconds
from spmark.report.figures.names import broken
from spmark.report.figures.panels import grid, log_ticks, panel_room_in
from spmark.report.figures.plot import Plot, in_numbers_alone
from spmark.report.figures.style import COLUMN_IN, WIDTH_IN, Look, in_style

MOST_PANELS = 12
TOTAL = "all"
_LOOKS = MappingProxyType(
    {
        "features": Look("#4a8fb8", "o"), "select": Look("#cc79a7", "s"), "search": Look("#d55e00", "^"),
        "convert": Look("#009e73", "v"), "compile": Look("#c48706", "D"), "upload": Look("#8a8a8a", "x"),
        TOTAL: Look("#000000", "+"),
    }
)  # fmt: skip
_PANEL_PHASES = ("features", "search")
"""A label has a panel where a plan spent time in one of these. Other phases give none: most plans convert, and a
library's plan asks for its buffer under ``select``."""
_LEAST_S = 1e-5
_TITLE_POINTS = 8.5


def built(derived: pd.DataFrame) -> pd.DataFrame:
    """Give the seconds of every phase of the timed cases of labels that predict or search.

    Parameters
    ----------
    derived : DataFrame
        As `spmark.report.analysis.cases.derive` gives it.

    Returns
    -------
    DataFrame
        ``op, dtype, label, implementation, matrix, nnz, phase, seconds``, one row for each phase and `TOTAL`; medians
        over widths. Where labels are more than can be drawn, configs that a sweep pins are left out.
    """
    rows = derived[derived["median_us"].notna() & derived["nnz"].notna()]
    labels = set(rows.loc[spent_s(rows["phases_s"], _PANEL_PHASES) > 0, "label"])
    rows = rows[rows["label"].isin(labels)]
    if rows.groupby(["op", "dtype", "label"]).ngroups > MOST_PANELS:
        rows = rows[rows["requested"].map(len) == 0]
    keys = ["op", "dtype", "label", "implementation", "matrix", "nnz"]
    seconds = {phase: spent_s(rows["phases_s"], [phase]) for phase in PHASES}
    wide = rows[keys].assign(**seconds, **{TOTAL: rows["build_s"]})
    medians = wide.groupby(keys, sort=True)[[*PHASES, TOTAL]].median().reset_index()
    long = medians.melt(keys, var_name="phase", value_name="seconds")
    return long[long["seconds"] > 0].reset_index(drop=True)


@in_style
def overhead_by_phase(derived: pd.DataFrame, width_in: float = WIDTH_IN) -> Plot:
    """Draw the seconds of each phase over the non-zeros, a panel for each op, dtype and label.

    Parameters
    ----------
    derived : DataFrame
        As `spmark.report.analysis.cases.derive` gives it; `built` of it must not be empty.
    width_in : float
        Width of the figure in inches.
    """
    data = in_panel_order(built(derived))
    cells = [
        (f"{label}: {op}, {dtype}", part)
        for (op, dtype), panel in panels_of(data)
        for label, part in panel.groupby("label", sort=True)
    ]
    cells, left_out = cells[:MOST_PANELS], [title for title, _ in cells[MOST_PANELS:]]
    present = {phase: look for phase, look in _LOOKS.items() if phase in set(data["phase"])}
    figure, axes = grid(len(cells), present, "points", width_in, 1.7)
    seconds = data["seconds"].clip(lower=_LEAST_S)
    low, high = 10.0 ** np.floor(np.log10(seconds.min())), 10.0 ** np.ceil(np.log10(seconds.max() * 1.01))
    for ax, (title, part) in zip(axes, cells, strict=True):
        ax.set_title(broken(title, panel_room_in(width_in), _TITLE_POINTS), loc="left", fontsize=_TITLE_POINTS)
        ax.set_xscale("log")
        ax.set_yscale("log")
        for phase, look in present.items():
            # The sum is a cross, through which the phase that takes nearly all of the time is seen.
            mine, size = part[part["phase"] == phase], 6.0 if phase == TOTAL else 3.5
            ax.plot(mine["nnz"], mine["seconds"].clip(lower=_LEAST_S), look.marker, color=look.colour, markersize=size)
        ax.set_ylim(low, high)
        log_ticks(ax.yaxis, [low, high], 5)
        ax.yaxis.set_major_formatter(FuncFormatter(lambda seconds, _: said_seconds(seconds)))
        log_ticks(ax.xaxis, data["nnz"], 5 if width_in > COLUMN_IN else 4)
        ax.grid(axis="y")
        ax.set_xlabel("non-zeros")
    caption = (
        "Time of building by phase, over the non-zeros of the matrix, medians over J; the black crosses are the sum "
        f"of all phases. What is below {_LEAST_S * 1e6:g} µs stands at the lower edge."
    ) + in_numbers_alone(left_out, "; ")
    finding = _least_time(data)
    return Plot("overhead-by-phase", caption, figure, data, "Time of building by phase", finding.text)


def _least_time(data: pd.DataFrame) -> Finding:
    """Say in one sentence who builds in the least time."""
    totals = data[data["phase"] == TOTAL]
    return leading(totals, "seconds", "builds in the least time", said_seconds, less=True, case=("matrix",))
