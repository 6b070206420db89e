"""The parts that the report's figures are made of: legends, grouped bars, sorted curves, axes of ratios and of J."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from math import ceil, floor, inf, isfinite, log10
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from numpy.typing import ArrayLike

from spmark.report.derive.cases import WIDE_MARK
from spmark.report.derive.groups import ALL, panels_of
from spmark.report.figures.plot import looks_of
from spmark.report.figures.style import COLUMN_IN, DASHES, DPI, WIDTH_IN, Look

Keys = Literal["bars", "lines", "points"]
"""What a legend shows of a series."""
_PANEL_IN = 2.1
_LEGEND_ROW_IN = 0.17
_LETTER_IN = 0.074
_TURNED_LETTER_IN = 0.03
_WIDEST_BAR = 0.2


def stacked(
    count: int,
    series: Mapping[str, Look],
    keys: Keys,
    groups: Sequence[str] = (),
    width_in: float = WIDTH_IN,
    *,
    title: str = "",
) -> tuple[Figure, list[Axes]]:
    """Make a figure of ``count`` panels above each other, with room for groups' names and a title of the legend."""
    panel_in = _PANEL_IN
    if groups and _must_turn(groups, width_in):
        panel_in += _TURNED_LETTER_IN * max(map(len, short_names(groups)))
    figure = figure_with_legend(width_in, panel_in * count, series, keys, title)
    return figure, list(figure.subplots(count, 1, squeeze=False).flat)


def grid(
    count: int, series: Mapping[str, Look], keys: Keys, width_in: float, panel_in: float
) -> tuple[Figure, list[Axes]]:
    """Make a figure of ``count`` panels, ``panel_in`` inches high, two in a row where the figure is wide."""
    columns = min(2 if width_in > COLUMN_IN else 1, count)
    rows = ceil(count / columns)
    figure = figure_with_legend(width_in, panel_in * rows, series, keys)
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for ax in axes[count:]:
        ax.set_visible(False)
    return figure, axes[:count]


def figure_with_legend(
    width_in: float, body_in: float, series: Mapping[str, Look], keys: Keys, title: str = ""
) -> Figure:
    """Make an empty figure with ``body_in`` inches of height for panels under a legend of ``series``."""
    longest = max(len(label) for label in series)
    columns = max(1, min(len(series), int(width_in / (0.45 + 0.078 * longest))))
    rows = ceil(len(series) / columns)
    legend_in = _LEGEND_ROW_IN * (rows + bool(title)) + 0.06
    height_in = body_in + legend_in
    layout = ConstrainedLayoutEngine(rect=(0, 0, 1, body_in / height_in), hspace=0.04)
    figure = Figure(figsize=(width_in, height_in), dpi=DPI, layout=layout)
    handle = _HANDLES[keys]
    figure.legend(
        [handle(look) for look in series.values()], list(series), loc="upper center", ncols=columns,
        title=title or None, handlelength=1.6, columnspacing=1.4, handletextpad=0.5, borderaxespad=0.2, borderpad=0,
    )  # fmt: skip
    return figure


def _bar_handle(look: Look) -> Patch:
    return Patch(facecolor=look.colour, edgecolor="black", linewidth=0.3, hatch=look.hatch)


def _line_handle(look: Look) -> Line2D:
    return Line2D([], [], color=look.colour, marker=look.marker, **line_style(look))


def _point_handle(look: Look) -> Line2D:
    return Line2D([], [], color=look.colour, marker=look.marker, **(line_style(look) | {"linestyle": ""}))


_HANDLES: Mapping[Keys, Callable[[Look], Patch | Line2D]] = {
    "bars": _bar_handle,
    "lines": _line_handle,
    "points": _point_handle,
}


def line_style(look: Look) -> dict[str, Any]:
    """Give the further style of a line or a cross: dark edges for pale markers, dashes for further configs."""
    return {"markeredgecolor": "black", "markeredgewidth": 0.4, "linestyle": DASHES[look.hatch]}


def titled(axes: Sequence[Axes], data: pd.DataFrame) -> Iterator[tuple[Axes, pd.DataFrame]]:
    """Write op and dtype above each panel; give its axes and its part of the data."""
    for ax, ((op, dtype), part) in zip(axes, panels_of(data), strict=True):
        ax.set_title(f"{op}, {dtype}", loc="left")
        yield ax, part


