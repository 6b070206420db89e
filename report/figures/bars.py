"""Bars of ratios by group and label, with the values written on bars of means over many matrices."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import inf, isfinite
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from numpy.typing import NDArray

from spmark.report.analysis.cases import WIDE_MARK
from spmark.report.analysis.groups import ALL, panels_of
from spmark.report.figures.findings import counted
from spmark.report.figures.names import name_groups, names_in, text_in
from spmark.report.figures.panels import axes_in, column, ratio_axis, shown_ends, whiskers
from spmark.report.figures.style import Look

_VALUE_POINTS = 6.5
_VALUE_IN = 0.11
"""Width of a bar that has room for its value upright."""
_LEVEL_IN = 0.35
"""Width of a bar over which most values stand level."""
_BODY_IN = 1.6
_WIDEST_IN = 0.42
_GROUP_SHARE = 0.84
_MOST_NAMED = 3
"""Groups without a bar that a caption names; of more it says how many."""
Places = dict[tuple[str, str], float]
"""Centre of each bar by group and label."""
Panels = Sequence[tuple[str, pd.DataFrame]]
"""Panels with their titles."""
Below = Callable[[pd.DataFrame, Sequence[str]], list[str]]
"""What stands below the names of groups, out of a panel's part of the data."""


def by_group(
    data: pd.DataFrame,
    series: Mapping[str, Look],
    columns: Sequence[str],
    groups: Sequence[str],
    width_in: float,
    *,
    axis: str,
    least: float = 1 / (1 << 16),
    below: Below | None = None,
    title: str = "",
) -> Figure:
    """Draw ratios of each group and label as bars from 1: a panel for each op and dtype.

    Parameters
    ----------
    data : DataFrame
        With ``op, dtype, group, label, implementation``, in the order of panels, and ``wide`` where bars may be marked.
    series : mapping
        Look of every label that is drawn, as `spmark.report.figures.plot.looks_of` gives it.
    columns : sequence of str
        The value, and the lower and the upper end of its whisker.
    groups : sequence of str
        In the order drawn. Totals, whose names begin with `ALL`, have rows of their own where the bars would be too
        narrow for values.
    width_in : float
        Width of the figure in inches.
    axis : str
        Label of the ratios' axis.
    least : float
        Where bars are cut.
    below : callable, optional
        Gives the texts below groups' names.
    title : str
        Of the legend.
    """
    drawn = data[data["label"].isin(series)]
    drawn = drawn.rename(columns=dict(zip(columns, ("value", "low", "high"), strict=True)))
    drawn = drawn if "wide" in drawn else drawn.assign(wide=False)
    # A name in the legend without a bar would be looked for.
    valued = set(drawn.loc[drawn["value"].notna(), "label"])
    series = {label: look for label, look in series.items() if label in valued}
    cells = [
        (name * (place == 0), part, here)
        for name, part in titled_panels(drawn)
        for place, here in enumerate(_rows([g for g in groups if g in set(part["group"])], len(series), width_in))
    ]
    texts = [below(part, here) if below else [] for _, part, here in cells]
    rooms = [axes_in(width_in) / len(here) for _, _, here in cells]
    heights = [
        _BODY_IN + names_in(here, text, room) for (_, _, here), text, room in zip(cells, texts, rooms, strict=True)
    ]
    figure, axes = column(heights, series, "bars", width_in, title=title)
    for ax, (name, part, here), text, room in zip(axes, cells, texts, rooms, strict=True):
        ax.set_title(name, loc="left")
        totals = [group for group in here if _is_total(group)]
        bar, _ = grouped_bars(ax, part, here, series, room, start=1.0, least=least, valued=totals)
        name_groups(ax, here, text, room)
        ax.set_ylabel(axis)
        ratio_axis(ax, least, headroom=bool(totals) * (0.12 if bar * room > _LEVEL_IN else 0.3))
    return figure


def _rows(groups: Sequence[str], labels: int, width_in: float) -> list[list[str]]:
    """Deal groups to rows, totals last: all to one where the bars of totals have room for their values."""
    each = max(1, int(axes_in(width_in) / (labels * _VALUE_IN / _GROUP_SHARE)))
    single, totals = ([group for group in groups if _is_total(group) is total] for total in (False, True))
    if len(groups) <= each or not totals:
        return [[*single, *totals]]
    return [row for row in (single, *(totals[at : at + each] for at in range(0, len(totals), each))) if row]


def _is_total(group: str) -> bool:
    return group.split(" ", maxsplit=1)[0] == ALL


def titled_panels(data: pd.DataFrame) -> Panels:
    """Split a frame by op and dtype, each part with the title of its panel."""
    return [(f"{op}, {dtype}", part) for (op, dtype), part in panels_of(data)]


