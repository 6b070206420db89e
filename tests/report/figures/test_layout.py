"""Panels fill their figure: labels reach its edges, columns are as wide and rows as high as asked."""

from __future__ import annotations

import numpy as np
import pytest
from figure_texts import assert_readable
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from spmark.report.figures.layout import OnePass
from spmark.report.figures.ruler import Ruler, measured
from spmark.report.figures.style import in_style

WIDTH_IN, HEIGHT_IN, BODY, DPI = 7.0, 5.0, 0.8, 200


@pytest.fixture
def figure():
    return in_style(_figure)()


def _figure() -> Figure:
    """Make two rows, one twice as high, of two columns; the left labels are long and one panel is hidden."""
    figure = Figure(figsize=(WIDTH_IN, HEIGHT_IN), dpi=DPI, layout=OnePass(BODY))
    axes = figure.subplots(2, 2, height_ratios=[1, 2])
    for ax in axes.flat:
        ax.plot([0, 1], [0, 1e6])
        ax.set_xlabel("across")
        ax.set_title("a title", loc="left")
    axes[0, 0].set_yticks([0, 1e6], ["nothing at all", "a million of something"])
    axes[1, 1].set_visible(False)
    FigureCanvasAgg(figure).draw()
    return figure


def test_panels_have_the_ratios_of_the_grid(figure):
    boxes = np.array([ax.get_position().bounds for ax in figure.axes])
    assert np.ptp(boxes[:, 2]) == pytest.approx(0)
    assert boxes[2, 3] == pytest.approx(2 * boxes[0, 3])
    assert boxes[0, 0] == pytest.approx(boxes[2, 0])
    assert boxes[0, 1] == pytest.approx(boxes[1, 1])


def test_labels_reach_the_edges_and_stay_inside(figure):
    assert_readable(figure)
    left, right, lower, _ = figure.axes
    ruler = Ruler(DPI)
    pad = 3 / 72 * DPI
    assert left.yaxis.get_tightbbox(ruler).x0 == pytest.approx(pad, abs=1)
    assert lower.xaxis.get_tightbbox(ruler).y0 == pytest.approx(pad, abs=1)
    assert max(right.bbox.x1, right.xaxis.get_tightbbox(ruler).x1) == pytest.approx(WIDTH_IN * DPI - pad, abs=1)
    top = max(text.get_window_extent(ruler).y1 for text in left.get_children() if getattr(text, "get_text", str)())
    assert top == pytest.approx(BODY * HEIGHT_IN * DPI - pad, abs=1)


def test_a_text_is_as_wide_on_any_canvas(figure):
    text = figure.axes[0].xaxis.label
    width, height, _ = measured("across", text.get_fontproperties())
    box = text.get_window_extent(Ruler(DPI))
    assert (box.width, width * DPI / 72) == pytest.approx((width * DPI / 72, box.width))
    drawn = text.get_window_extent(FigureCanvasAgg(figure).get_renderer())
    assert drawn.width == pytest.approx(box.width, rel=0.05)
    assert height > 0