def by_group(
    data: pd.DataFrame,
    columns: Sequence[str],
    groups: Sequence[str],
    width_in: float,
    *,
    curves: bool = False,
    start: float = 1.0,
) -> tuple[Figure, list[tuple[Axes, pd.DataFrame]]]:
    """Draw a value of each group and label: a panel of bars for each op and dtype, or sorted curves.

    Parameters
    ----------
    data : DataFrame
        With ``op, dtype, group, label, implementation``, in the order of panels.
    columns : sequence of str
        The value, and the lower and the upper end of its whisker.
    groups : sequence of str
        In the order drawn.
    width_in : float
        Width of the figure in inches.
    curves : bool
        Draw every label's values in rising order, where groups are too many for bars.
    start : float
        Where bars begin.

    Returns
    -------
    figure : Figure
    panels : list of (Axes, DataFrame)
        Each panel with its part of the data.
    """
    series = looks_of(data)
    keys: Keys = "lines" if curves else "bars"
    figure, axes = stacked(len(panels_of(data)), series, keys, () if curves else groups, width_in)
    panels = list(titled(axes, data))
    for ax, part in panels:
        if curves:
            sorted_curves(ax, part, columns[0], series)
        else:
            here = [group for group in groups if group in set(part["group"])]
            drawn = part.rename(columns=dict(zip(columns, ("value", "low", "high"), strict=True))).assign(wide=False)
            grouped_bars(ax, drawn, here, series, start=start)
            name_groups(ax, here, (), width_in)
    return figure, panels


def grouped_bars(
    ax: Axes,
    rows: pd.DataFrame,
    groups: Sequence[str],
    series: Mapping[str, Look],
    *,
    start: float,
    least: float = -inf,
) -> None:
    """Draw one bar per group and label.

    Parameters
    ----------
    ax : Axes
        Where; group g is centred at x = g.
    rows : DataFrame
        ``group, label``; ``value, low, high``, height and whisker, a cross for NaN, which is a failure; ``wide``,
        whether the bar gets `WIDE_MARK`, since its cases have wide intervals.
    groups : sequence of str
        In the order drawn.
    series : mapping
        Look by label, in the order drawn.
    start : float
        Where bars begin.
    least : float
        Bars that end below are cut there, with their value written beside.
    """
    bar, offsets = bar_places(series)
    shown: dict[Any, Any] = {(row.group, row.label): row for row in rows.itertuples()}
    for label, look in series.items():
        for place, group in enumerate(groups):
            x, row = place + offsets[label], shown.get((group, label))
            if row is None:
                continue
            if not isfinite(row.value):
                ax.plot([x], [start], "X", color=look.colour, markersize=5, zorder=4, **line_style(look))
                continue
            ax.bar(
                x, max(row.value, least) - start, bar, start, color=look.colour, edgecolor="black",
                linewidth=0.3, hatch=look.hatch, zorder=2,
            )  # fmt: skip
            if row.value < least:
                text = f"{row.value:.2g}×"
                ax.text(x, least * 1.06, text, rotation=90, ha="center", va="bottom", fontsize=5.5, zorder=4)
            elif isfinite(row.low):
                ax.plot([x, x], [row.low, row.high], color="black", linewidth=0.7, zorder=3)
            if row.wide:
                top = max(start, row.value, row.high if isfinite(row.high) else start)
                above: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "va": "bottom", "fontsize": 8}
                ax.annotate(WIDE_MARK, (x, top), (0, 1), zorder=4, **above)
    ax.set_xlim(-0.55, len(groups) - 0.45)
    for place in range(1, len(groups)):
        ax.axvline(place - 0.5, color="#e4e4e4", linewidth=0.5, zorder=0)
    means = sum(group.split(" ")[0] == ALL for group in groups)
    if means:
        ax.axvspan(len(groups) - means - 0.5, len(groups) - 0.45, color="#f3f3f3", zorder=-1, linewidth=0)


def bar_places(series: Collection[str]) -> tuple[float, dict[str, float]]:
    """Give the width of a bar of `grouped_bars`, and where each label's bar is centred, from its group's centre."""
    bar = min(0.84 / len(series), _WIDEST_BAR)
    return bar, {label: (position - (len(series) - 1) / 2) * bar for position, label in enumerate(series)}


def sorted_curves(ax: Axes, rows: pd.DataFrame, column: str, series: Mapping[str, Look]) -> None:
    """Draw every label's values in rising order over their share; each label is sorted on its own."""
    for label, look in series.items():
        rising = np.sort(rows.loc[rows["label"] == label, column].dropna().to_numpy(np.float64))
        if rising.size:
            place, every = (np.arange(rising.size) + 0.5) / rising.size, max(1, rising.size // 10)
            ax.plot(place, rising, color=look.colour, marker=look.marker, markevery=every, **line_style(look))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:.0%}"))
    ax.set_xlim(0, 1)


def scattered(ax: Axes, part: pd.DataFrame, x: str, y: str, series: Mapping[str, Look], **style: Any) -> None:
    """Draw a point for each row, with both axes logarithmic."""
    ax.set_xscale("log")
    ax.set_yscale("log")
    for label, look in series.items():
        points = part[part["label"] == label]
        drawn: dict[str, Any] = {"markeredgecolor": "black", "markeredgewidth": 0.4} | style
        ax.plot(points[x], points[y], look.marker, color=look.colour, zorder=3, **drawn)


