"""The list of what a page shows: every figure and table by its heading, in the order of the page."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from types import ModuleType

import pytest
from browser import browser, needs_chromium

from spmark.records.schema import Status
from spmark.report.site.site import write_report

SWEEP = Path("sweeps", "graphs_spmm")
OF_LIST = re.compile(r'<details class="contents" open>.*?</details>', re.S)
ENTRY = re.compile(r'<li><a href="#([^"]+)">([^<]+)</a></li>')


@pytest.fixture
def site(records: ModuleType, write: Callable[..., Path], tmp_path: Path) -> Path:
    """Give the folder of a site with one sweep."""
    rows = records.sweep(widths=(32, 128), samples=8)
    return write_report([write([*rows, records.measurement(status=Status.TIMEOUT)])], tmp_path / "out").index.parent


def entries(page: str) -> list[tuple[str, str]]:
    """Give ids and texts of a page's list."""
    return [(anchor, unescape(text)) for anchor, text in ENTRY.findall(OF_LIST.findall(page)[0])]


@pytest.mark.full
def test_the_list_names_every_figure_and_table_in_the_order_of_the_page(site: Path) -> None:
    for path in (site / SWEEP / "index.html", site / "index.html"):
        page = path.read_text()
        ids = [anchor for anchor, _ in entries(page)]
        shown = re.findall(r'<(?:figure|h3) id="([^"]+)"', page)
        charts = [name for name in ids if name.endswith("every-case")]
        assert ids == [*charts, *shown] and len(shown) > 1
        assert len(set(ids)) == len(ids)
        assert len(charts) == page.count('class="chart"')
        assert all(f'id="{name}"' in page for name in charts)
        headings = [unescape(text) for text in re.findall(r"<h3[^>]*>([^<]+)</h3>", page)]
        assert [text for _, text in entries(page)] == headings


def test_figures_stand_above_the_tables(site: Path) -> None:
    texts = [text for _, text in entries((site / SWEEP / "index.html").read_text())]
    assert texts[:2] == ["Every case", "Speed-up over cusparse_best on each matrix"]
    page = (site / SWEEP / "index.html").read_text()
    assert 0 < page.index("<figure") < page.index("<table")


@pytest.mark.full
def test_the_list_leads_to_each_device(records: ModuleType, write: Callable[..., Path], tmp_path: Path) -> None:
    rows = records.sweep(samples=8)
    other = write([row.model_copy(update={"device": "other-gpu"}) for row in rows], records.device_spec("other-gpu"))
    page = (write_report([write(rows), other], tmp_path / "out").index.parent / SWEEP / "index.html").read_text()
    assert re.findall(r'<p><a href="#([^"]+)">', OF_LIST.findall(page)[0]) == re.findall(r'<section id="([^"]+)"', page)


@needs_chromium
def test_a_telephone_shows_the_whole_list(site: Path, tmp_path: Path) -> None:
    with browser(tmp_path / "profile") as page:
        page.call("Emulation.setDeviceMetricsOverride", width=400, height=800, deviceScaleFactor=1, mobile=True)
        page.open(site / SWEEP / "index.html")
        assert page.script("document.documentElement.scrollWidth") <= 400
        ends = page.script("[...document.querySelectorAll('.contents a')].map(a => a.getBoundingClientRect().right)")
        assert len(ends) > 5 and max(ends) <= 400
