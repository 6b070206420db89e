"""Records with numbers that no run gives: passed over with a message, and kept in their file."""

from __future__ import annotations

import json
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest

from spmark.records.plausible import implausible, read_candidates, read_measurements
from spmark.records.rowfile import read_rows
from spmark.records.schema import CandidateRow, Measurement

FACTS: dict[str, Any] = {
    "op": "spmm", "matrix": "cora", "source": "planetoid", "seed": 0, "width": 32, "dtype": "float32", "device": "d",
    "device_kind": "cpu", "implementation": "i", "label": "i", "implementation_version": "v", "status": "ok",
    "case_id": "case", "samples_us": [1.0, 2.0],
}  # fmt: skip
SIZES = {"num_rows": 1, "num_cols": 1, "nnz": 1, "longest_row": 1, "flops": 1, "compulsory_bytes": 1}
ODD: list[dict[str, Any]] = [
    *({"samples_us": [1.0, us]} for us in (0.0, -1.0, nan, inf, 5e-324, 1e308)),
    {"warm_samples_us": [0.0]},
    {"graph_samples_us": [nan]},
    {"baseline": {"implementation": "b", "config": {}, "samples_us": [0.0]}},
    {"phases_s": {"search": nan}},
    {"phases_s": {"search": -1.0}},
    {"clocks_mhz": [inf]},
    {"stored": -1},
    {"device_bytes": -1},
    {"width": 0},
    {"problem": SIZES | {"nnz": -1}},
]


def lines(rows) -> str:
    return "".join(row.model_dump_json() + "\n" for row in rows)


def raw(change: dict[str, Any]) -> str:
    """Give a line as a hand or another tool writes it: with NaN and Infinity."""
    return json.dumps(FACTS | change) + "\n"


@pytest.mark.parametrize("change", ODD)
def test_odd_numbers_are_passed_over_and_kept(change, tmp_path: Path, caplog):
    path = tmp_path / "records.jsonl"
    text = raw({"case_id": "first"}) + raw(change | {"case_id": "odd"}) + raw({"case_id": "last"})
    path.write_text(text)
    assert [row.case_id for row in read_measurements(path)] == ["first", "last"]
    assert "records.jsonl: passed over a record of odd: expected" in caplog.text
    assert path.read_text() == text
    assert len(list(read_rows(path, Measurement))) == 3, "resuming counts it"


def test_published_records_are_plausible():
    paths = sorted((Path(__file__).parents[2] / "report" / "reference").rglob("records.jsonl*"))
    assert len(paths) > 30
    for path in paths:
        assert not [row.case_id for row in read_rows(path, Measurement) if implausible(row)], path


@pytest.mark.parametrize(("samples", "predicted"), [([0.0], 1.0), ([nan], None), ([1.0], nan), ([1.0], inf)])
def test_odd_candidates_are_passed_over(samples, predicted, tmp_path: Path, caplog):
    good = CandidateRow(case_id="c", implementation_version="v", environment="e", config={}, samples_us=[1.0])
    path = tmp_path / "candidates.jsonl"
    odd = good.model_dump() | {"samples_us": samples, "predicted": predicted, "case_id": "odd"}
    path.write_text(lines([good]) + json.dumps(odd) + "\n")
    assert [row.case_id for row in read_candidates(path)] == ["c"]
    assert "passed over a candidate of odd" in caplog.text