def width_axis(ax: Axes, widths: Sequence[int]) -> None:
    """Make x a logarithmic axis of J with ticks at the widths there are, every other where they are many."""
    ax.set_xscale("log", base=2)
    step = ceil(len(widths) / 6)
    ax.xaxis.set_major_locator(FixedLocator([float(width) for width in widths[::step]]))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda width, _: f"{width:g}"))
    ax.set_xlim(widths[0] / 1.4, widths[-1] * 1.4)


def ratio_axis(ax: Axes, least: float = 1 / (1 << 16)) -> None:
    """Make y a logarithmic axis of ratios, from ``least`` at the lowest, with a line at 1 and round ticks."""
    ax.set_yscale("log", base=2)
    ax.axhline(1, color="black", linewidth=0.8)
    low, high = ax.get_ylim()
    low, high = max(min(low, 0.9), least), min(max(high, 1.1), 1 << 16)
    span = np.log2(high / low)
    ax.set_ylim(low, high)
    ax.yaxis.set_major_locator(FixedLocator(_ratio_ticks(float(span))))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda ratio, _: _ratio(ratio)))
    ax.grid(axis="y")


def _ratio(ratio: float) -> str:
    whole = 1 / ratio
    return f"1/{whole:g}×" if whole >= 8 and whole == round(whole) else f"{ratio:g}×"


def log_ticks(axis: Axis, values: ArrayLike, most: int = 6) -> None:
    """Label a logarithmic axis at no more than ``most`` powers of ten around ``values``: 0.1, 1, 10, 10k.

    Where less than two of these are within ``values``, 2 and 5 times powers of ten are labelled as well.
    """
    known = np.asarray(values, np.float64)
    known = known[(known > 0) & np.isfinite(known)]
    low, high = (ceil(log10(known.min()) - 0.1), floor(log10(known.max()) + 0.1)) if known.size else (0, 0)
    low, high = min(low, high), max(low, high)
    places = [10.0**power for power in range(low, high + 1, ceil((high - low + 1) / most))]
    if known.size and sum(known.min() <= place <= known.max() for place in places) < 2:
        finer = [step * 10.0**power for power in range(low - 1, high + 1) for step in (1, 2, 5)]
        inside = [place for place in finer if known.min() <= place <= known.max()]
        places = inside[:: ceil(len(inside) / most)] if inside else places
    axis.set_major_locator(FixedLocator(places))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: said(value)))


def said(value: float) -> str:
    """Give a number with k, M or G for thousands, millions and billions."""
    for power, letter in ((9, "G"), (6, "M"), (3, "k")):
        if value >= 10**power:
            return f"{value / 10**power:g}{letter}"
    return f"{value:g}"


def _ratio_ticks(span: float) -> list[float]:
    """Give round ratios around 1, finer where the axis spans few powers of two."""
    if span <= 1.5:
        return [0.25, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 1.75, 2, 4]
    if span <= 3.5:
        return [0.1, 0.2, 0.35, 0.5, 0.7, 1, 1.4, 2, 2.8, 4, 5.6, 8]
    step = ceil(span / 7)
    return [2.0**power for power in range(-8, 17) if power % step == 0]


def name_groups(ax: Axes, matrices: Sequence[str], below: Sequence[str] = (), width_in: float = WIDTH_IN) -> None:
    """Write the matrices' names under their groups, broken or turned where they would meet."""
    names = short_names(matrices)
    if _must_turn(matrices, width_in):
        if below:
            names = [f"{name}, {text}" for name, text in zip(names, below, strict=True)]
        ax.set_xticks(range(len(names)), names, rotation=28, ha="right", rotation_mode="anchor", fontsize=7)
    else:
        names = [broken(name, _room(len(names), width_in)) for name in names]
        if below:
            lines = max(name.count("\n") for name in names) + 1
            gaps = ["\n" * (lines - name.count("\n")) for name in names]
            names = ["".join(parts) for parts in zip(names, gaps, below, strict=True)]
        ax.set_xticks(range(len(names)), names)
    ax.tick_params(axis="x", length=0)


def short_names(matrices: Sequence[str]) -> list[str]:
    """Leave the source out of ids where the names alone differ."""
    bare = [matrix.split("/", 1)[-1] for matrix in matrices]
    return bare if len(set(bare)) == len(bare) else list(matrices)


def _room(count: int, width_in: float) -> int:
    """Give the letters that fit on a line under one of ``count`` groups."""
    return int((width_in - 0.7) / count / _LETTER_IN)


def _must_turn(matrices: Sequence[str], width_in: float) -> bool:
    room = _room(len(matrices), width_in)
    return any(len(line) > room for name in short_names(matrices) for line in broken(name, room).split("\n"))


def broken(name: str, room: int) -> str:
    """Break a name after its separators into lines of at most ``room`` letters, as far as separators allow."""
    lines = [""]
    for part in re.findall(r"[^-_/@ .]*[-_/@ .]?", name):
        if lines[-1] and len(lines[-1] + part) > room:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)
