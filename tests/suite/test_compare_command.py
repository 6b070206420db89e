"""``spmark compare`` and ``spmark study spread --fit``: exit codes, what is shown, and JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spmark.impls.core.errors import RecordError
from spmark.records.rowfile import RecordFile, read_rows
from spmark.records.schema import EnvironmentRow, Measurement
from spmark.suite.cli import main as cli

AA = Path(__file__).parents[2] / "report" / "reference" / "aa" / "nvidia-h200" / "graphs_spmm"
CASE = "spmm/ogb/ogbn-arxiv/J128/float32/gespmm/seed0"


@pytest.fixture(scope="module")
def runs():
    """Give the published repeated runs of an H200, as lists of records, and their environment."""
    (environment,) = read_rows(AA / "environments.jsonl", EnvironmentRow)
    by_case: dict[str, list[Measurement]] = {}
    for row in read_rows(AA / "records.jsonl.gz", Measurement):
        by_case.setdefault(row.case_id, []).append(row)
    return list(zip(*by_case.values(), strict=True)), environment


@pytest.fixture
def folder(runs, tmp_path):
    """Write one run as a folder of records; one case may be slower, the driver another."""

    def folder(number, factor=1.0, driver=None):
        rows, entry = runs[0][number], runs[1]
        facts = entry.environment if driver is None else entry.environment.model_copy(update={"driver": driver})
        path = tmp_path / f"run{number}"
        with RecordFile(path / "environments.jsonl") as file:
            file.append(EnvironmentRow(digest=entry.digest, environment=facts))
        slow = [
            row.model_copy(update={"samples_us": [factor * sample for sample in row.samples_us]})
            if row.case_id == CASE
            else row
            for row in rows
        ]
        with RecordFile(path / "records.jsonl") as file:
            file.append_all(slow)
        return path

    return folder


def invoke(*arguments):
    return CliRunner(env={"COLUMNS": "160"}).invoke(cli.app, [*map(str, arguments)])


def test_the_same_code_exits_with_0_and_says_what_it_would_have_seen(folder):
    ended = invoke("compare", folder(0), folder(1))
    assert ended.exit_code == 0, ended.output
    assert "0 regressions" in ended.output
    assert "of 50 cases, 20 times each, on nvidia-h200" in ended.output
    assert "threshold" in ended.output


@pytest.mark.full
def test_a_planted_tenth_exits_with_1_and_names_the_case(folder):
    ended = invoke("compare", folder(0), folder(1, factor=1.1), "--json")
    assert ended.exit_code == 1
    found = json.loads(ended.stdout)
    assert found["regressions"] == 1
    (change,) = [c for c in found["changes"] if c["verdict"] == "regressed" and c["quantity"] == "time"]
    assert change["case_id"] == CASE
    assert change["ratio"]["low"] < 1.1 < change["ratio"]["high"]
    assert change["threshold"] < 0.1
    shown = invoke("compare", folder(2), folder(3, factor=1.1))
    assert "1 regressions" in shown.output
    assert "regressed" in shown.output
    (row,) = (
        line for line in shown.output.splitlines() if "regressed" in line and CASE[:10] in line and " time " in line
    )
    assert row.count(" us") == 2


def test_another_driver_is_refused_and_across_compares_speedups(folder):
    before, after = folder(0), folder(1, factor=1.1, driver="999.1")
    refused = invoke("compare", before, after)
    assert isinstance(refused.exception, RecordError)
    assert "--across" in str(refused.exception)
    across = invoke("compare", before, after, "--across", "--json")
    assert across.exit_code == 1
    found = json.loads(across.stdout)
    assert {change["quantity"] for change in found["changes"]} == {"speedup"}
    assert any(line.startswith("driver: 580") for line in found["differences"])


@pytest.mark.full
def test_a_fitted_spread_is_taken_and_one_of_another_device_is_refused(folder, tmp_path):
    model = tmp_path / "spread.json"
    ended = invoke("study", "spread", AA, "--fit", model)
    assert ended.exit_code == 0, ended.output
    assert "jitter_us" in ended.output
    before, after = folder(0), folder(1)
    data = json.loads(model.read_text())
    data["trends"]["time"]["floor"] = 0.5
    model.write_text(json.dumps(data))
    wide = json.loads(invoke("compare", before, after, "--threshold-from", model, "--json").stdout)
    assert min(c["threshold"] for c in wide["changes"] if c["quantity"] == "time") > 0.5
    model.write_text(json.dumps(data | {"device": "other"}))
    refused = invoke("compare", before, after, "--threshold-from", model)
    assert isinstance(refused.exception, RecordError)
    assert "expected repeated runs on nvidia-h200, found other" in str(refused.exception)
