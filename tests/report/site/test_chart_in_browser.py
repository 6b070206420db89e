"""The interactive chart of a sweep in a browser: markers, lines, names of cases, and points at the edge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from browser import Page, browser, needs_chromium

from spmark.report.figures.style import looks
from spmark.report.site.files import write_pages
from spmark.report.site.model import Points, Report, Section, SweepPage
from spmark.report.tables.table import Chapter

pytestmark = [pytest.mark.full, needs_chromium]
CHART = "Chart.getChart(document.querySelector('.canvas canvas'))"
TICKS = CHART + ".scales.{0}.ticks.map(tick => [tick.value, tick.label])"
# Which pixels of an icon have colour, whatever the colour is.
ICONS = """[...document.querySelectorAll('.legend canvas')].map(icon => {
  const { data } = icon.getContext('2d').getImageData(0, 0, icon.width, icon.height);
  return Array.from({ length: data.length / 4 }, (_, at) => Number(
    data[4 * at + 3] > 128 && Math.min(data[4 * at], data[4 * at + 1], data[4 * at + 2]) < 160)).join('');
})"""
SPEEDUPS = """{
  const [, of] = document.querySelectorAll('.chart select');
  of.value = '3';
  of.dispatchEvent(new Event('change'));
}"""


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    """Give a page that is as wide as a screen."""
    with browser(tmp_path / "profile", width=1400) as opened:
        yield opened


def open_chart(
    page: Page, folder: Path, labels: Sequence[tuple[str, str]], cases: Sequence[tuple[str, int]], points: Any
) -> None:
    """Open the page of a sweep with nothing but a chart."""
    series = [
        {"label": label, "colour": look.colour, "marker": look.marker, "hatch": look.hatch}
        for label, look in looks(labels).items()
    ]
    panel = {"name": "spmm float32", "cases": [list(case) for case in cases], "points": points}
    section = Section("gpu", "", [], [], [], "some", Points(series, [panel], 0))
    sweep = SweepPage("some", "some")
    write_pages(Report("charts", [], [section], (sweep,)), sweep, [Chapter.SUMMARY], folder)
    page.open(folder / "sweeps" / "some" / "index.html")
    assert page.errors() == []


def test_every_config_of_an_implementation_has_a_marker_or_a_fill_of_its_own(page: Page, tmp_path: Path) -> None:
    labels = [(f"width {width}", "liteform") for width in range(22)]
    points = [[number, 0, 10.0 + number, None] for number in range(len(labels))]
    open_chart(page, tmp_path, labels, [("some/matrix", 32)], points)
    icons = page.script(ICONS)
    assert len(icons) == 22
    assert len(set(icons)) == 22
    assert all("1" in icon for icon in icons)


@pytest.mark.parametrize(("low", "high"), [(6.0, 95.0), (7.0, 9.0), (20.0, 20.0), (7.0, 150_000.0)])
def test_every_line_of_an_axis_has_a_round_label(page: Page, tmp_path: Path, low: float, high: float) -> None:
    points = [[0, 0, low, 1.5], [0, 1, high, 0.3]]
    open_chart(page, tmp_path, [("gespmm", "gespmm")], [("some/matrix", 32), ("some/matrix", 64)], points)
    for unit in ("", "×"):
        ticks = page.script(TICKS.format("y"))
        assert len(ticks) >= 2
        for value, label in ticks:
            assert f"{value:e}"[0] in "125" and float(f"{value:.0e}") == value
            assert label == (f"{value:,.0f}" if value >= 1 else f"{value:g}") + unit
        assert ticks[0][0] <= (low if not unit else 0.3) and ticks[-1][0] >= (high if not unit else 1.5)
        page.script(SPEEDUPS)


def test_a_long_name_keeps_both_ends_and_says_its_width(page: Page, tmp_path: Path) -> None:
    cases = [("dlmc/resnet50_2048x512@0.7", 50176), ("dlmc/resnet50_2048x512@0.9", 64)]
    open_chart(page, tmp_path, [("gespmm", "gespmm")], cases, [[0, 0, 10.0, None], [0, 1, 20.0, None]])
    names = [label for _, label in page.script(TICKS.format("x"))]
    assert names == ["resnet50…x512@0.7, J = 50,176", "resnet50…x512@0.9, J = 64"]


@pytest.mark.parametrize("width", [1400, 400])
def test_points_at_the_right_edge_are_whole(page: Page, tmp_path: Path, width: int) -> None:
    page.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
    cases = [("some/matrix", number) for number in range(1, 401)]
    points = [[0, number, 10.0 if number < 399 else 100.0, None] for number in range(400)]
    open_chart(page, tmp_path, [("cusparse_best", "cusparse_best")], cases, points)
    last = f"{CHART}.getDatasetMeta(0).data.at(-1)"
    x, y, radius, edge = page.script(f"[{last}.x, {last}.y, {last}.options.radius, {CHART}.chartArea.right]")
    assert x + radius > edge + 1
    for side in (-1, 1):
        taken = f"{CHART}.ctx.getImageData({round(x + side * (0.85 * radius - 1))}, {round(y)}, 1, 1).data"
        assert page.script(f"[...{taken}]")[:3] == pytest.approx([0x4D] * 3, abs=30)
