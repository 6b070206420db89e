"""The report's figures: which ones records hold, and how much of the device's floor a case reaches.

A panel is one op and dtype, a colour one implementation. Speed-ups stand in `spmark.report.figures.speedups`, what
plans cost in `spmark.report.figures.costs`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.ticker import FuncFormatter

from spmark.report.derive.groups import MOST_GROUPS, by_size, in_panel_order, panels_of
from spmark.report.derive.statistics import Interval, geometric_mean
from spmark.report.figures.costmodel import cost_model, priced
from spmark.report.figures.costs import break_even, search_time, searched
from spmark.report.figures.memory import held, memory_per_matrix
from spmark.report.figures.overheads import built, overhead_by_phase
from spmark.report.figures.panels import grouped_bars, name_groups, sorted_curves, stacked
from spmark.report.figures.plot import Drawing, Plot, looks_of, render
from spmark.report.figures.predictions import predicted, predicted_times
from spmark.report.figures.series import series_of, time_over_series
from spmark.report.figures.speedups import speedup_over_size, speedup_per_matrix, speedup_per_width
from spmark.report.figures.style import WIDTH_IN, in_style
from spmark.report.figures.variants import RATIOS, drawable, variant_ratios


def draw_all(derived: pd.DataFrame, baseline: str | None, seen: pd.DataFrame | None = None) -> list[Drawing]:
    """Draw what the records of one device hold.

    Parameters
    ----------
    derived : DataFrame
        As `spmark.report.derive.cases.derive` gives it.
    baseline : str or None
        What the speed-ups are over, for captions and axes.
    seen : DataFrame, optional
        What searches measured, as `spmark.report.load.candidates.measured` gives it.
    """
    resultless = sorted(set(derived["label"]) - set(derived.loc[derived["median_us"].notna(), "label"]))
    derived = derived[~derived["label"].isin(resultless)]
    drawings = [render(plot) for plot in _plots(derived, baseline, seen)]
    left_out = f" Without any result here, so not drawn: {', '.join(resultless)}." if resultless else ""
    return [replace(drawing, caption=drawing.caption + left_out) for drawing in drawings]


def _plots(
    derived: pd.DataFrame, baseline: str | None, seen: pd.DataFrame | None = None
) -> list[Callable[[float], Plot]]:
    """List what can be drawn, each as a function of the width."""
    plots: list[Callable[[float], Plot]] = []
    rivals = derived[~derived["is_baseline"]]
    if baseline and rivals["speedup"].notna().any():
        plots.append(partial(_sized, speedup_per_matrix, derived, baseline))
        plots += [
            partial(_sized, speedup_per_width, derived, baseline, op, dtype)
            for (op, dtype), part in panels_of(rivals[rivals["speedup"].notna()])
            if part["width"].nunique() > 1
        ]
        if rivals.loc[rivals["speedup"].notna() & rivals["nnz"].notna(), "matrix"].nunique() > 1:
            plots.append(partial(_sized, speedup_over_size, derived, baseline))
    if not series_of(derived).empty:
        plots.append(partial(_sized, time_over_series, derived))
    plots += [partial(_sized, variant_ratios, derived, ratio) for ratio in RATIOS if drawable(derived, ratio)]
    if derived["roofline_share"].notna().any():
        plots.append(partial(_sized, roofline_share, derived))
    if not searched(derived).empty:
        plots.append(partial(_sized, search_time, derived))
    if not built(derived).empty:
        plots.append(partial(_sized, overhead_by_phase, derived))
    if not priced(derived).empty:
        plots.append(partial(_sized, cost_model, derived))
    if seen is not None and not predicted(seen).empty:
        plots.append(partial(_sized, predicted_times, seen))
    if baseline and rivals["break_even_runs"].notna().any():
        plots.append(partial(_sized, break_even, derived, baseline))
    if baseline and not held(derived).empty:
        plots.append(partial(_sized, memory_per_matrix, derived, baseline))
    return plots


def _sized(draw: Callable[..., Plot], *args: object) -> Plot:
    *facts, width_in = args
    return draw(*facts, width_in=width_in)


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
    known = derived[derived["roofline_share"].notna()]
    series, matrices = looks_of(known), by_size(known)
    data = _shares(known)
    curves = len(matrices) > MOST_GROUPS
    panels = panels_of(data)
    figure, axes = stacked(len(panels), series, "lines" if curves else "bars", () if curves else matrices, width_in)
    for ax, ((op, dtype), part) in zip(axes, panels, strict=True):
        ax.set_title(f"{op}, {dtype}", loc="left")
        ax.set_ylabel("share of floor")
        if curves:
            sorted_curves(ax, {str(k): v.to_numpy(np.float64) for k, v in part.groupby("label")["share"]}, series)
        else:
            here = [matrix for matrix in matrices if matrix in set(part["matrix"])]
            values = {
                (str(row["matrix"]), str(row["label"])): Interval(row["share"], row["least"], row["greatest"])
                for row in part.to_dict("records")
            }
            grouped_bars(ax, values, here, series, start=0.0, missing=set())
            name_groups(ax, here, (), width_in)
        ax.grid(axis="y")
        ax.set_ylim(0, max(0.1, min(1.5, ax.get_ylim()[1])))
        ax.axhline(1, color="black", linewidth=0.8)
        ax.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:.0%}"))
    if curves:
        axes[-1].set_xlabel("matrices, sorted by share")
    caption = (
        "Share of the floor that the device sets, the larger of the compulsory bytes at its copy bandwidth and the "
        "flops at its highest rate, over the measured median: geometric mean over the widths of a matrix"
        + ("." if curves else "; whiskers reach from the least to the greatest.")
    )
    return Plot("roofline", caption, figure, data)


def _shares(known: pd.DataFrame) -> pd.DataFrame:
    keys = ["op", "dtype", "matrix", "label", "implementation"]
    shares = known.groupby(keys)["roofline_share"]
    found = shares.agg(share=_mean, least="min", greatest="max", cases="size").reset_index()
    return in_panel_order(found)


def _mean(shares: pd.Series[float]) -> float:
    return geometric_mean(shares.to_numpy(np.float64)).value
