"""A page of records whose candidates are published apart says so by name, with the command that brings them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest
from candidate_records import write_manifest

from spmark.records.schema import SearchFacts
from spmark.report.site.site import write_report

COMMAND = "spmark fetch candidates"


@pytest.fixture
def results(records, searched_folder: Path) -> Path:
    """Give two sweeps' records, of which a manifest says that both had candidates; only one has."""
    root = searched_folder.parents[1]
    records.write_records(root.parent, records.sweep(widths=(32,), samples=8), sweep_name="without")
    file = {"bytes": 1, "sha256": "0" * 64}
    names = sorted(f"{name}/{searched_folder.name}/candidates.jsonl.gz" for name in ("graphs_spmm", "without"))
    return write_manifest(root, files=[{"path": name, **file} for name in names])


def texts(index: Path) -> Iterator[tuple[str, str]]:
    """Give the pages that name the command, by sweep, with their text."""
    for page in sorted(index.parent.rglob("*.html")):
        if COMMAND in (text := unescape(re.sub(r"<[^>]+>", "", page.read_text()))):
            yield page.parent.name, text


@pytest.mark.full
def test_pages_without_candidates_say_so(results: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    index = write_report([results], tmp_path / "site").index
    told = dict(texts(index))
    assert told.keys() == {"site", "without"}, "the landing page, and the sweep's own"
    assert "This is so of without." in told["site"]
    assert "Tables and figures of choices and of predicted times are left out" in told["without"]
    # What a reader need not know at once is folded, and names of commands are set as code.
    landing = index.read_text()
    assert re.search(r'<details class="notice"><summary>[^\n]*<code>spmark fetch candidates</code>', landing)
    assert "`" not in landing.partition("<script>")[0]
    assert "expected candidates.jsonl, which" in caplog.text
    assert COMMAND in caplog.text
    assert list((tmp_path / "site" / "figures").glob("*predicted-times.svg")), "the other sweep has its own"


def test_a_sweep_that_shares_searches_with_one_without_candidates_says_so(records, tmp_path: Path) -> None:
    facts = SearchFacts(candidates=4, compiled=2, measured=2, cores=1)
    rows = [
        records.measurement(matrix="a", search=facts, samples_us=[9.0]),
        records.measurement(matrix="b", samples_us=[9.0]),
    ]
    for name in ("shared", "without"):
        place = records.write_records(tmp_path, rows, sweep_name=name)
    file = {"path": f"without/{place.name}/candidates.jsonl.gz", "bytes": 1, "sha256": "0" * 64}
    write_manifest(tmp_path / "results", files=[file])
    told = dict(texts(write_report([tmp_path / "results"], tmp_path / "site").index))
    assert told.keys() == {"site", "shared", "without"}
    assert "Searches of 1 of these cases also ran in sweeps" in told["shared"]


@pytest.mark.full
def test_records_of_no_manifest_say_nothing(results: Path, tmp_path: Path) -> None:
    (results / "candidates.json").unlink()
    assert not dict(texts(write_report([results], tmp_path / "site").index))
