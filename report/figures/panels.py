"""The parts that the report's figures are made of: panels under a legend, bars, curves, points, and their axes."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from math import ceil, log10, radians, sin
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import ArrayLike

from spmark.report.analysis.cases import ALL, WIDE_MARK, panels_of
from spmark.report.figures.style import COLUMN_IN, DASHES, DPI, WIDTH_IN, Look

Keys = Literal["bars", "lines", "points"]
"""What a legend shows of a series."""
LETTER_IN = 0.068
"""Width of a letter of 8 points, a little more than the mean of DejaVu Sans."""
_BAR_PANEL_IN = 1.6
_NEAR = 2.5
"""Span of an axis of ratios, as a factor, up to which its ticks are evenly spaced."""
_LEAST_RATIO = 2.0**-16
MOST_SPANNED = 100
"""Upper over lower end of the widest whisker: beside that of two or three cases no bar would be seen."""
_VALUE_IN = 0.11
"""Width of a bar that has room for its value upright."""
_LEVEL_IN = 0.35
"""Width of a bar over which its value stands level."""
_WIDEST_IN = 0.42
_GROUP_SHARE = 0.84
_SHADED: Any = {"color": "#f3f3f3", "zorder": -1, "linewidth": 0}


def axes_in(width_in: float) -> float:
    """Give the inches that the axes of a figure with one column of panels span."""
    return width_in - 0.75


def panel_room_in(width_in: float) -> float:
    """Give the inches that the axes of a panel of `grid` span."""
    return axes_in(width_in) / 2 - 0.3 if width_in > COLUMN_IN else axes_in(width_in)


def wrapped(text: str, room_in: float, points: float = 8.0) -> str:
    """Break a text after separators into lines of about ``room_in`` inches; ``90 %`` and ``J = 32`` stay whole."""
    letters = max(1, int(room_in * 8 / (LETTER_IN * points)))
    lines = re.sub(rf"(.{{1,{letters}}})(?:(?<=[-_/@, ])(?<!= )(?![%=])|$)", r"\1\n", text)
    return "\n".join(line.strip() for line in lines.strip().split("\n"))


def grid(
    count: int,
    series: Mapping[str, Look],
    keys: Keys,
    width_in: float = WIDTH_IN,
    panel_in: float = 2.1,
    *,
    columns: int = 0,
    title: str = "",
    **shared: Any,
) -> tuple[Figure, list[Axes]]:
    """Make a figure of panels under a legend.

    Parameters
    ----------
    count : int
        Number of panels.
    series : mapping
        Look by label, in the order of the legend.
    keys : str
        What the legend shows of a series.
    width_in, panel_in : float
        Width of the figure and height of a row of panels in inches.
    columns : int
        Panels in a row; by default two where the figure is wide.
    title : str
        Of the legend.
    **shared
        ``sharex`` and ``sharey`` of `matplotlib.figure.Figure.subplots`.
    """
    labels, title = [wrapped(label, width_in - 0.5, 8.5) for label in series], wrapped(title, width_in, 8.5)
    longest = max((len(line) for label in labels for line in label.split("\n")), default=0)
    across = max(1, min(len(labels), int(width_in / (0.5 + LETTER_IN * longest))))
    lines = _lines(title) + sum(max(map(_lines, labels[at : at + across])) for at in range(0, len(labels), across))
    columns = min(columns or (2 if width_in > COLUMN_IN else 1), count)
    rows = ceil(count / columns)
    figure = Figure(figsize=(width_in, panel_in * rows + 0.06 + 0.17 * lines), dpi=DPI, layout="constrained")
    figure.legend(
        [_handle(look, keys) for look in series.values()], labels, loc="outside upper center", ncols=across,
        title=title or None, handlelength=1.6, columnspacing=1.4, handletextpad=0.5, borderaxespad=0.2, borderpad=0,
    )  # fmt: skip
    axes = list(figure.subplots(rows, columns, squeeze=False, **shared).flat)
    for ax in axes[count:]:
        ax.remove()
    return figure, axes[:count]


def _lines(text: str) -> int:
    return text.count("\n") + bool(text)


def _handle(look: Look, keys: Keys) -> Patch | Line2D:
    if keys == "bars":
        return Patch(facecolor=look.colour, edgecolor=look.edge, linewidth=0.3, hatch=look.hatch)
    style = line_style(look) | ({"linestyle": ""} if keys == "points" else {})
    return Line2D([], [], color=look.colour, marker=look.marker, **style)


def line_style(look: Look) -> dict[str, Any]:
    """Give the further style of a line: dark edges for pale markers, dashes for further configs."""
    return {"markeredgecolor": "black", "markeredgewidth": 0.4, "linestyle": DASHES[look.hatch]}


def by_panel(
    data: pd.DataFrame, series: Mapping[str, Look], keys: Keys, width_in: float, panel_in: float = 2.1, **options: Any
) -> tuple[Figure, list[tuple[Axes, pd.DataFrame]]]:
    """Make a figure with a titled panel for each op and dtype; give each with the rows of its drawn labels.

    The parameters behind the data are those of `grid`.
    """
    parts = panels_of(data[data["label"].isin(series)])
    figure, axes = grid(len(parts), series, keys, width_in, panel_in, **options)
    for ax, ((op, dtype), _) in zip(axes, parts, strict=True):
        ax.set_title(f"{op}, {dtype}", loc="left")
    return figure, [(ax, part) for ax, (_, part) in zip(axes, parts, strict=True)]


def short_names(matrices: Sequence[str]) -> list[str]:
    """Leave the source out of ids where the names alone differ."""
    bare = [matrix.split("/", 1)[-1] for matrix in matrices]
    return bare if len(set(bare)) == len(bare) else list(matrices)


def name_groups(ax: Axes, names: Sequence[str], notes: Sequence[str], room_in: float) -> float:
    """Write names of groups, with notes, below a panel whose groups stand ``room_in`` inches apart.

    They are turned where they do not fit.

    Returns
    -------
    float
        About the inches that they take below the panel.
    """
    names = short_names(names)
    level, below = ([wrapped(text, room_in - 0.05) for text in of] for of in (names, notes))
    most = max(map(_lines, level))
    texts = [(name + "\n" * (1 + most - _lines(name)) + note).rstrip() for name, note in zip(level, below, strict=True)]
    ax.tick_params(axis="x", length=0)
    if max(len(line) for text in texts for line in text.split("\n")) * LETTER_IN <= room_in:
        ax.set_xticks(range(len(texts)), texts)
        return 0.14 * max(map(_lines, texts))
    texts = [", ".join(filter(None, both)) for both in zip(names, notes, strict=True)]
    longest = max(map(len, texts))
    degrees, va = (40, "top") if room_in > 0.2 and longest <= 28 else (90, "center")
    ax.set_xticks(range(len(texts)), texts, rotation=degrees, ha="right", va=va, rotation_mode="anchor", fontsize=7)
    return 0.1 + longest * LETTER_IN * 7 / 8 * sin(radians(degrees))


def by_group(
    data: pd.DataFrame,
    series: Mapping[str, Look],
    columns: Sequence[str],
    groups: Sequence[str],
    width_in: float,
    *,
    axis: str,
    least: float = _LEAST_RATIO,
    title: str = "",
) -> Figure:
    """Draw ratios of each group and label as bars from 1: a panel for each op and dtype.

    Parameters
    ----------
    data : DataFrame
        With ``op, dtype, group, label`` in the order of panels; ``wide`` where bars may be marked, and ``note`` where
        a text stands below the name of a group.
    series : mapping
        Look of every label that is drawn, as `spmark.report.figures.plot.looks_of` gives it.
    columns : sequence of str
        The value, and the lower and the upper end of its whisker.
    groups : sequence of str
        In the order drawn. Those whose names begin with `ALL` have their values above their bars, and a panel of their
        own where the bars would be too narrow for values.
    width_in : float
        Width of the figure in inches.
    axis : str
        Label of the ratios' axis.
    least : float
        Where bars are cut.
    title : str
        Of the legend.
    """
    data = data if "note" in data else data.assign(note="")
    data = data.rename(columns=dict(zip(columns, ("value", "low", "high"), strict=True)))
    # A name in the legend without a bar would be looked for.
    valued = set(data.loc[data["value"].notna(), "label"])
    series = {label: look for label, look in series.items() if label in valued}
    totals = [group for group in groups if group.split(" ")[0] == ALL]
    crowded = bool(totals) and axes_in(width_in) < len(groups) * len(series) * _VALUE_IN
    rows = [[group for group in groups if group not in totals], totals] if crowded else [groups]
    cells = [
        (panel, part, [group for group in row if group in set(part["group"])])
        for panel, part in panels_of(data[data["label"].isin(series)])
        for row in rows
    ]
    cells = [cell for cell in cells if cell[2]]
    figure, axes = grid(len(cells), series, "bars", width_in, _BAR_PANEL_IN, columns=1, title=title)
    below_in = []
    for ax, ((op, dtype), part, here) in zip(axes, cells, strict=True):
        if here[0] not in totals or len(cells) == 1:
            ax.set_title(f"{op}, {dtype}", loc="left")
        room_in = axes_in(width_in) / len(here)
        bar, _ = grouped_bars(ax, part, here, series, room_in, start=1.0, least=least, valued=totals)
        notes = part.drop_duplicates("group").set_index("group")["note"]
        below_in.append(name_groups(ax, here, notes[here].tolist(), room_in))
        ax.set_ylabel(axis)
        ratio_axis(ax, least, headroom=bool(set(totals) & set(here)) * (0.12 if bar * room_in > _LEVEL_IN else 0.3))
    figure.set_figheight(figure.get_figheight() + len(cells) * max(below_in))
    return figure


def grouped_bars(
    ax: Axes,
    rows: pd.DataFrame,
    groups: Sequence[str],
    series: Mapping[str, Look],
    room_in: float,
    *,
    start: float,
    least: float = -np.inf,
    valued: Collection[str] = (),
) -> tuple[float, pd.DataFrame]:
    """Draw one bar for each group and label.

    Parameters
    ----------
    ax : Axes
        Where; group g is centred at x = g.
    rows : DataFrame
        ``group, label``; ``value, low, high``, height and whisker, a cross for NaN, which is a failure; ``wide`` where
        bars whose cases have wide intervals get `WIDE_MARK`.
    groups : sequence of str
        In the order drawn; those that begin with `ALL` are shaded.
    series : mapping
        Look by label, in the order drawn.
    room_in : float
        Inches from one group to the next.
    start : float
        Where bars begin.
    least : float
        Bars that end below are cut there, with their values written above where bars are wide enough.
    valued : collection of str
        Groups whose bars have their values written above.

    Returns
    -------
    bar : float
        Width of a bar.
    drawn : DataFrame
        The rows that are drawn, with the centre ``x`` of each bar.
    """
    drawn = rows[rows["group"].isin(groups) & rows["label"].isin(series)]
    drawn = drawn.assign(place=drawn["group"].map(list(groups).index), rank=drawn["label"].map(list(series).index))
    drawn = drawn.sort_values(["place", "rank"])
    of_group = drawn.groupby("place")["rank"]
    size = of_group.transform("size")
    bar = min(_GROUP_SHARE / size.max(), _WIDEST_IN / room_in)
    drawn["x"] = drawn["place"] + (of_group.cumcount() - (size - 1) / 2) * bar
    known = drawn[np.isfinite(drawn["value"].astype(float))]
    for label, look in series.items():
        own = known[known["label"] == label]
        ax.bar(
            own["x"], own["value"].clip(lower=least) - start, bar, start, color=look.colour, edgecolor=look.edge,
            linewidth=0.3, hatch=look.hatch, zorder=2,
        )  # fmt: skip
    lacking = drawn.loc[~drawn.index.isin(known.index), "x"]
    ax.plot(lacking, [start] * len(lacking), "x", color="black", markersize=3, markeredgewidth=0.6, zorder=3)
    whole = known[known["value"] >= least]
    whiskers(ax, whole["x"], whole["low"], whole["high"], color="black", linewidth=0.7, zorder=3)
    for row in known.to_dict("records"):
        high = row["high"] if row["high"] <= MOST_SPANNED * row["low"] else start
        top, raised = max(start, row["value"], high), 0.0
        if row["group"] in valued or (row["value"] < least and bar * room_in >= _VALUE_IN):
            raised = write_value(ax, (row["x"], top), said_ratio(row["value"]), bar * room_in)
        if row.get("wide"):
            _above(ax, (row["x"], top), WIDE_MARK, 1 + raised, fontsize=8)
    for place in range(1, len(groups)):
        ax.axvline(place - 0.5, color="#e4e4e4", linewidth=0.5, zorder=0)
    ax.set_xlim(-0.55, len(groups) - 0.45)
    totals = sum(group.split(" ")[0] == ALL for group in groups)
    if totals:
        ax.axvspan(len(groups) - totals - 0.5, len(groups) - 0.45, **_SHADED)
    return bar, drawn


def write_value(ax: Axes, place: tuple[float, float], text: str, bar_in: float) -> float:
    """Write a value above a place, upright where the bar is narrow; give the height of the text in points."""
    if bar_in < 0.8 * _VALUE_IN:
        return 0.0  # letters would run into those of the next bar
    upright = bar_in <= _LEVEL_IN
    _above(ax, place, text, 2, rotation=90 * upright, fontsize=6.5)
    return 2 + 72 * LETTER_IN * 6.5 / 8 * (len(text) if upright else 1.2)


def _above(ax: Axes, place: tuple[float, float], text: str, points: float, **style: Any) -> None:
    ax.annotate(text, place, (0, points), textcoords="offset points", ha="center", va="bottom", zorder=4, **style)


def curves(
    data: pd.DataFrame,
    column: str,
    series: Mapping[str, Look],
    width_in: float,
    *,
    axis: str,
    least: float = _LEAST_RATIO,
) -> Figure:
    """Draw every label's ratios of a column in rising order over their share; parameters are those of `by_group`."""
    figure, cells = by_panel(data, series, "lines", width_in, columns=1)
    for ax, part in cells:
        for label, look in series.items():
            rising = np.sort(part.loc[part["label"] == label, column].dropna().to_numpy(np.float64))
            place, every = (np.arange(rising.size) + 0.5) / max(rising.size, 1), max(1, rising.size // 10)
            ax.plot(place, rising, color=look.colour, marker=look.marker, markevery=every, **line_style(look))
        ax.xaxis.set_major_formatter(ticker.PercentFormatter(1))
        ax.set(xlim=(0, 1), ylabel=axis, xlabel="matrices, each implementation sorted on its own")
        ratio_axis(ax, least)
    return figure


def scattered(ax: Axes, part: pd.DataFrame, x: str, y: str, series: Mapping[str, Look], **style: Any) -> None:
    """Draw a point for each row, with both axes logarithmic."""
    ax.set(xscale="log", yscale="log")
    for label, look in series.items():
        points = part[part["label"] == label]
        drawn: dict[str, Any] = {"markeredgecolor": "black", "markeredgewidth": 0.4} | style
        ax.plot(points[x], points[y], look.marker, color=look.colour, zorder=3, **drawn)


def lines(ax: Axes, part: pd.DataFrame, x: str, y: str, series: Mapping[str, Look], *, nudge: float = 0) -> None:
    """Draw a line with whiskers (``y``, ``y_low``, ``y_high``) for each label, each ``nudge`` octaves to the right."""
    for position, (label, look) in enumerate(series.items()):
        line = part[part["label"] == label].sort_values(x)
        at = line[x] * 2 ** (nudge * (position - (len(series) - 1) / 2))
        ax.plot(at, line[y], color=look.colour, marker=look.marker, zorder=3, **line_style(look))
        whiskers(ax, at, line[f"{y}_low"], line[f"{y}_high"], color=look.colour, linewidth=1, zorder=2)


def whiskers(ax: Axes, x: ArrayLike, low: ArrayLike, high: ArrayLike, **style: Any) -> None:
    """Draw intervals as upright lines: none where an end is NaN, or where they span more than `MOST_SPANNED`.

    They are one line with gaps, which takes a third of the time of a collection.
    """
    at, bottom, top = np.array([x, low, high], np.float64)
    heights = np.where(top <= MOST_SPANNED * bottom, [bottom, top, np.full_like(at, np.nan)], np.nan)
    ax.plot(np.repeat(at, 3), heights.T.ravel(), solid_capstyle="butt", **style)


def value_ticks(axis: Axis, values: Sequence[float], room_in: float, *, log: bool) -> None:
    """Label an axis, ``room_in`` inches long, at those of the rising ``values`` that have room, the last one first."""
    places = np.log(values) if log else np.asarray(values, np.float64)
    inches = (places - places[0]) * room_in / (float(np.ptp(places)) or 1.0)
    kept: list[int] = []
    for at in reversed(range(len(values))):
        if not kept or inches[kept[-1]] - inches[at] >= LETTER_IN * (len(f"{values[kept[-1]]:g}") + 1.5):
            kept.append(at)
    _ticks(axis, ticker.FixedLocator([float(values[at]) for at in kept]), lambda value: f"{value:g}")


def ratio_axis(ax: Axes, least: float = _LEAST_RATIO, headroom: float = 0.0) -> None:
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
    low, high = max(min(low, 0.9), least), max(high, 1.1)
    near = high / low <= _NEAR
    if not near:
        # A tick on either side of 1 says which way is faster.
        low, high = min(low, 0.49), max(high, 2.1)
    high *= (high / low) ** (headroom / (1 - headroom))
    ax.set_ylim(low, high)
    _ticks(ax.yaxis, _log_locator(low, high, 8), lambda ratio: f"{said(ratio)}×")
    ax.grid(axis="y")


def log_ticks(axis: Axis, most: int = 6, say: Callable[[float], str] | None = None) -> None:
    """Label a logarithmic axis, whose limits are known, at about ``most`` round places: 0.1, 1, 10, 10k."""
    low, high = axis.get_view_interval()
    _ticks(axis, _log_locator(low, high, most), say or said)


def _log_locator(low: float, high: float, most: int) -> ticker.Locator:
    """Give even steps, or 1, 2 and 5 times powers of ten, or powers of ten alone where these are many."""
    decades = log10(high / low)
    if decades < 0.7:
        return ticker.MaxNLocator(most - 2, steps=[1, 2, 5, 10])
    return ticker.LogLocator(subs=(1, 2, 5) if 3 * decades < most else (1,), numticks=most)


def _ticks(axis: Axis, locator: ticker.Locator, say: Callable[[float], str]) -> None:
    axis.set_major_locator(locator)
    axis.set_minor_locator(ticker.NullLocator())
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: say(value)))


def said(value: float) -> str:
    """Give a number with k, M or G for thousands, millions and billions, of which three digits are told."""
    for power, letter in ((9, "G"), (6, "M"), (3, "k")):
        if value >= 10**power:
            return f"{value / 10**power:.3g}{letter}"
    return f"{value:g}"


def said_ratio(ratio: float) -> str:
    """Write a ratio with two digits behind the point, or three digits in all where it is far from 1."""
    return f"{ratio:.2f}×" if 0.1 <= ratio < 10 else f"{ratio:.3g}×"
