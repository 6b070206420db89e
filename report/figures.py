"""The report's figures, drawn to matplotlib `Figure` objects and to bytes that are the same for the same records.

A panel is one op and dtype, a colour one implementation. Speed-ups are ratios, so their axis is logarithmic and bars
start at 1: as tall upwards for twice as fast as downwards for half.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from math import ceil, inf, isfinite

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray

from spmark.report.means import mean_speedups
from spmark.report.panels import (
    ALL,
    broken,
    figure_with_legend,
    grouped_bars,
    line_style,
    name_groups,
    ratio_axis,
    short_names,
    sorted_curves,
    stacked,
    width_axis,
)
from spmark.report.statistics import Interval, geometric_mean
from spmark.report.style import DPI, RC, WIDTH_IN, Look, looks

MOST_GROUPS = 16
"""Matrices up to which each has its own bars; more are drawn as curves over the sorted matrices."""
LEAST_BAR = 1 / 6
"""Bars of speed-ups are cut here: a dense product on a graph would make all others look alike."""
_TITLE_LETTERS = 20
_OPS = ("spmm", "sddmm", "sddmm-scaled")


@dataclass(frozen=True)
class Drawing:
    """A finished figure."""

    name: str
    """Stem of its files."""
    caption: str
    png: bytes
    svg: bytes


def draw_all(derived: pd.DataFrame, baseline: str | None) -> list[Drawing]:
    """Draw what the records of one device hold: speed-ups per matrix and per J, and roofline shares.

    Parameters
    ----------
    derived : DataFrame
        As `spmark.report.derive.derive` gives it.
    baseline : str or None
        What the speed-ups are over, for captions and axes.
    """
    drawings = []
    resultless = sorted(set(derived["label"]) - set(derived.loc[derived["median_us"].notna(), "label"]))
    derived = derived[~derived["label"].isin(resultless)]
    with rc_context(dict(RC)):
        if baseline and derived.loc[~derived["is_baseline"], "speedup"].notna().any():
            drawings.append(_per_matrix(derived, baseline))
            drawings += _per_width(derived, baseline)
        if derived["roofline_share"].notna().any():
            drawings.append(_roofline(derived))
    left_out = f" Without any result here, so not drawn: {', '.join(resultless)}." if resultless else ""
    return [replace(drawing, caption=drawing.caption + left_out) for drawing in drawings]


def _per_matrix(derived: pd.DataFrame, baseline: str) -> Drawing:
    rivals = derived[~derived["is_baseline"]]
    series = _looks(rivals)
    means = mean_speedups(derived, ["matrix"])
    overall = mean_speedups(derived)
    matrices = _by_size(rivals)
    curves = len(matrices) > MOST_GROUPS
    panels = _panels(means)
    figure, axes = stacked(len(panels), series, curves, () if curves else [*matrices, ALL])
    for ax, ((op, dtype), part) in zip(axes, panels, strict=True):
        ax.set_title(f"{op}, {dtype}", loc="left")
        ax.set_ylabel(f"speed-up over\n{baseline}")
        if curves:
            sorted_curves(ax, _by_label(part, "speedup"), series)
        else:
            total = overall[(overall["op"] == op) & (overall["dtype"] == dtype)].assign(matrix=ALL)
            _bars(ax, pd.concat([part, total]), [*(m for m in matrices if m in set(part["matrix"])), ALL], series)
        ratio_axis(ax, LEAST_BAR)
    if curves:
        axes[-1].set_xlabel("matrices, sorted by speed-up")
        caption = (
            f"Geometric-mean speed-up over {baseline} (1.0) of each matrix, sorted for every implementation on its own."
        )
    else:
        caption = (
            f"Geometric-mean speed-up over {baseline} (1.0) per matrix; whiskers are 95 % bootstrap intervals over its "
            "widths, and over matrices for ‘all’. The number of cases stands under each name; a cross marks an "
            "implementation without a result, and a bar that would leave the panel ends in its value."
        )
    return _finished(figure, "speedup-per-matrix", caption)


def _bars(ax: Axes, means: pd.DataFrame, groups: Sequence[str], series: Mapping[str, Look]) -> None:
    shown = {(row["matrix"], row["label"]): row for row in means.to_dict("records")}
    values = {
        key: Interval(row["speedup"], row["speedup_low"], row["speedup_high"])
        for key, row in shown.items()
        if isfinite(row["speedup"])
    }
    grouped_bars(ax, values, groups, series, start=1.0, missing=shown.keys() - values.keys(), least=LEAST_BAR)
    counts = {group: [row["cases"] for (name, _), row in shown.items() if name == group] for group in groups}
    name_groups(ax, groups, [_count(counts[group]) for group in groups])


def _per_width(derived: pd.DataFrame, baseline: str) -> list[Drawing]:
    rivals = derived[~derived["is_baseline"]]
    series = _looks(rivals)
    drawings = []
    for (op, dtype), part in _panels(rivals):
        if part["width"].nunique() < 2:
            continue
        matrices = _by_size(part)
        if len(matrices) > MOST_GROUPS:
            table = mean_speedups(part, ["width"])
            cells = [(f"geometric mean over {len(matrices)} matrices", table)]
            caption = f"Geometric-mean speed-up over {baseline} (1.0) against J: {op}, {dtype}."
        else:
            cells = [
                (broken(name, _TITLE_LETTERS), part[part["matrix"] == matrix])
                for name, matrix in zip(short_names(matrices), matrices, strict=True)
            ]
            caption = f"Speed-up over {baseline} (1.0) against J: {op}, {dtype}; whiskers are 95 % intervals."
        figure = _small_multiples(cells, series, f"{op}, {dtype}: speed-up over {baseline}")
        drawings.append(_finished(figure, f"speedup-per-width-{op}-{dtype}", caption))
    return drawings


def _small_multiples(cells: Sequence[tuple[str, pd.DataFrame]], series: Mapping[str, Look], title: str) -> Figure:
    columns = min(4, len(cells))
    rows = ceil(len(cells) / columns)
    wide = WIDTH_IN if columns > 2 else WIDTH_IN * 0.5 * columns
    figure = figure_with_legend(wide, 1.75 * rows, series, markers=True, title=title)
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for ax in grid.flat[len(cells) :]:
        ax.set_visible(False)
    for index, (ax, (name, part)) in enumerate(zip(grid.flat, cells, strict=False)):
        for position, (label, look) in enumerate(series.items()):
            line = part[(part["label"] == label) & part["speedup"].notna()].sort_values("width")
            if line.empty:
                continue
            nudge = 2 ** (0.06 * (position - (len(series) - 1) / 2))
            x, y = line["width"].to_numpy(np.float64) * nudge, line["speedup"].to_numpy(np.float64)
            ax.plot(x, y, color=look.colour, marker=look.marker, zorder=3, **line_style(look))
            ax.vlines(x, line["speedup_low"], line["speedup_high"], color=look.colour, linewidth=1, zorder=2)
        ax.set_title(name, fontsize=8.5)
        if index % columns == 0:
            ax.set_ylabel("speed-up")
        if index + columns >= len(cells):
            ax.set_xlabel("J")
            ax.tick_params(labelbottom=True)
    widths = sorted({int(width) for _, part in cells for width in part["width"]})
    for ax in grid.flat[: len(cells)]:
        width_axis(ax, widths)
        ratio_axis(ax)
    return figure


def _roofline(derived: pd.DataFrame) -> Drawing:
    known = derived[derived["roofline_share"].notna()]
    series = _looks(known)
    matrices = _by_size(known)
    curves = len(matrices) > MOST_GROUPS
    panels = _panels(known)
    figure, axes = stacked(len(panels), series, curves, () if curves else matrices)
    for ax, ((op, dtype), part) in zip(axes, panels, strict=True):
        ax.set_title(f"{op}, {dtype}", loc="left")
        ax.set_ylabel("share of floor")
        shares = part.groupby(["matrix", "label"])["roofline_share"]
        if curves:
            sorted_curves(ax, _by_label(shares.apply(_mean).reset_index(), "roofline_share"), series)
        else:
            here = [matrix for matrix in matrices if matrix in set(part["matrix"])]
            values = {
                (str(matrix), str(label)): Interval(_mean(group), float(group.min()), float(group.max()))
                for (matrix, label), group in shares
            }
            grouped_bars(ax, values, here, series, start=0.0, missing=set())
            name_groups(ax, here)
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
    return _finished(figure, "roofline", caption)


def _by_label(frame: pd.DataFrame, column: str) -> dict[str, NDArray[np.float64]]:
    known = frame[frame[column].notna()]
    return {str(label): part.to_numpy(np.float64) for label, part in known.groupby("label")[column]}


def _mean(shares: pd.Series[float]) -> float:
    return geometric_mean(shares.to_numpy(np.float64)).value


def _looks(frame: pd.DataFrame) -> dict[str, Look]:
    return looks(set(zip(frame["label"], frame["implementation"], strict=True)))


def _panels(frame: pd.DataFrame) -> list[tuple[tuple[str, str], pd.DataFrame]]:
    panels = [((str(op), str(dtype)), part) for (op, dtype), part in frame.groupby(["op", "dtype"])]
    return sorted(panels, key=lambda panel: (_OPS.index(panel[0][0]), -int(panel[0][1].removeprefix("float"))))


def _by_size(derived: pd.DataFrame) -> list[str]:
    """Give the matrices from few to many non-zeros."""
    sizes = derived.groupby("matrix")["nnz"].max().fillna(inf)
    return sorted((str(matrix) for matrix in sizes.index), key=lambda matrix: (float(sizes[matrix]), matrix))


def _count(cases: Sequence[int]) -> str:
    low, high = min(cases), max(cases)
    return f"n = {high}" if low == high else f"n = {low}–{high}"


def _finished(figure: Figure, name: str, caption: str) -> Drawing:
    png, svg = BytesIO(), BytesIO()
    figure.savefig(png, format="png", dpi=DPI, metadata={"Software": None})
    figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
    return Drawing(name, caption, png.getvalue(), svg.getvalue())
