"""Whether a figure can be read: its texts stay apart, on the canvas and off data, and its legend stays off the axes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, pairwise

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from numpy.typing import NDArray

from spmark.report.figures.style import RC

Corners = NDArray[np.float64]
SLACK = 1.5
"""Pixels by which two texts may reach into each other: the white around letters."""
REACH = 3.0
"""Pixels around the middle of a marker or a whisker that no text may cover."""


def assert_readable(figure: Figure, fewest: int = 5) -> None:
    """Lay a figure out, and hold up that every text can be read."""
    with rc_context(dict(RC)):
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        drawn = [(text.get_text(), corners(text, canvas)) for text in texts(figure)]
        assert len(drawn) >= fewest, [text for text, _ in drawn]
        for text, box in drawn:
            assert box.min() >= -SLACK and (box.max(axis=0) <= np.array(figure.bbox.max) + SLACK).all(), (
                f"{text!r} leaves the canvas: {box.round()} of {figure.bbox.max}"
            )
        for (a, one), (b, two) in combinations(drawn, 2):
            assert apart(one, two), f"{a!r} runs into {b!r}: {one.round()} and {two.round()}"
        for ax in (ax for ax in figure.axes if ax.get_visible() and ax.axison):
            for name in _ticks(ax.xaxis, 0, ax.get_xlim()):
                top = corners(name, canvas)[:, 1].max()
                assert top <= ax.bbox.y0 + SLACK, f"{name.get_text()!r} lies over its axis"
            taken = [*marks(ax)]
            for text in (t for t in ax.texts if t.get_visible() and any(map(str.isalnum, t.get_text()))):
                box = corners(text, canvas)
                assert all(apart(box, mark) for mark in taken), f"{text.get_text()!r} lies on a marker or a whisker"
        for legend in figure.legends:
            box = legend.get_window_extent(canvas.get_renderer())
            for ax in figure.axes:
                assert not ax.get_visible() or not box.padded(-SLACK).overlaps(ax.bbox), "a legend lies over axes"


def texts(figure: Figure) -> Iterator[Text]:
    """Give the texts that are drawn: tick labels beyond an axis are made but not drawn."""
    found: list[Text] = []
    for legend in figure.legends:
        found += [*legend.get_texts(), legend.get_title()]
    for ax in (ax for ax in figure.axes if ax.get_visible()):
        found += [t for t in ax.get_children() if isinstance(t, Text)]
        if (inner := ax.get_legend()) is not None:
            found += inner.get_texts()
        if not ax.axison:
            continue
        found += [ax.xaxis.label, ax.yaxis.label]
        found += [*_ticks(ax.xaxis, 0, ax.get_xlim()), *_ticks(ax.yaxis, 1, ax.get_ylim())]
    return (t for t in found if t.get_visible() and t.get_text().strip())


def marks(ax: Axes) -> Iterator[Corners]:
    """Give the corners of what lies around each marker and each upright whisker that is seen, in pixels."""
    spans: list[tuple[Corners, Corners]] = []
    for drawn in (d for d in (*ax.lines, *ax.collections) if d.get_visible()):
        if isinstance(drawn, PathCollection):
            offsets = np.ma.filled(np.ma.asarray(drawn.get_offsets(), float), np.nan)
            spans += [(point, point) for point in drawn.get_offset_transform().transform(offsets)]
        elif isinstance(drawn, LineCollection):
            lines = map(drawn.get_transform().transform, drawn.get_segments())
            spans += [(line[0], line[-1]) for line in lines if len(line)]
        elif isinstance(drawn, Line2D):
            points = drawn.get_transform().transform(drawn.get_xydata())
            if drawn.get_marker() not in ("None", "none", " ", "", None):
                spans += [(point, point) for point in points]
            elif drawn.get_transform() == ax.transData:
                # Whiskers of one look are one line with gaps, where the height is NaN.
                spans += [(one, next_) for one, next_ in pairwise(points) if one[0] == next_[0]]
    for one, other in spans:
        low, high = np.minimum(one, other), np.maximum(one, other)
        if (low <= ax.bbox.max).all() and (high >= ax.bbox.min).all():  # neither holds for NaN
            (x0, y0), (x1, y1) = np.maximum(low, ax.bbox.min) - REACH, np.minimum(high, ax.bbox.max) + REACH
            yield np.array([(x0, y0), (x1, y0), (x1, y1), (x0, y1)])


def _ticks(axis: Axis, place: int, ends: tuple[float, float]) -> list[Text]:
    return [t for t in axis.get_majorticklabels() if min(ends) <= t.get_position()[place] <= max(ends)]


def corners(text: Text, canvas: FigureCanvasAgg) -> Corners:
    """Give the four corners of a text as it is drawn, in pixels, also where it is turned by any angle."""
    angle = text.get_rotation()
    if angle % 90:
        text.set_rotation(0)
    box = text.get_window_extent(canvas.get_renderer())
    flat = np.array([(box.x0, box.y0), (box.x1, box.y0), (box.x1, box.y1), (box.x0, box.y1)])
    if not angle % 90:
        return flat
    text.set_rotation(angle)
    assert text.get_rotation_mode() == "anchor"
    cos, sin = np.cos(np.radians(angle)), np.sin(np.radians(angle))
    anchor = np.asarray(text.get_transform().transform(text.get_position()))
    turned: Corners = (flat - anchor) @ np.array([[cos, sin], [-sin, cos]]) + anchor
    return turned


def apart(one: Corners, two: Corners) -> bool:
    """Tell whether a line parts two rectangles, which may touch by `SLACK` pixels."""
    for side in (*np.diff(one, axis=0)[:2], *np.diff(two, axis=0)[:2]):
        normal = np.array([-side[1], side[0]]) / (np.hypot(*side) or 1.0)
        a, b = one @ normal, two @ normal
        if min(a.max(), b.max()) - max(a.min(), b.min()) <= 2 * SLACK:
            return True
    return False