def grouped_bars(
    ax: Axes,
    rows: pd.DataFrame,
    groups: Sequence[str],
    series: Mapping[str, Look],
    room_in: float,
    *,
    start: float,
    least: float = -inf,
    valued: Collection[str] = (),
) -> tuple[float, Places]:
    """Draw one bar for each group and label that has a value.

    Parameters
    ----------
    ax : Axes
        Where; group g is centred at x = g.
    rows : DataFrame
        ``group, label``; ``value, low, high``, height and whisker, no bar for NaN, which is a failure; ``wide``,
        whether the bar gets `WIDE_MARK`, since its cases have wide intervals.
    groups : sequence of str
        In the order drawn.
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
    places : Places
    """
    low, high = shown_ends(rows["low"], rows["high"])
    known = rows.assign(low=low, high=high)[np.isfinite(rows["value"].astype(float))]
    shown: dict[Any, Any] = {(row.group, row.label): row for row in known.itertuples()}
    present = {group: [label for label in series if (group, label) in shown] for group in groups}
    bar = min(_GROUP_SHARE / max(1, *map(len, present.values())), _WIDEST_IN / room_in)
    places: Places = {}
    ends: dict[str, list[tuple[float, float]]] = {}
    intervals: list[tuple[float, float, float]] = []
    for place, (group, labels) in enumerate(present.items()):
        for position, label in enumerate(labels):
            row, x = shown[group, label], place + (position - (len(labels) - 1) / 2) * bar
            places[group, label], cut = x, row.value < least
            ends.setdefault(label, []).append((x, max(row.value, least)))
            if isfinite(row.low) and not cut:
                intervals.append((x, row.low, row.high))
            top = max(start, row.value, row.high if isfinite(row.high) else start)
            told = group in valued or (cut and bar * room_in >= _VALUE_IN)
            raised = write_value(ax, (x, top), said_ratio(row.value), bar * room_in) if told else 0.0
            if row.wide:
                above: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "va": "bottom", "fontsize": 8}
                ax.annotate(WIDE_MARK, (x, top), (0, 1 + raised), zorder=4, **above)
    for label, tops in ends.items():
        _bars(ax, np.array(tops), bar, start, series[label])
    whiskers(ax, *np.reshape(intervals, (-1, 3)).T, color="black", linewidth=0.7, zorder=3)
    ax.set_xlim(-0.55, len(groups) - 0.45)
    between = np.arange(1, len(groups)) - 0.5
    foot, head = np.zeros_like(between), np.ones_like(between)
    whiskers(ax, between, foot, head, transform=ax.get_xaxis_transform(), color="#e4e4e4", linewidth=0.5, zorder=0)
    totals = sum(map(_is_total, groups))
    if totals:
        ax.axvspan(len(groups) - totals - 0.5, len(groups) - 0.45, color="#f3f3f3", zorder=-1, linewidth=0)
    return bar, places


def _bars(ax: Axes, tops: NDArray[np.float64], bar: float, start: float, look: Look) -> None:
    """Draw bars of one look from ``start`` to their tops, (n, 2) of x and y, in a fifth of the time of single bars."""
    (x, y), low = tops.T, np.full(len(tops), start)
    left, right = x - bar / 2, x + bar / 2
    corners = np.stack([[left, left, right, right], [low, y, y, low]]).transpose(2, 1, 0)
    drawn = PolyCollection(
        list(corners), facecolor=look.colour, edgecolor=look.edge, linewidth=0.3, hatch=look.hatch or None, zorder=2
    )
    drawn.sticky_edges.y.append(start)  # the axis leaves no room beyond where bars begin
    ax.add_collection(drawn)
    ax.autoscale_view()


def write_value(ax: Axes, place: tuple[float, float], text: str, bar_in: float) -> float:
    """Write a value above a place of a bar, upright where the bar is narrow; give the height of the text in points."""
    long_in = text_in(text, _VALUE_POINTS)
    upright = long_in > bar_in - 0.02
    ax.annotate(
        text, place, (0, 2), textcoords="offset points", ha="center", va="bottom", zorder=4,
        fontsize=_VALUE_POINTS, rotation=90 if upright else 0,
    )  # fmt: skip
    return 72 * long_in + 2 if upright else _VALUE_POINTS + 1


def said_ratio(ratio: float) -> str:
    """Write a ratio with two digits behind the point, or three digits in all where it is far from 1."""
    return f"{ratio:.2f}×" if 0.1 <= ratio < 10 else f"{ratio:.3g}×"


def without_bars(panels: Panels, value: str, labels: Collection[str] = ()) -> str:
    """Say which labels have no value in which groups, as a sentence of a caption; empty where all have one.

    Parameters
    ----------
    panels : sequence of (title, DataFrame)
        The bars of each panel, with ``group`` and ``label``. A title is told where panels differ.
    value : str
        The column that is drawn, NaN without a bar.
    labels : collection of str
        Labels that should have a bar in every group; without any, a bar is missing where a row has no value.
    """
    lacking: dict[str, dict[str, str]] = {}
    for title, part in panels:
        groups = list(dict.fromkeys(part["group"]))
        have, rows = ({*zip(of["group"], of["label"], strict=True)} for of in (part[part[value].notna()], part))
        expected = {(group, label) for group in groups for label in labels} if labels else rows
        for label in sorted({label for _, label in expected - have}):
            missing = [group for group in groups if (group, label) in expected - have]
            few = len(missing) <= _MOST_NAMED
            lacking.setdefault(label, {})[title] = (
                f"on {', '.join(missing)}" if few else f"on {len(missing)} of {counted(len(groups), 'group')}"
            )
    told: dict[str, list[str]] = {}
    for label, by_title in lacking.items():
        alike = len(by_title) == len(panels) and len(set(by_title.values())) == 1
        where = by_title.values() if alike else (f"{text} in {title}" for title, text in by_title.items())
        told.setdefault("; ".join(dict.fromkeys(where)), []).append(label)
    said = (f"{' and '.join(filter(None, (', '.join(of[:-1]), of[-1])))} {where}" for where, of in told.items())
    return f" No bar for lack of results: {'; '.join(said)}." if told else ""
