"""What panels share: short names, and axes of ratios."""

from __future__ import annotations

from spmark.report.figures import panels
from spmark.report.figures.style import looks


def test_names_are_shortened_only_where_they_stay_apart():
    assert panels.short_names(["ogb/arxiv", "dgl/ppi"]) == ["arxiv", "ppi"]
    assert panels.short_names(["ogb/arxiv", "twin/arxiv"]) == ["ogb/arxiv", "twin/arxiv"]


def test_ratio_axes_have_ticks_on_both_sides_of_one():
    for low, high in ((0.95, 1.05), (0.6, 3), (0.95, 3), (0.3, 1.02), (0.01, 200)):
        _, (ax,) = panels.grid(1, looks([("a", "a")]), "lines")
        ax.plot([1, 2], [low, high])
        panels.ratio_axis(ax)
        bottom, top = ax.get_ylim()
        ticks = [tick for tick in ax.get_yticks() if bottom <= tick <= top]
        assert 3 <= len(ticks) <= 9
        assert min(ticks) < 1 < max(ticks)
        assert 1 in ticks
        if high / low > 2.5:
            assert all(f"{tick:e}"[0] in "125" for tick in ticks)
