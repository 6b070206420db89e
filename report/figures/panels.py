"""The parts that the report's figures are made of: panels under a legend, sorted curves, axes of ratios and of J."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import ceil, floor, log10, nan
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from numpy.typing import ArrayLike, NDArray

from spmark.report.analysis.groups import panels_of
from spmark.report.figures.layout import OnePass
from spmark.report.figures.names import broken, text_in
from spmark.report.figures.style import COLUMN_IN, DASHES, DPI, WIDTH_IN, Look

Keys = Literal["bars", "lines", "points"]
"""What a legend shows of a series."""
_PANEL_IN = 2.1
_LEGEND_ROW_IN = 0.17
_LEGEND_POINTS = 8.5
_KEY_IN = 0.45
"""What a series takes of a legend's width beside its label."""
_TICK_POINTS = 8.0
_NEAR = 2.5
"""Span of an axis of ratios, as a factor, up to which its ticks are evenly spaced."""
_MOST_TICKS = 8
MOST_SPANNED = 100
"""Upper over lower end of the widest whisker."""


def axes_in(width_in: float) -> float:
    """Give the inches that axes span in a figure of one column of panels."""
    return width_in - 0.75


def panel_room_in(width_in: float) -> float:
    """Give the inches that the axes of a panel of `grid` span."""
    return axes_in(width_in) / 2 - 0.4 if width_in > COLUMN_IN else axes_in(width_in)


def stacked(
    count: int, series: Mapping[str, Look], keys: Keys, width_in: float = WIDTH_IN, *, title: str = ""
) -> tuple[Figure, list[Axes]]:
    """Make a figure of ``count`` panels above each other, with a title of the legend."""
    return column([_PANEL_IN] * count, series, keys, width_in, title=title)


def column(
    heights_in: Sequence[float], series: Mapping[str, Look], keys: Keys, width_in: float, *, title: str = ""
) -> tuple[Figure, list[Axes]]:
    """Make a figure of panels above each other, each with a height in inches, and a title of the legend."""
    figure = figure_with_legend(width_in, sum(heights_in), series, keys, title)
    panels = figure.subplots(len(heights_in), 1, squeeze=False, height_ratios=heights_in)
    return figure, list(panels.flat)


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
    labels = [broken(label, width_in - _KEY_IN, _LEGEND_POINTS) for label in series]
    title = broken(title, width_in - 0.2, _LEGEND_POINTS)
    longest_in = max((text_in(label, _LEGEND_POINTS) for label in labels), default=0.0)
    columns = max(1, min(len(labels), int(width_in / (_KEY_IN + longest_in))))
    lines = ceil(len(labels) / columns) * max((label.count("\n") + 1 for label in labels), default=0)
    legend_in = _LEGEND_ROW_IN * (lines + (title.count("\n") + 1) * bool(title)) + 0.06
    height_in = body_in + legend_in
    figure = Figure(figsize=(width_in, height_in), dpi=DPI, layout=OnePass(body_in / height_in))
    handle = _HANDLES[keys]
    figure.legend(
        [handle(look) for look in series.values()], labels, loc="upper center", ncols=columns,
        title=title or None, handlelength=1.6, columnspacing=1.4, handletextpad=0.5, borderaxespad=0.2, borderpad=0,
    )  # fmt: skip
    return figure


def _bar_handle(look: Look) -> Patch:
    return Patch(facecolor=look.colour, edgecolor=look.edge, linewidth=0.3, hatch=look.hatch)


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
    """Give the further style of a line: dark edges for pale markers, dashes for further configs."""
    return {"markeredgecolor": "black", "markeredgewidth": 0.4, "linestyle": DASHES[look.hatch]}


def titled(axes: Sequence[Axes], data: pd.DataFrame) -> Iterator[tuple[Axes, pd.DataFrame]]:
    """Write op and dtype above each panel; give its axes and its part of the data."""
    for ax, ((op, dtype), part) in zip(axes, panels_of(data), strict=True):
        ax.set_title(f"{op}, {dtype}", loc="left")
        yield ax, part


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


