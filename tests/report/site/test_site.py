"""The report on disk: complete, self-contained, escaped, and the same bytes each time."""

from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser

import pandas as pd
import pytest

from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.errors import RecordError
from spmark.impls.core.problem import DType, Op
from spmark.records.schema import PROTOCOL_VERSION, Flush, Status
from spmark.report.figures.plot import Form
from spmark.report.records import load_records
from spmark.report.site import site
from spmark.report.site.model import ListedSweep, PaperPage
from spmark.report.site.site import write_report
from spmark.report.tables.table import short_table

SWEEP = "sweeps/graphs_spmm"
HOSTILE = "ptxas fatal: <script>alert('x')</script> | `y` & 5 < 6\nsecond line </td></table> $title"


class Reader(HTMLParser):
    """Collect tags, addresses and text of a page, and check that tags close in order."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.addresses, self.text = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href", "srcset", "action", "data")]
        if tag not in ("meta", "link", "img", "source"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def read(path):
    reader = Reader()
    reader.feed(path.read_text())
    assert not reader.open
    return reader


@pytest.fixture(scope="module")
def report(records, tmp_path_factory):
    root = tmp_path_factory.mktemp("report")
    rows = records.sweep(dtypes=(DType.FLOAT32, DType.FLOAT16), ops=(Op.SPMM, Op.SDDMM))
    hostile = {"matrix": "hostile", "implementation": "cublas"}
    rows += [
        records.measurement(status=status, reason=f"{HOSTILE} {status}", width=width, **hostile)
        for width, status in enumerate(sorted(set(Status) - {Status.OK, Status.IMPLAUSIBLE}), 1)
    ]
    rows.append(records.measurement(status=Status.IMPLAUSIBLE, reason="too fast", samples_us=[1.0], **hostile))
    folder = records.write_records(root, rows)
    return folder, rows, write_report([folder], root / "out").index


def whole(index):
    """Give the source of all pages of a site."""
    return "\n".join(path.read_text() for path in sorted(index.parent.rglob("*.html")))


def words(index):
    """Give the text of all pages of a site."""
    return " ".join(text for path in sorted(index.parent.rglob("*.html")) for text in read(path).text)


def test_no_page_asks_for_anything_outside_the_site(report):
    index = report[2]
    pages = {path.relative_to(index.parent).as_posix() for path in index.parent.rglob("*.html")}
    assert pages == {
        "index.html",
        *(f"{SWEEP}/{name}.html" for name in ("index", "cases", "failures")),
    }
    for page in pages:
        path = index.parent / page
        assert not re.findall(r"https?://|url\(|@import|//cdn", path.read_text())
        for address in read(path).addresses:
            assert address.startswith(("data:", "#")) or (path.parent / address).is_file(), (page, address)
    reader = read(index.parent / SWEEP / "index.html")
    assert reader.tags.count("img") == 7
    first = read(index).tags
    assert first.count("img") == 1 and first.index("img") < first.index("table")
    assert len(list((index.parent / "figures").glob("*.csv"))) == 1 + 7


def test_the_library_of_charts_comes_with_its_licence(report):
    vendor = report[2].parent / "vendor"
    assert {path.name for path in vendor.iterdir()} == {"chart.umd.min.js", "LICENSE.md"}
    library = (vendor / "chart.umd.min.js").read_bytes()
    assert b"Released under the MIT License" in library[:200]
    assert len(library) < 250_000
    assert "MIT License" in (vendor / "LICENSE.md").read_text()


def test_the_landing_page_leads_to_its_sweep_and_names_the_fastest(report):
    index = report[2]
    text = index.read_text()
    assert len(text) < 60_000
    assert f'href="{SWEEP}/index.html"' in text
    winners = pd.read_csv(index.parent / "tables" / "test-gpu-winners.csv")
    cases = pd.read_csv(index.parent / "tables" / "test-gpu-cases.csv")
    problem = ["op", "dtype", "matrix", "width"]
    best = cases.sort_values("speedup", ascending=False).dropna(subset="speedup").drop_duplicates(problem)
    best = best.set_index(problem)
    assert len(winners) == len(best)
    for place in winners.to_dict("records"):
        fastest = best.loc[tuple(place[name] for name in problem)]
        assert (place["implementation"], place["speedup"]) == (fastest["label"], fastest["speedup"])
        assert f"{place['speedup']:#.3g}×" in text
        assert f'<td title="Second: {place["next"]}, {place["next_speedup"]:#.3g}×. {place["tried"]} impl' in text


def test_every_failure_stands_with_its_reason_escaped(report):
    _, rows, index = report
    failed = [row for row in rows if row.status is not Status.OK]
    table = pd.read_csv(index.parent / "tables" / "test-gpu-failures.csv", keep_default_na=False)
    assert sorted(table["case_id"]) == sorted(row.case_id for row in failed)
    assert sorted(table["reason"]) == sorted(row.reason for row in failed)
    html = (index.parent / SWEEP / "failures.html").read_text()
    assert html.count("<script>") == 1
    text = unescape(re.sub(r"<[^>]+>", "", html))
    for row in failed:
        assert row.case_id in text
        assert row.reason in text
    groups = pd.read_csv(index.parent / "tables" / "test-gpu-failure-groups.csv")
    assert groups["cases"].sum() == len(failed)
    assert f"{len(failed)} of {len(rows)} cases have no result" in whole(index)


@pytest.mark.full
def test_two_runs_give_the_same_bytes(report, tmp_path):
    folder, _, index = report
    again = write_report([folder], tmp_path / "again").index.parent
    files = sorted(path.relative_to(again) for path in again.rglob("*") if path.is_file())
    assert {path.suffix for path in files} == {".html", ".js", ".json", ".svg", ".csv", ".tex", ".md"}
    assert files == sorted(p.relative_to(index.parent) for p in index.parent.rglob("*") if p.is_file())
    for path in files:
        assert (again / path).read_bytes() == (index.parent / path).read_bytes(), path


@pytest.mark.full
def test_helpers_change_no_byte(records, searched_folder, tmp_path, monkeypatch):
    records.write_records(tmp_path / "records", records.sweep(), sweep_name="other")
    folders = [tmp_path / "records", searched_folder]
    alone = write_report(folders, tmp_path / "alone").index
    monkeypatch.setattr(site, "WORTH_HELPERS", 1)
    monkeypatch.setattr(site, "allowed_cores", lambda: [0, 1])
    helped = write_report(folders, tmp_path / "helped").index
    names = [sorted(path.relative_to(at.parent) for path in at.parent.rglob("*.*")) for at in (alone, helped)]
    assert names[0] == names[1]
    for name in names[0]:
        assert (alone.parent / name).read_bytes() == (helped.parent / name).read_bytes(), name


@pytest.mark.full
def test_further_forms_of_figures_are_made_where_they_are_asked_for(report, tmp_path):
    folder, _, index = report
    out = tmp_path / "out"
    for also in ({Form.NARROW}, {Form.PNG}, set()):
        page = write_report([folder], out, also=also).index
        figures = page.parent / "figures"
        wide = {path.stem for path in figures.glob("*.csv")}
        # A report without such files leaves none of an earlier report, whose numbers may be others.
        narrow = {f"{name}-narrow" for name in wide} if Form.NARROW in also else set()
        assert {path.stem for path in figures.glob("*.svg")} == wide | narrow
        assert {path.stem for path in figures.glob("*.png")} == (wide if Form.PNG in also else set())
        for text, form in ((">PNG</a>", Form.PNG), (">narrow</a>", Form.NARROW)):
            assert (text in whole(page)) is (form in also)
        links = {name for name in re.findall(r'href="[^"]*?figures/([^"]+)"', whole(page))}
        assert links and all((figures / name).is_file() for name in links)
    same = [path for path in index.parent.rglob("*") if path.is_file()]
    assert all(path.read_bytes() == (out / path.relative_to(index.parent)).read_bytes() for path in same)


def test_facts_of_the_machine_are_stated(report):
    text = " ".join(read(report[2]).text)
    for fact in ("580.1", "13.0", "cupy 14.0", "Some CPU", "0123abcd+", "4,000 GB/s", "cold L2", "cusparse_best"):
        assert fact in text


def test_csv_numbers_are_exact(report):
    _, rows, index = report
    cases = pd.read_csv(index.parent / "tables" / "test-gpu-cases.csv")
    timed = {
        (r.spec.op.value, r.spec.dtype.value, r.spec.matrix.id, r.spec.width, r.spec.label): r
        for r in rows
        if r.status is Status.OK
    }
    for case in cases[cases["status"] == "ok"].to_dict("records"):
        row = timed.pop((case["op"], case["dtype"], case["matrix"], case["width"], case["label"]))
        assert case["median_us"] == pd.Series(row.samples_us).median()
    assert not timed


def test_throttling_is_said(records, write, tmp_path):
    rows = [row.model_copy(update={"throttled": ["thermal"]}) for row in records.sweep()[:1]]
    assert "throttled (thermal)" in whole(write_report([write(rows)], tmp_path / "out").index)


@pytest.mark.full
@pytest.mark.parametrize("kind", [DeviceKind.CPU, DeviceKind.HOST_SIMT])
def test_pages_without_a_gpu_make_sense(records, write, tmp_path, kind):
    spec = records.device_spec("laptop", kind)
    names = ("scipy_cpu", "numba_cpu")
    rows = [
        row.model_copy(update={"device": spec.name, "device_kind": kind})
        for row in records.sweep(implementations=names, baseline="scipy_cpu")
    ]
    if kind is DeviceKind.HOST_SIMT:
        rows = [row.model_copy(update={"samples_us": [], "baseline": None}) for row in rows]
    index = write_report([write(rows, spec)], tmp_path / "out").index
    text = words(index)
    assert ("Speed-up over everything" in text) == (kind is DeviceKind.CPU)
    assert ("speed-ups over scipy_cpu" in text) == (kind is DeviceKind.CPU)
    assert ("Checked results" in text) == (kind is DeviceKind.HOST_SIMT)
    assert ("sanitizers" in text) == (kind is DeviceKind.HOST_SIMT)


@pytest.mark.full
def test_two_devices_get_a_section_each(records, write, tmp_path):
    cpu = records.device_spec("laptop", DeviceKind.CPU)
    changes = {"device": "laptop", "device_kind": DeviceKind.CPU}
    rows = records.sweep(implementations=("scipy_cpu", "numba_cpu"), baseline="scipy_cpu")
    folders = [write(records.sweep()), write([row.model_copy(update=changes) for row in rows], cpu)]
    index = write_report(folders, tmp_path / "out", baseline="cusparse_best").index
    for path in (index, index.parent / SWEEP / "index.html"):
        reader = read(path)
        assert [tag for tag in reader.tags if tag == "section"] == ["section"] * 2
        assert {"#laptop", "#test-gpu"} <= set(reader.addresses)
    assert "No record here is of the baseline cusparse_best: speed-ups are over scipy_cpu." in words(index)


@pytest.mark.full
def test_a_page_says_how_caches_were_emptied_where_it_is_not_the_default(records, tmp_path):
    rows = records.sweep(widths=(32,), samples=8)[:2]
    read_rows = [records.changed(row, flush=Flush.READ) for row in rows]
    said = "another as large as the cache is read"
    written, other = (records.write_records(tmp_path / name, of) for name, of in (("w", rows), ("r", read_rows)))
    for name, folders, shown in (("one", [written], False), ("two", [other], True), ("both", [written, other], False)):
        text = words(write_report(folders, tmp_path / "out" / name).index)
        assert (said in text) == shown
        assert ("or of another flush, are left out" in text) == (len(folders) == 2)


def test_nothing_and_nothing_but_failures_say_so(records, write, tmp_path):
    with pytest.raises(RecordError, match="expected records, found none; run a sweep first"):
        write_report([tmp_path], tmp_path / "empty")
    rows = [records.measurement(status=Status.BUILD_ERROR, width=width) for width in (1, 2)]
    failed = write_report([write(rows)], tmp_path / "failed").index
    assert "No case has a result" in whole(failed)
    assert not (failed.parent / "figures").exists()


def test_one_record_makes_a_page(records, write, tmp_path):
    (row, *_) = (row for row in records.sweep() if row.baseline)
    folder, usual = write([row]), {"overview-speedup-per-matrix", "speedup-per-matrix", "break-even"}
    for every, each in ((False, usual), (True, usual | {"roofline"})):
        index = write_report([folder], tmp_path / str(every), every=every).index
        names = {path.stem for path in (index.parent / "figures").glob("*.csv")}
        assert names == {f"test-gpu-{name}" for name in each}
    overall = pd.read_csv(index.parent / "tables" / "test-gpu-overall.csv")
    assert overall["common_cases"].tolist() == overall["own_cases"].tolist() == [1]


@pytest.mark.full
def test_two_gpus_are_never_in_one_mean(records, write, tmp_path):
    other = records.device_spec("other-gpu")
    rows = records.sweep(samples=8)
    folders = [write(rows), write([row.model_copy(update={"device": "other-gpu"}) for row in rows], other)]
    index = write_report(folders, tmp_path / "out").index
    one, two = (pd.read_csv(index.parent / "tables" / f"{name}-overall.csv") for name in ("test-gpu", "other-gpu"))
    assert one.equals(two)
    assert one["own_cases"].max() == 9
    assert {"#test-gpu", "#other-gpu"} <= set(read(index).addresses)


def test_a_page_that_is_no_longer_needed_goes(records, write, tmp_path):
    failed = records.measurement(status=Status.BUILD_ERROR)
    index = write_report([write([failed])], tmp_path / "out").index
    assert (index.parent / SWEEP / "failures.html").is_file()
    for own in ("notes.html", "sweeps/notes.html"):
        (index.parent / own).write_text("a person's")
    other = records.write_records(tmp_path / "other", [failed], sweep_name="other")
    write_report([other], tmp_path / "out")
    assert not (index.parent / SWEEP / "failures.html").exists()
    assert (index.parent / "sweeps" / "notes.html").is_file()
    assert (index.parent / "notes.html").is_file()


def test_a_paper_keeps_its_sweeps_or_says_that_there_are_none(records, tmp_path):
    rows = records.sweep(samples=8, widths=(32,))
    mine = records.write_records(tmp_path, rows, sweep_name="mine")
    others = records.sweep(samples=8, widths=(64,))
    other = records.write_records(tmp_path, others, sweep_name="other")
    text = write_report([mine, other], tmp_path / "a", paper=PaperPage("some", frozenset({"mine"}))).index.read_text()
    assert "<h1>spmark: some</h1>" in text
    assert "Left out, not being sweeps of some: other." in text
    text = write_report([other], tmp_path / "b", paper=PaperPage("some", frozenset({"mine"}))).index.read_text()
    assert "No record here is of a sweep of some (mine): all records are shown." in text


def test_an_unknown_baseline_and_an_unwritable_folder_are_errors(records, write, tmp_path):
    folder = write(records.sweep(widths=(32,), samples=8))
    with pytest.raises(RecordError, match=r"expected a baseline out of .*gespmm.*found 'nonsense'"):
        write_report([folder], tmp_path / "other", baseline="nonsense")
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match="the report cannot be written"):
        write_report([folder], tmp_path / "file")


def test_title_and_baseline_can_be_chosen(records, write, tmp_path):
    folder = write(records.sweep(widths=(32,), samples=8))
    text = whole(write_report([folder], tmp_path / "b", baseline="gespmm", title="Mine & <yours>").index)
    assert "<h1>Mine &amp; &lt;yours&gt;</h1>" in text
    assert "use the baseline&#39;s own record" in text


def test_the_short_table_sums_up(report):
    folder, rows, _ = report
    table = short_table(load_records([folder]))
    assert sum(row["ok"] + row["failed"] for row in table) == len(rows)
    assert {row["implementation"]: row["speedup"] for row in table}["cusparse_best"] == "baseline"
    searched = [row for row in table if row["implementation"] == "sparsetir"]
    assert all("1 timeout" in row["left_out"] and "×" in row["speedup"] for row in searched)
    assert short_table(load_records([folder]).iloc[:0]) == []


def test_the_page_says_what_else_the_host_did(records, write, tmp_path):
    rows = [
        records.measurement(samples_us=[10.0] * 30, free_cores=9.5),
        records.measurement(label="calm", samples_us=[10.0] * 30, free_cores=15.9),
        records.measurement(label="old", samples_us=[10.0] * 30),
    ]
    index = write_report([write(rows)], tmp_path / "out").index
    text = whole(index)
    assert "at most 6.5 of the host&#39;s cores, in 2 cases that tell" in text
    for page in (index, index.parent / SWEEP / "index.html"):
        assert "Times of 1 of 3 cases may be off: 1 ran on a busy machine." in words(page)


def test_the_page_holds_what_searches_saw(searched_folder, tmp_path):
    write_report([searched_folder], tmp_path / "site")
    for name in ("choices", "agreement"):
        assert (tmp_path / "site" / "tables" / f"test-gpu-{name}.csv").is_file()
    assert (tmp_path / "site" / "figures" / "test-gpu-predicted-times.svg").is_file()


@pytest.mark.full
def test_a_case_of_two_sweeps_stands_on_both_pages(records, tmp_path):
    rows = records.sweep(widths=(32,), samples=8)
    folders = [records.write_records(tmp_path, rows, sweep_name=name) for name in ("mine", "yours")]
    index = write_report(folders, tmp_path / "out").index
    for name in ("mine", "yours"):
        cases = pd.read_csv(index.parent / "tables" / f"test-gpu-{name}-cases.csv")
        assert len(cases) == len(rows)
        assert (index.parent / "sweeps" / name / "index.html").is_file()
    assert len(pd.read_csv(index.parent / "tables" / "test-gpu-winners.csv")) == 3
    assert "rows of older versions" not in whole(index)


def test_what_a_packaged_sweep_says_stands_on_its_page(records, write, tmp_path):
    rows = records.sweep(widths=(32,), samples=8)
    labels = dict.fromkeys([*(row.case_id for row in rows), "spmm/never/run"], "any")
    listed = {"graphs_spmm": ListedSweep("Graphs & more", "What `<this>` is.", labels)}
    index = write_report([write(rows)], tmp_path / "out", listed=listed.get).index
    page = (index.parent / SWEEP / "index.html").read_text()
    assert "<h1>Graphs &amp; more</h1>" in page
    assert "What <code>&lt;this&gt;</code> is." in page
    for text in (page, index.read_text()):
        assert "9 of 10" in text
    assert "gespmm v1" in index.read_text()


def test_cases_that_other_sweeps_have_records_of_stand_on_the_page_and_are_counted_apart(records, tmp_path):
    rows = records.sweep(widths=(32,), samples=8)
    half = len(rows) // 2
    not_listed = records.sweep(widths=(64,), samples=8)
    folders = [
        records.write_records(tmp_path, part, sweep_name=name)
        for name, part in (("mine", rows[:half]), ("yours", [*rows[half:], *not_listed]))
    ]
    names = {"sparsetir": "sparsetir_extended"}
    labels = {row.case_id: names.get(name := row.spec.implementation, f"my {name}") for row in rows}
    labels |= {"spmm/never/run": "never"}
    index = write_report(folders, tmp_path / "out", listed={"mine": ListedSweep("Mine", "", labels)}.get).index
    told = f"{half} of {len(rows) + 1} here and {len(rows) - half} with other sweeps"
    page = (index.parent / "sweeps" / "mine" / "index.html").read_text()
    assert told in index.read_text()
    assert told in page
    assert f"{len(rows) - half} of these cases were measured with other sweeps that list them: yours (" in page
    shown = pd.read_csv(index.parent / "tables" / "test-gpu-mine-cases.csv")
    assert len(shown) == len(rows)
    lent = [labels[row.case_id] for row in rows[half:]]
    assert "sparsetir_extended" in lent
    expected = [row.spec.label for row in rows[:half]]
    expected += ["sparsetir" if label == "sparsetir_extended" else label for label in lent]
    assert sorted(shown["label"]) == sorted(expected)
    assert len(pd.read_csv(index.parent / "tables" / "test-gpu-yours-cases.csv")) == len(rows) - half + len(not_listed)


def test_a_sweep_of_refusals_has_the_baseline_of_records_that_others_lend(records, tmp_path):
    rows = records.sweep(widths=(32,), samples=8)
    refused = records.measurement(implementation="numba_cpu", status=Status.UNSUPPORTED)
    folders = [
        records.write_records(tmp_path, part, sweep_name=name) for name, part in (("mine", [refused]), ("yours", rows))
    ]
    listed = {"mine": ListedSweep("Mine", "", {row.case_id: row.spec.label for row in [refused, *rows]})}
    index = write_report(folders, tmp_path / "out", listed=listed.get).index
    assert "No record names a baseline" not in (index.parent / "sweeps" / "mine" / "index.html").read_text()
    assert pd.read_csv(index.parent / "tables" / "test-gpu-mine-cases.csv")["speedup"].notna().sum() > 0


@pytest.mark.full
def test_a_sweep_takes_no_records_of_another_protocol_from_others(records, tmp_path):
    rows = records.sweep(widths=(32,), samples=8)
    older = [records.changed(row, protocol_version=PROTOCOL_VERSION - 1) for row in rows[4:]]
    folders = [
        records.write_records(tmp_path, part, sweep_name=name) for name, part in (("mine", rows[:4]), ("yours", older))
    ]
    listed = {"mine": ListedSweep("Mine", "", {row.case_id: row.spec.label for row in rows})}
    index = write_report(folders, tmp_path / "out", listed=listed.get).index
    assert len(pd.read_csv(index.parent / "tables" / "test-gpu-mine-cases.csv")) == 4
    assert "measured with other sweeps" not in (index.parent / "sweeps" / "mine" / "index.html").read_text()


@pytest.mark.full
def test_no_page_has_a_megabyte_and_no_row_is_lost(records, tmp_path):
    reason = "a reason of some length, with <markup> & more " * 120
    rows = [
        records.measurement(status=Status.TIMEOUT, reason=f"{reason}{width}", width=width) for width in range(1, 300)
    ]
    index = write_report([records.write_records(tmp_path, rows)], tmp_path / "out").index
    pages = sorted(index.parent.rglob("*.html"))
    assert max(path.stat().st_size for path in pages) < 1_000_000
    of_failures = [path for path in pages if path.name.startswith("failures")]
    assert len(of_failures) > 1
    text = "".join(path.read_text() for path in of_failures)
    assert all(f"{row.case_id}<" in text for row in rows)
    assert "Rows 1 to " in text
    assert 'href="../../sweeps/graphs_spmm/failures-2.html"' in text


def test_records_that_answer_no_claim_have_no_scorecard(records, write, tmp_path):
    spec = records.device_spec("laptop", DeviceKind.CPU)
    rows = [
        row.model_copy(update={"device": spec.name, "device_kind": DeviceKind.CPU})
        for row in records.sweep(implementations=("scipy_cpu", "numba_cpu"), baseline="scipy_cpu")
    ]
    index = write_report([write(rows, spec)], tmp_path / "out").index
    assert not (index.parent / "scorecard.html").exists()
    assert "not run" not in whole(index)
