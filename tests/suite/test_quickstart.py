from __future__ import annotations

import pytest
from typer.testing import CliRunner

import spmark.report.site.site  # noqa: F401 - before the fakes: pydantic looks through all modules, and one of them raises
from spmark.impls.runtime import device
from spmark.suite.cli import main as cli
from spmark.suite.cli import run as quickstart
from spmark.suite.cli import run as run_command
from spmark.suite.run import execute

SWEEP = """
schema: 1
name: tiny
ops: [spmm]
matrices: [{source: patterns, name: band_64}]
widths: [32]
implementations: [fake]
"""


@pytest.fixture
def invoke(fakes, monkeypatch, tmp_path):
    """Run the command on the fake device with a tiny sweep for the packaged one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(device, "find", lambda name: fakes.CPU)
    monkeypatch.setattr(execute, "calibrated", lambda spec: spec)
    (tmp_path / "tiny.yaml").write_text(SWEEP)
    monkeypatch.setattr(quickstart, "SWEEP", str(tmp_path / "tiny.yaml"))
    return lambda *arguments: CliRunner().invoke(cli.app, ["quickstart", *arguments], catch_exceptions=False)


def test_it_leaves_records_and_a_page(invoke, tmp_path):
    ended = invoke()
    assert ended.exit_code == 0, ended.output
    assert (tmp_path / "out" / "quickstart" / "results" / "tiny" / "fake-cpu" / "records.jsonl").is_file()
    assert "fake-cpu" in (tmp_path / "out" / "quickstart" / "index.html").read_text()
    assert ended.output.strip().endswith("out/quickstart/index.html")
    assert ended.output.count(".html") == 1, "one place to look at"


def test_a_run_that_was_interrupted_has_no_page_and_is_code_130(invoke, monkeypatch, tmp_path):
    monkeypatch.setattr(quickstart, "run_sweep", lambda *a, **k: run_command.Ended(interrupted=True))
    assert invoke("--out", "here").exit_code == 130
    assert not (tmp_path / "here").exists()
