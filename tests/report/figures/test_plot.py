"""What plots share: how they show themselves in a notebook, the series that they draw, and what they say."""

from __future__ import annotations

from xml.etree import ElementTree

import matplotlib as mpl
import pytest

from spmark.report.figures.plot import render
from spmark.report.figures.speedups import speedup_per_matrix


@pytest.mark.full
def test_a_plot_shows_itself_in_a_notebook(derived):
    plot = speedup_per_matrix(derived, "cusparse_best")
    svg = plot._repr_svg_()
    assert ElementTree.fromstring(svg).tag.endswith("svg")
    with mpl.rc_context({"font.size": 30, "svg.fonttype": "none"}):
        assert speedup_per_matrix(derived, "cusparse_best")._repr_svg_() == svg


def test_what_a_figure_says_goes_with_its_files(derived):
    drawing = render(lambda width_in: speedup_per_matrix(derived, "cusparse_best", width_in))
    plot = speedup_per_matrix(derived, "cusparse_best")
    assert (drawing.heading, drawing.finding) == (plot.heading, plot.finding)
    assert plot.heading == "Speed-up over cusparse_best on each matrix"
    # On three common cases sparsetir is 5, 2 and 4 times as fast, gespmm 2, 0.5 and 2 times.
    assert plot.finding.startswith("spmm, float32: sparsetir is fastest with 3.42×, before gespmm with 1.26×")
