"""What panels share: short names, and axes of ratios."""

from __future__ import annotations

from math import nan

import pytest
from matplotlib.figure import Figure

from spmark.report.figures import names, panels
from spmark.report.figures.style import looks


def test_names_are_shortened_only_where_they_stay_apart():
    assert names.short_names(["ogb/arxiv", "dgl/ppi"]) == ["arxiv", "ppi"]
    assert names.short_names(["ogb/arxiv", "twin/arxiv"]) == ["ogb/arxiv", "twin/arxiv"]


def test_ratio_axes_have_ticks_on_both_sides_of_one():
    for low, high in ((0.95, 1.05), (0.6, 3), (0.95, 3), (0.3, 1.02), (0.01, 200)):
        _, (ax,) = panels.stacked(1, looks([("a", "a")]), "lines")
        ax.plot([1, 2], [low, high])
        panels.ratio_axis(ax)
        bottom, top = ax.get_ylim()
        ticks = [tick for tick in ax.get_yticks() if bottom <= tick <= top]
        assert 3 <= len(ticks) <= 9
        assert min(ticks) < 1 < max(ticks)
        assert 1 in ticks
        if high / low > 2.5:
            assert all(f"{tick:e}"[0] in "125" for tick in ticks)


def test_an_interval_beside_which_no_bar_is_seen_has_no_whisker():
    low, high = panels.shown_ends([0.5, 0.15, 0.015], [3.0, 14.0, 300.0])
    assert low.tolist() == pytest.approx([0.5, 0.15, nan], nan_ok=True)
    assert high.tolist() == pytest.approx([3.0, 14.0, nan], nan_ok=True)


@pytest.mark.parametrize(
    ("values", "most", "labels"),
    [
        ([0.3, 4.0], 6, ["0.5", "1", "2"]),
        ([0.13, 9.0], 6, ["0.2", "0.5", "1", "2", "5"]),
        ([0.13, 9.0], 3, ["0.2", "1", "5"]),
        ([2.1, 4.0], 6, ["1", "10"]),
        ([0.5, 2000.0], 6, ["1", "10", "100", "1k"]),
    ],
)
def test_a_narrow_axis_has_more_than_one_label(values: list[float], most: int, labels: list[str]) -> None:
    ax = Figure().subplots()
    ax.set_xscale("log")
    ax.set_xlim(*values)
    panels.log_ticks(ax.xaxis, values, most)
    assert [ax.xaxis.get_major_formatter()(place, 0) for place in ax.xaxis.get_majorticklocs()] == labels


def test_names_are_broken_where_they_may_be():
    assert names.broken("dnn_layers 70 %", 0.5) == "dnn_\nlayers\n70 %"
    assert names.broken("block@0.93, J = 512", 0.1) == "block@\n0.93,\nJ = 512"
    assert names.broken("short", 0.1) == "short"


def test_ticks_at_values_keep_those_that_have_room():
    ax = Figure().subplots()
    values = [0.7, 0.8, 0.9, 0.93, 0.95, 0.98]
    panels.value_ticks(ax.xaxis, values, 6.0, log=False)
    assert list(ax.get_xticks()) == values
    panels.value_ticks(ax.xaxis, values, 1.5, log=False)
    assert list(ax.get_xticks()) == [0.7, 0.8, 0.9, 0.98]
    panels.value_ticks(ax.xaxis, doubling := [float(1 << power) for power in range(11)], 2.4, log=True)
    assert ax.get_xticks()[0] == 1
    assert ax.get_xticks()[-1] == doubling[-1]
