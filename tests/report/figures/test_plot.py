"""What plots share: how they show themselves in a notebook, the series that they draw, and what they say."""

from __future__ import annotations

from io import BytesIO
from xml.etree import ElementTree

import matplotlib as mpl
import pandas as pd
import pytest
from matplotlib import image

from spmark.report.figures.plot import MOST_SERIES, looks_of, not_drawn, render
from spmark.report.figures.speedups import speedup_per_matrix
from spmark.report.figures.style import WIDTH_IN


@pytest.mark.full
def test_a_plot_shows_itself_in_a_notebook(derived):
    plot = speedup_per_matrix(derived, "cusparse_best")
    svg = plot._repr_svg_()
    assert ElementTree.fromstring(svg).tag.endswith("svg")
    with mpl.rc_context({"font.size": 30, "svg.fonttype": "none"}):
        assert speedup_per_matrix(derived, "cusparse_best")._repr_svg_() == svg
    assert image.imread(BytesIO(plot._repr_png_())).shape[1] == plot.figure.dpi * WIDTH_IN


def test_what_a_figure_says_goes_with_its_files(derived):
    drawing = render(lambda width_in: speedup_per_matrix(derived, "cusparse_best", width_in))
    plot = speedup_per_matrix(derived, "cusparse_best")
    assert (drawing.heading, drawing.finding) == (plot.heading, plot.finding)
    assert plot.heading == "Speed-up over cusparse_best on each matrix"
    # On three common cases sparsetir is 5, 2 and 4 times as fast, gespmm 2, 0.5 and 2 times.
    assert plot.finding.startswith("spmm, float32: sparsetir is fastest with 3.42×, before gespmm with 1.26×")


def test_labels_beyond_the_limit_are_named():
    names = [f"config {at:02}" for at in range(20)]
    rows = [("mine", "mine", 1), *((name, "mine", 1 + (name == "config 19")) for name in names)]
    frame = pd.DataFrame(
        [{"label": label, "implementation": name} for label, name, count in rows for _ in range(count)]
    )
    shown = looks_of(frame, frame)
    assert len(shown) == MOST_SERIES
    assert {"mine", "config 19"} <= set(shown)
    said = not_drawn(frame, shown)
    assert said.startswith(" Of too many labels these 9 are in the numbers alone: config 10, config 11")
    assert not_drawn(frame[frame["label"].isin([*shown, "config 17"])], shown) == (
        " Of too many labels this one is in the numbers alone: config 17."
    )
    assert not_drawn(frame[frame["label"].isin(shown)], shown) == ""


def test_what_a_finding_names_is_drawn():
    names = ["mine", *(f"config {at:02}" for at in range(20))]
    frame = pd.DataFrame([{"label": label, "implementation": "mine"} for label in names])
    assert not {"config 17", "config 18"} & set(looks_of(frame, frame))
    shown = looks_of(frame, frame, ("config 18", "config 17"))
    assert len(shown) == MOST_SERIES
    assert {"mine", "config 17", "config 18"} <= set(shown)


def test_a_label_looks_alike_in_all_figures_of_a_page():
    sweep = pd.DataFrame([{"label": label, "implementation": "mine"} for label in ("mine", "other", "third")])
    few = looks_of(sweep[sweep["label"] != "mine"], sweep)
    assert list(few) == ["other", "third"]
    assert few == {label: look for label, look in looks_of(sweep, sweep).items() if label in few}
