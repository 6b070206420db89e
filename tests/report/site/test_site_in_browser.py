"""The site as a browser sees it from disk: no error, no request outside, tables that sort, figures for a telephone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from browser import browser, needs_chromium

from spmark.records.schema import Status
from spmark.report.claims.published import PAPERS
from spmark.report.claims.scorecard import scorecard_tables
from spmark.report.figures.plot import Form
from spmark.report.records import load_records
from spmark.report.site.files import write_site
from spmark.report.site.model import Report, Section
from spmark.report.site.site import write_report
from spmark.report.tables.table import Chapter

pytestmark = [pytest.mark.full, needs_chromium]
ROOT = Path(__file__).parents[3]
LO_SPMM = ROOT / "report" / "reference" / "h200" / "lo_spmm_fig11_search_time_c"
ROWS = "[...document.querySelector('table').tBodies[0].rows]"
CELLS = ROWS + ".map(row => row.cells[{0}].dataset.v ?? row.cells[{0}].textContent)"
CLICK = "document.querySelectorAll('table')[0].tHead.rows[0].cells[{0}].firstElementChild.click()"


SWEEP = "sweeps/graphs_spmm"
PAGES = ["index", *(f"{SWEEP}/{name}" for name in ("index", "cases", "failures"))]
SHOWN = "[...document.querySelector('.rows tbody').rows].filter(row => !row.hidden).length"


@pytest.fixture(scope="module")
def site(records, tmp_path_factory):
    root = tmp_path_factory.mktemp("site")
    rows = records.sweep(widths=(32, 128), samples=8)
    rows.append(records.measurement(status=Status.BUILD_ERROR, reason="log\n<script>alert(1)</script>", matrix="bad"))
    return write_report([records.write_records(root, rows)], root / "out").index.parent


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture
def sweep(page, site):
    """Give the page of the sweep, freshly opened."""
    page.open(site / SWEEP / "index.html")
    return page


def sized(page, width, scheme="light"):
    page.call("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width < 600)
    page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])


@pytest.mark.parametrize("name", PAGES)
def test_a_page_opens_from_disk_without_errors_or_requests_elsewhere(page, site, name):
    path = site / f"{name}.html"
    page.open(path)
    assert page.script("document.readyState") == "complete"
    assert page.errors() == []
    assert all(address.startswith(f"{site.as_uri()}/") for address in page.requests())
    drawn = page.script("[...document.images].map(image => image.complete && image.naturalWidth > 100)")
    assert all(drawn)
    assert bool(drawn) == (name in ("index", f"{SWEEP}/index"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 400])
def test_no_page_is_wider_than_the_screen(site, tmp_path, width, scheme):
    with browser(tmp_path / "profile") as page:
        sized(page, width, scheme)
        for name in PAGES:
            page.open(site / f"{name}.html")
            assert page.script("document.documentElement.scrollWidth") <= width, name
            assert page.errors() == [], name


def test_pages_lead_to_each_other_and_to_files(page, site):
    for name in PAGES:
        page.open(site / f"{name}.html")
        links = page.script("[...document.links].map(link => link.getAttribute('href'))")
        folder = (site / name).parent
        assert [link for link in links if not link.startswith("#") and not (folder / link).is_file()] == []
    assert {"../../index.html", f"../../{SWEEP}/cases.html"} <= set(links)


def test_tables_sort_by_number_and_back(page, site):
    page.open(site / SWEEP / "cases.html")
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


def test_a_filter_shows_the_rows_that_hold_every_word(page, site):
    page.open(site / SWEEP / "cases.html")
    whole = page.script(SHOWN)
    typed = (
        "const box = document.querySelector('.filter input'); box.value = '{}'; box.dispatchEvent(new Event('input'))"
    )
    page.script("{" + typed.format("ARXIV gespmm") + "}")
    assert page.script(SHOWN) == 2
    assert page.script("document.querySelector('.filter').textContent") == f"Filter 2 of {whole} rows"
    page.script("{" + typed.format("") + "}")
    assert page.script(SHOWN) == whole > 8


def torn_site(records, folder):
    """Give a site whose cases go on over two pages, with long configs."""
    config = {f"tunable_{number}": "of a long name" for number in range(40)}
    rows = [
        records.measurement(
            matrix=f"m{matrix}", matrix_hash=f"{matrix:064x}", width=width, samples_us=[9.0] * 8, config=config
        )
        for matrix in range(60)
        for width in range(1, 11)
    ]
    return write_report([records.write_records(folder, rows)], folder / "out").index.parent / SWEEP


def test_a_filter_says_that_it_sees_one_page_of_a_table_of_several(page, records, tmp_path):
    sweep = torn_site(records, tmp_path)
    page.open(sweep / "cases.html")
    on_page = page.script("document.querySelector('.rows tbody').rows.length")
    assert on_page < 600
    typed = (
        "{const box = document.querySelector('.filter input'); box.value = 'm3'; box.dispatchEvent(new Event('input'))}"
    )
    page.script(typed)
    told = page.script("document.querySelector('.filter').textContent")
    assert f"of {on_page} rows on this page." in told
    assert "Filter and order are of this page; the whole table has 600 rows: data (CSV)" in told
    link = page.script("document.querySelector('.filter a').getAttribute('href')")
    assert len(pd.read_csv(sweep / link)) == 600


def test_rows_stay_low_and_name_their_matrix_however_far_a_table_is_scrolled(page, records, tmp_path):
    sweep = torn_site(records, tmp_path)
    page.open(sweep / "cases.html")
    heights = page.script("[...document.querySelectorAll('.rows tbody tr')].map(row => row.offsetHeight)")
    assert max(heights) < 40
    cut = "document.querySelector('td.long')"
    assert page.script(f"{cut}.scrollWidth > {cut}.clientWidth")
    assert "tunable_39=of a long name" in page.script(f"{cut}.title")
    page.script("document.querySelector('.rows').scrollLeft = 500")
    first = "document.querySelector('.rows tbody td').getBoundingClientRect()"
    assert page.script("document.querySelector('.rows').scrollLeft") > 100
    assert page.script(f"{first}.left - document.querySelector('.rows').getBoundingClientRect().left") < 5
    assert page.script("document.querySelector('.rows tbody td').textContent").endswith("m0")


def test_a_point_of_the_chart_says_its_numbers(sweep, site):
    assert sweep.script("document.querySelectorAll('.chart:not([hidden]) .canvas canvas').length") == 1
    labels = sweep.script("[...document.querySelectorAll('.legend button')].map(button => button.textContent)")
    assert labels == ["cusparse_best", "gespmm", "sparsetir"]
    sweep.script("document.querySelector('canvas').scrollIntoView()")
    place = sweep.script(
        "(() => { const chart = Chart.getChart(document.querySelector('canvas')), at = chart.getDatasetMeta(1).data[0],"
        " box = chart.canvas.getBoundingClientRect(); return [box.x + at.x, box.y + at.y]; })()"
    )
    sweep.call("Input.dispatchMouseEvent", type="mouseMoved", x=place[0], y=place[1])
    sweep.wait("Chart.getChart(document.querySelector('canvas')).tooltip.opacity > 0")
    tip = "Chart.getChart(document.querySelector('canvas')).tooltip"
    (title,) = sweep.script(f"{tip}.title")
    lines = sweep.script(f"{tip}.body.flatMap(part => part.lines)")
    cases = pd.read_csv(site / "tables" / "test-gpu-cases.csv").set_index(["matrix", "width", "label"])
    matrix, width, panel = title.split(", ")
    assert panel == "spmm float32"
    case = cases.loc[matrix, int(width.removeprefix("J = ")), "gespmm"]
    said = next(line for line in lines if line.startswith("gespmm"))
    assert said == f"gespmm: {case['median_us']:.4g} µs, speed-up {case['speedup']:.4g}×"
    assert sweep.errors() == []


def test_a_name_below_the_chart_hides_its_points_and_speedups_can_be_drawn(sweep):
    visible = "Chart.getChart(document.querySelector('canvas')).getVisibleDatasetCount()"
    assert sweep.script(visible) == 3
    sweep.script("document.querySelector('.legend button').click()")
    assert sweep.script(visible) == 2
    pressed = "document.querySelector('.legend button').getAttribute('aria-pressed')"
    assert sweep.script(pressed) == "false"
    choose = "const [, which] = document.querySelectorAll('.chart select'); which.value = '3';"
    sweep.script("{" + choose + "which.dispatchEvent(new Event('change'))}")
    assert sweep.script("Chart.getChart(document.querySelector('canvas')).options.scales.y.title.text") == "speed-up"
    # What was hidden stays hidden.
    assert sweep.script(visible) == 2


def test_without_scripts_the_page_has_its_figures_and_rows(page, site):
    page.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        page.open(site / SWEEP / "index.html")
    finally:
        page.call("Emulation.setScriptExecutionDisabled", value=False)
    assert page.script("document.querySelector('.chart').hidden")
    assert page.script("document.images.length") > 1
    assert page.script("document.querySelectorAll('tbody tr').length") > 8
    assert page.script("document.querySelectorAll('.filter').length") == 0


def test_a_telephone_gets_the_narrow_figures(records, tmp_path):
    folder, out = records.write_records(tmp_path, records.sweep(widths=(32,), samples=8)), tmp_path / "out"
    write_report([folder], out, also={Form.NARROW})
    with browser(tmp_path / "profile") as page:
        for width, narrow in ((400, True), (1200, False)):
            sized(page, width)
            page.open(out / SWEEP / "index.html")
            picture = "document.querySelector('figure img')"
            assert page.script(f"{picture}.currentSrc").endswith("-narrow.svg") == narrow
            assert page.script(f"{picture}.clientWidth <= document.documentElement.clientWidth")


def test_a_telephone_scrolls_a_wide_figure_whose_letters_stay_legible(site, tmp_path):
    picture = "document.querySelector('figure picture')"
    with browser(tmp_path / "profile") as page:
        for width, scrolls in ((400, True), (1200, False)):
            sized(page, width)
            page.open(site / SWEEP / "index.html")
            assert page.script(f"{picture}.scrollWidth > {picture}.clientWidth") == scrolls
            # A figure is 7 inches wide, of 96 pixels each.
            assert page.script("document.querySelector('figure img').clientWidth") > 7 * 96
            assert page.script("document.documentElement.scrollWidth") <= width


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
