"""Records over two versions of the sparse library: the faster baseline of each case counts, each stands beside it."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from spmark.records.rowfile import RecordFile
from spmark.records.schema import Baseline, EnvironmentRow
from spmark.report.analysis.cases import derive
from spmark.report.analysis.means import mean_speedups
from spmark.report.records import current, load_records
from spmark.report.site.site import write_report
from spmark.report.tables.table import of_libraries

OLD, NEW = "12.6.3.3", "12.9.4.2"
BESIDE = {OLD: {"a": 20.0, "b": 10.0, "c": 30.0}, NEW: {"a": 10.0, "b": 16.0}}
"""Times of the baseline by version and matrix: the new one is faster on a, slower on b, and has not run c."""


@pytest.fixture
def folder(records, tmp_path: Path) -> Path:
    """Write gespmm, which takes 5 us on every matrix, with the old version first."""
    place = tmp_path / "results" / "graphs_spmm" / "test-gpu"
    for hour, (version, times) in enumerate(BESIDE.items()):
        facts = records.environment_of(records.device_spec())
        facts = facts.model_copy(update={"packages": facts.packages | {"nvidia-cusparse": version}})
        with RecordFile(place / "environments.jsonl") as file:
            file.append(EnvironmentRow(digest=facts.digest, environment=facts))
        with RecordFile(place / "records.jsonl") as file:
            for matrix, beside_us in times.items():
                beside = Baseline(implementation="cusparse_best", config={}, samples_us=[beside_us] * 8)
                row = records.measurement(matrix=matrix, samples_us=[5.0] * 8, baseline=beside)
                started = records.START.replace(hour=hour)
                file.append(row.model_copy(update={"environment": facts.digest, "started_at": started}))
    return place


def speedups(frame) -> dict[tuple[str, str], float]:
    derived = derive(frame.reset_index(drop=True), "cusparse_best")
    return {(row.matrix, row.library): row.speedup for row in derived.itertuples()}


def test_a_case_is_over_the_faster_version(folder):
    frame = load_records([folder])
    assert len(frame) == 5
    assert speedups(current(frame)) == {("ogb/a", NEW): 2.0, ("ogb/b", OLD): 2.0, ("ogb/c", OLD): 6.0}
    assert speedups(current(frame[frame["library"] == OLD])) == {
        ("ogb/a", OLD): 4.0, ("ogb/b", OLD): 2.0, ("ogb/c", OLD): 6.0,
    }  # fmt: skip


def test_the_newest_counts_where_no_version_is_known_or_nothing_was_beside(folder):
    frame = load_records([folder])
    unknown = frame.assign(library="")
    assert set(current(unknown)["environment"]) == set(frame["environment"])
    assert len(current(unknown)) == 3
    assert len(current(frame.assign(beside_us=float("nan")))) == 3


@pytest.mark.parametrize(("beside", "source"), [([], "record"), ([7.0] * 8, "common")])
def test_the_baselines_record_of_another_version_is_none(folder, beside, source):
    samples = pd.Series([np.array(beside)] * 2)
    old, new = (row for _, row in load_records([folder]).query("matrix == 'ogb/a'").iterrows())
    for row, found in ((old, source), (new, "")):
        own = pd.Series(dict(row) | {"implementation": "cusparse_best", "label": "cusparse_best"})
        frame = pd.DataFrame([old, own]).reset_index(drop=True)
        derived = derive(frame.assign(baseline_implementation="dgl", baseline_samples_us=samples), "cusparse_best")
        assert derived["speedup_from"].tolist() == [found, "itself"]


def test_a_page_says_both_and_has_the_means_over_each(folder, tmp_path):
    index = write_report([folder], tmp_path / "out").index
    pages = [path.read_text() for path in index.parent.rglob("*.html")]
    told = of_libraries(load_records([folder]))
    assert told.startswith(f"Records are of nvidia-cusparse {OLD} (3) and {NEW} (2): ")
    assert any(told in page for page in pages)
    assert not any("of another flush, are left out" in page for page in pages)
    (table,) = index.parent.rglob("*libraries.csv")
    rows = {row["library"]: row for row in csv.DictReader(table.open())}
    means = {name: (round(float(row["speedup"]), 3), int(row["cases"])) for name, row in rows.items()}
    assert means == {
        "the faster of each case": (round(24 ** (1 / 3), 3), 3), OLD: (round(48 ** (1 / 3), 3), 3),
        NEW: (round((2 * 3.2) ** 0.5, 3), 2),
    }  # fmt: skip


def test_one_version_needs_no_words(folder):
    frame = load_records([folder])
    assert of_libraries(frame[frame["library"] == NEW]) == ""
    derived = derive(current(frame).reset_index(drop=True), "cusparse_best")
    assert mean_speedups(derived)["cases"].tolist() == [3]
