"""The figure of how near a case comes to the floor that the device sets."""

from __future__ import annotations

import pandas as pd
from matplotlib.ticker import FuncFormatter

from spmark.report.derive.groups import MOST_GROUPS, by_size, in_panel_order
from spmark.report.derive.statistics import mean_of
from spmark.report.figures.panels import by_group
from spmark.report.figures.plot import Plot
from spmark.report.figures.style import WIDTH_IN, in_style


@in_style
def roofline_share(derived: pd.DataFrame, width_in: float = WIDTH_IN) -> Plot:
    """Draw how near the device's floor each matrix comes: bars, or sorted curves where matrices are many.

    Parameters
    ----------
    derived : DataFrame
        As `spmark.report.derive.cases.derive` gives it; a ``roofline_share`` must be known.
    width_in : float
        Width of the figure in inches.
    """
    known = derived[derived["roofline_share"].notna()].assign(group=derived["matrix"])
    matrices = by_size(known)
    shares = known.groupby(["op", "dtype", "group", "label", "implementation"])["roofline_share"]
    data = in_panel_order(shares.agg(share=mean_of, least="min", greatest="max", cases="size").reset_index())
    curves = len(matrices) > MOST_GROUPS
    figure, panels = by_group(data, ("share", "least", "greatest"), matrices, width_in, curves=curves, start=0.0)
    for ax, _ in panels:
        ax.set_ylabel("share of floor")
        ax.grid(axis="y")
        ax.set_ylim(0, max(0.1, min(1.5, ax.get_ylim()[1])))
        ax.axhline(1, color="black", linewidth=0.8)
        ax.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:.0%}"))
    if curves:
        ax.set_xlabel("matrices, sorted by share")
    caption = (
        "Share of the floor that the device sets, the larger of the compulsory bytes at its copy bandwidth and the "
        "flops at its highest rate, over the measured median: geometric mean over the widths of a matrix"
        + ("." if curves else "; whiskers reach from the least to the greatest.")
    )
    return Plot("roofline", caption, figure, data.rename(columns={"group": "matrix"}))
