"""What plots share: the series that they draw, and what they say."""

from __future__ import annotations

import pandas as pd

from spmark.report.figures.plot import MOST_SERIES, looks_of, not_drawn, render
from spmark.report.figures.speedups import speedup_per_matrix


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
    shown = looks_of(frame)
    assert len(shown) == MOST_SERIES
    assert {"mine", "config 19"} <= set(shown)
    assert not_drawn(frame).startswith(" Of too many labels these 9 are in the numbers alone: config 10, config 11")
    assert not_drawn(frame[frame["label"].isin(shown)]) == ""