def whiskers(ax: Axes, x: ArrayLike, low: ArrayLike, high: ArrayLike, **style: Any) -> None:
    """Draw intervals as upright lines, none where an end is NaN: one line with gaps, since collections take longer."""
    places, *ends = (np.asarray(of, np.float64) for of in (x, low, high))
    heights = np.stack([*ends, np.full_like(places, nan)], axis=1)
    ax.plot(np.repeat(places, 3), heights.ravel(), solid_capstyle="butt", **style)


def shown_ends(low: ArrayLike, high: ArrayLike) -> list[NDArray[np.float64]]:
    """Give the ends of intervals that `whiskers` shall draw: NaN where they span more than `MOST_SPANNED`.

    Intervals of two or three cases may span so much that no bar would be seen beside them.
    """
    ends = [np.asarray(of, np.float64) for of in (low, high)]
    return [np.where(ends[1] > MOST_SPANNED * ends[0], nan, end) for end in ends]


def width_axis(ax: Axes, widths: Sequence[int], room_in: float) -> None:
    """Make x a logarithmic axis of J, ``room_in`` inches long, with ticks at the widths that have room."""
    ax.set_xscale("log", base=2)
    value_ticks(ax.xaxis, widths, room_in, log=True)
    ax.set_xlim(widths[0] / 1.4, widths[-1] * 1.4)


def value_ticks(axis: Axis, values: Sequence[float], room_in: float, *, log: bool) -> None:
    """Label an axis, ``room_in`` inches long, at those of the rising ``values`` whose labels do not touch.

    The least and the greatest come first, then the others from the left.
    """
    places = np.log(values) if log else np.asarray(values, np.float64)
    inches = (places - places[0]) * room_in / (float(np.ptp(places)) or 1.0)
    halves = [text_in(f"{value:g}", _TICK_POINTS) / 2 + 0.03 for value in values]
    kept, last = [0], len(values) - 1
    for at in range(1, len(values)):
        ends = {kept[-1], last} - {at}
        if all(abs(inches[at] - inches[end]) >= halves[at] + halves[end] for end in ends):
            kept.append(at)
    axis.set_major_locator(FixedLocator([float(values[at]) for at in kept]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def ratio_axis(ax: Axes, least: float = 1 / (1 << 16), headroom: float = 0.0) -> None:
    """Make y a logarithmic axis of ratios with a line at 1 and round ticks.

    Parameters
    ----------
    ax : Axes
    least : float
        The lowest that the axis shows.
    headroom : float
        What is left free above the values, as a share of the axis.
    """
    ax.set_yscale("log")
    ax.axhline(1, color="black", linewidth=0.8)
    low, high = ax.get_ylim()
    low, high = max(min(low, 0.9), least), min(max(high, 1.1), 1 << 16)
    near = high / low <= _NEAR
    if not near:
        # A tick on either side of 1 says which way is faster.
        low, high = (0.49 if 0.49 < low else low), max(high, 2.1)
    high *= (high / low) ** (headroom / (1 - headroom))
    ax.set_ylim(low, high)
    ax.yaxis.set_major_locator(FixedLocator(_even_ticks(low, high) if near else _log_ticks(low, high)))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda ratio, _: f"{said(ratio)}×"))
    ax.grid(axis="y")


def _even_ticks(low: float, high: float) -> list[float]:
    """Give round ratios at even steps with 1 among them."""
    step = next((step for step in (0.05, 0.1, 0.2) if (high - low) / step < _MOST_TICKS - 1), 0.5)
    return [round(place * step, 2) for place in range(ceil(low / step), floor(high / step) + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    """Give 1, 2 and 5 times powers of ten, or powers of ten alone where these are many."""
    decades = range(floor(log10(low)), ceil(log10(high)) + 1)
    ticks = [step * 10.0**power for power in decades for step in (1, 2, 5)]
    inside = [tick for tick in ticks if low <= tick <= high]
    if len(inside) <= _MOST_TICKS:
        return inside
    every = ceil(len(decades) / _MOST_TICKS)
    return [10.0**power for power in decades if power % every == 0]


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
    """Give a number with k, M or G for thousands, millions and billions, of which three digits are told."""
    for power, letter in ((9, "G"), (6, "M"), (3, "k")):
        if value >= 10**power:
            return f"{value / 10**power:.3g}{letter}"
    return f"{value:g}"
