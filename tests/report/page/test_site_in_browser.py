"""The site as a browser sees it from disk: no error, no request outside, tables that sort, figures for a telephone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from browser import browser, needs_chromium

from spmark.impls.core.record import Status
from spmark.report.claims.published import PAPERS
from spmark.report.claims.scorecard import scorecard_tables
from spmark.report.load.records import load_records
from spmark.report.page.content import Report, Section
from spmark.report.page.site import write_report, write_site
from spmark.report.tables.table import Chapter

pytestmark = needs_chromium
LO_SPMM = Path(__file__).parents[3] / "report" / "reference" / "h200" / "lo_spmm_fig11_search_time_c"
ROWS = "[...document.querySelector('table').tBodies[0].rows]"
CELLS = ROWS + ".map(row => row.cells[{0}].dataset.v ?? row.cells[{0}].textContent)"
CLICK = "document.querySelectorAll('table')[0].tHead.rows[0].cells[{0}].firstElementChild.click()"


@pytest.fixture(scope="module")
def site(records, tmp_path_factory):
    root = tmp_path_factory.mktemp("site")
    rows = records.sweep(widths=(32, 128), samples=8)
    rows.append(records.measurement(status=Status.BUILD_ERROR, reason="log\n<script>alert(1)</script>", matrix="bad"))
    return write_report([records.write_records(root, rows)], root / "out").parent


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.mark.parametrize("name", ["index", "cases", "failures"])
def test_a_page_opens_from_disk_without_errors_or_requests(page, site, name):
    path = site / f"{name}.html"
    page.open(path)
    assert page.script("document.readyState") == "complete"
    assert page.errors() == []
    assert page.requests() == [path.as_uri()]
    drawn = page.script("[...document.images].map(image => image.complete && image.naturalWidth > 100)")
    assert all(drawn)
    assert bool(drawn) == (name == "index")


def test_pages_lead_to_each_other_and_to_files(page, site):
    page.open(site / "index.html")
    links = page.script("[...document.links].map(link => link.getAttribute('href'))")
    assert {"cases.html", "failures.html"} <= set(links)
    outside = [link for link in links if not link.startswith("#") and not (site / link).is_file()]
    assert outside == []


def test_tables_sort_by_number_and_back(page, site):
    page.open(site / "cases.html")
    heads = page.script("[...document.querySelector('table').tHead.rows[0].cells].map(cell => cell.textContent)")
    place = heads.index("median (µs)")
    before = [float(value) for value in page.script(CELLS.format(place)) if value]
    assert before != sorted(before)
    page.script(CLICK.format(place))
    values = page.script(CELLS.format(place))
    # Cases without a time stand last, either way.
    assert [float(value) for value in values if value] == sorted(before)
    assert values[-1] == ""
    page.script(CLICK.format(place))
    assert [float(value) for value in page.script(CELLS.format(place)) if value] == sorted(before, reverse=True)
    page.script(CLICK.format(heads.index("matrix")))
    names = page.script(CELLS.format(heads.index("matrix")))
    assert names == sorted(names, key=str.lower)
    assert page.errors() == []


def test_a_telephone_gets_the_narrow_figures(site, tmp_path):
    shown = "document.querySelector('figure img').currentSrc.length"
    narrow = "document.querySelector('figure source').srcset.length"
    with browser(tmp_path / "profile") as page:
        page.call("Emulation.setDeviceMetricsOverride", width=400, height=800, deviceScaleFactor=1, mobile=True)
        page.open(site / "index.html")
        assert page.script(shown) == page.script(narrow)
        assert page.script("document.documentElement.scrollWidth") <= 420
        page.call("Emulation.setDeviceMetricsOverride", width=1200, height=800, deviceScaleFactor=1, mobile=False)
        page.open(site / "index.html")
        assert page.script(shown) != page.script(narrow)


def test_verdict_and_both_numbers_of_a_claim_are_seen_without_scrolling(tmp_path):
    frame = load_records([LO_SPMM])
    tables = [replace(table, chapter=Chapter.SCORECARD) for table in scorecard_tables(frame, PAPERS)]
    write_site(Report("claims", [], [Section("nvidia-h200", "", [], [], tables)]), tmp_path)
    right = "Math.round(cell.getBoundingClientRect().right)"
    heads = f"[...table.tHead.rows[0].cells].map(cell => [cell.textContent, {right}])"
    with browser(tmp_path / "profile") as page:
        page.call("Emulation.setDeviceMetricsOverride", width=1200, height=800, deviceScaleFactor=1, mobile=False)
        page.open(tmp_path / "scorecard.html")
        totals, claims = (
            dict(found) for found in page.script(f"[...document.querySelectorAll('table')].map(table => {heads})")
        )
    assert list(totals)[:2] == ["paper", "kind"]
    assert max(totals.values()) < 1200
    assert max(claims[name] for name in ("verdict", "ours", "published", "what")) < 1200
