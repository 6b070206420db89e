"""Room for the labels around panels, found in one pass.

Matplotlib's constrained layout measures every panel twice and solves constraints, which takes a sixth of the time of a
figure. The panels of a report stand in one grid, so that the widest label of a column tells the column's margin.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import LayoutEngine
from matplotlib.text import Text
from matplotlib.transforms import Bbox, BboxBase
from numpy.typing import NDArray

from spmark.report.figures.ruler import Ruler

_PAD_IN = 3 / 72
"""Free on every side of a panel with its labels."""
_GAPS = (0.02, 0.04)
"""Least share of the figure's width, and of its height, that lies between panels, over the number of panels."""
_FIRST_IN = ((0.6, 0.1), (0.3, 0.5))
"""Margins (left and right, top and bottom) with which labels are measured: ticks may follow from the room."""


class OnePass(LayoutEngine):
    """Lays out the panels of a figure's only grid, in the lowest ``body`` of the figure's height.

    Panels of a column are as wide as those of any other, and heights of rows have the ratios of the grid.
    """

    _adjust_compatible: ClassVar[bool] = True
    _colorbar_gridspec: ClassVar[bool] = True

    def __init__(self, body: float) -> None:
        super().__init__()
        self._body = body

    def execute(self, fig: Any) -> None:
        """Place the panels."""
        panels = [ax for ax in fig.axes if ax.get_visible()]
        if not panels:
            return
        grid = panels[0].get_subplotspec().get_gridspec()
        shape = grid.nrows, grid.ncols
        heights = np.asarray(grid.get_height_ratios() or [1] * grid.nrows, np.float64)
        first = [
            [np.full(count, each) for each in ends] for count, ends in zip(reversed(shape), _FIRST_IN, strict=True)
        ]
        self._place(fig, first, heights)
        ruler = Ruler(fig.dpi)
        columns, rows = ((np.zeros(n), np.zeros(n)) for n in reversed(shape))
        for ax in panels:
            row, column = _cell(ax)
            inner, outer = ax.get_window_extent(), _with_labels(ax, ruler)
            for margins, place, size in (
                (columns[0], column, inner.x0 - outer.x0), (columns[1], column, outer.x1 - inner.x1),
                (rows[0], row, outer.y1 - inner.y1), (rows[1], row, inner.y0 - outer.y0),
            ):  # fmt: skip
                margins[place] = max(margins[place], size / fig.dpi)
        size_in = fig.get_size_inches()
        for (before, after), extent_in, share in zip((columns, rows), size_in, _GAPS, strict=True):
            gap_in = max(_PAD_IN, share * extent_in / len(before) / 2)
            before += [_PAD_IN, *[gap_in] * (len(before) - 1)]
            after += [*[gap_in] * (len(after) - 1), _PAD_IN]
        self._place(fig, (columns, rows), heights)

    def _place(self, figure: Figure, margins: Any, ratios: NDArray[np.float64]) -> None:
        """Give every panel its place inside of the margins, in inches, of columns and rows."""
        (left, right), (top, bottom) = margins
        width_in, height_in = figure.get_size_inches()
        body_in = height_in * self._body
        each_in = max((width_in - left.sum() - right.sum()) / len(left), 0.0)
        high_in = max(body_in - top.sum() - bottom.sum(), 0.0) * ratios / ratios.sum()
        starts = np.cumsum(left + each_in + right) - each_in - right
        ends = body_in - np.cumsum(top + high_in + bottom) + bottom
        for ax in figure.axes:
            row, column = _cell(ax)
            box = (starts[column] / width_in, ends[row] / height_in, each_in / width_in, high_in[row] / height_in)
            ax.set_position(box)


def _cell(ax: Axes) -> tuple[int, int]:
    place = ax.get_subplotspec()
    assert place is not None
    return place.rowspan.start, place.colspan.start


def _with_labels(ax: Axes, ruler: Ruler) -> BboxBase:
    """Give the box around a panel and its labels; titles may be wider than their panel."""
    inner = ax.get_window_extent()
    boxes: list[BboxBase] = [inner]
    if ax.axison:
        around = (axis.get_tightbbox(ruler, for_layout_only=True) for axis in (ax.xaxis, ax.yaxis))
        boxes += [box for box in around if box is not None]
    inside = set(ax.texts)
    for text in ax.get_children():
        if isinstance(text, Text) and text.get_visible() and text.get_text():
            box = text.get_window_extent(ruler)
            boxes.append(box if text in inside else Bbox.from_extents(inner.x0, box.y0, inner.x0, box.y1))
    return Bbox.union(boxes)
