from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import spmark.report.site.site  # noqa: F401 - before the fakes: pydantic looks through all modules, and one of them raises
from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.errors import SweepError
from spmark.impls.runtime import device
from spmark.records.rowfile import read_rows
from spmark.suite.cli import main as cli
from spmark.suite.cli import reproduce as command
from spmark.suite.plan import papers as reproduce
from spmark.suite.run import execute
from spmark.suite.run.provenance import RunRow

PAPERS = ("dash", "liteform", "lo_spmm", "sparsetir", "stile")
SWEEP = """
schema: 1
name: {name}
ops: [spmm]
matrices: [{{source: patterns, name: a}}, {{source: patterns, name: b}}]
widths: [32, 64]
implementations: [scipy_cpu]
"""
PAPER = """
schema: 1
name: {name}
title: A paper
citation: Someone, 2026
needs: [{needs}]
beside: [fake_gpu, not_yet]
steps:
  - {{sweep: {sweep}, only: ["width=64"], shows: the wide ones}}
  - {{sweep: {sweep}, shows: all of it}}
"""


@pytest.fixture
def paper(fakes, monkeypatch, tmp_path):
    """Give a function that writes a paper's file; it runs on the fake device with the fake bench."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPMARK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(device, "find", lambda name: fakes.CPU)
    for module in (device, execute):
        monkeypatch.setattr(module, "calibrated", lambda spec: spec)

    def write(name="toy", needs="fake"):
        sweep = tmp_path / f"{name}_sweep.yaml"
        sweep.write_text(SWEEP.format(name=f"{name}_sweep"))
        path = tmp_path / f"{name}.yaml"
        path.write_text(PAPER.format(name=name, needs=needs, sweep=sweep))
        return path

    return write


def invoke(*arguments):
    return CliRunner().invoke(cli.app, ["reproduce", *map(str, arguments)], catch_exceptions=False)


def measured(tmp_path):
    log = tmp_path / "measured.log"
    return [line.split()[0] for line in log.read_text().splitlines()] if log.exists() else []


def test_the_five_papers_ship():
    assert tuple(reproduce.packaged_papers()) == PAPERS
    assert [paper.name for paper in reproduce.read_papers("all")] == list(PAPERS)


@pytest.mark.parametrize("name", PAPERS)
@pytest.mark.parametrize("kind", [DeviceKind.CUDA, DeviceKind.CPU])
def test_every_step_of_a_paper_adds_cases(name, kind):
    (paper,) = reproduce.read_papers(name)
    seen: set[str] = set()
    for found in reproduce.steps(paper, kind):
        ids = {case.case_id for case in found.chosen.cases}
        assert ids - seen, f"{name}: {found.step.shows}: every case is in a step before it"
        ran = {case.implementation for case in found.chosen.cases}
        if found.step.as_listed:
            assert set(paper.needs) & ran
            assert any(case.label != case.implementation for case in found.chosen.cases), (
                "no variants: the paper's would do"
            )
        else:
            assert ran == set(paper.implementations)
        seen |= ids


@pytest.mark.parametrize("name", PAPERS)
def test_a_paper_whose_implementation_is_not_there_is_named_and_is_code_3(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(reproduce.IMPLEMENTATIONS, name, raising=False)
    ended = invoke(name, "--budget", "1s", "--device", "cpu")
    assert ended.exit_code == 3
    assert f"{name} cannot run here: its implementation {name} does not exist yet" in ended.stderr
    assert "spmark doctor says what is missing" in ended.stderr
    assert not list(tmp_path.iterdir()), "nothing was measured, calibrated or drawn"


@pytest.mark.full
def test_the_paper_runs_and_its_page_is_drawn(paper, tmp_path):
    ended = invoke(paper(), "--json")
    answer = json.loads(ended.stdout)
    assert ended.exit_code == 0, ended.stderr
    assert [(row["shows"], row["cases"], row["ok"], row["no result"], row["left"]) for row in answer["steps"]] == [
        ("the wide ones", 4, 2, 2, 0),
        ("all of it", 8, 4, 4, 0),
    ]
    assert [case.split("/")[3] for case in measured(tmp_path)] == ["J64", "J64", "J32", "J32"]
    runs = list(read_rows(tmp_path / "results" / "toy_sweep" / "fake-cpu" / "runs.jsonl", RunRow))
    assert [run.cases for run in runs] == [4, 4], "each step is a run of its own"
    assert [one["name"] for one in runs[0].sweep["implementations"]] == ["fake", "fake_gpu"]
    assert "A paper" in Path(answer["pages"]["toy"]).read_text()
    assert "without what does not exist yet: not_yet" in ended.stderr


def test_no_step_begins_after_the_budget(paper, monkeypatch, tmp_path):
    monkeypatch.setattr(command, "seconds", lambda budget: -1.0)
    ended = invoke(paper())
    assert ended.exit_code == 0
    assert not measured(tmp_path)
    assert not (tmp_path / "results").exists(), "nor is a page drawn of nothing"


@pytest.mark.full
def test_what_run_has_measured_counts(paper, tmp_path):
    invoke(paper("one"))
    before = len(measured(tmp_path))
    other = paper("two")
    other.write_text(other.read_text().replace("two_sweep", "one_sweep"))
    assert invoke(other).exit_code == 0
    assert len(measured(tmp_path)) == before == 4


@pytest.mark.full
def test_of_all_papers_the_others_run_in_turns(paper, monkeypatch, tmp_path):
    made = {name: paper(name, needs) for name, needs in (("one", "fake"), ("two", "nope"), ("three", "fake"))}
    monkeypatch.setattr(reproduce, "packaged_papers", lambda: made)
    ended = invoke("all", "--json")
    answer = json.loads(ended.stdout)
    assert ended.exit_code == 3, "two could not run"
    assert list(answer["missing"]) == ["two"]
    steps = [(row["paper"], row["shows"]) for row in answer["steps"]]
    assert steps == [("one", "the wide ones"), ("three", "the wide ones"), ("one", "all of it"), ("three", "all of it")]
    assert set(answer["pages"]) == {"one", "three"}


def test_a_dry_run_shows_the_steps_and_writes_nothing(paper, tmp_path):
    ended = invoke(paper(), "--dry-run", "--json")
    assert [row["left"] for row in json.loads(ended.stdout)["steps"]] == [4, 8]
    assert not (tmp_path / "results").exists()
    assert not (tmp_path / "cache").exists()


def test_an_interrupted_run_is_code_130(paper, monkeypatch):
    def interrupted(*arguments, **named):
        return execute.Summary(Path("r"), (), skipped=0, left=3, interrupted=True, seconds=0.1, cores=2)

    monkeypatch.setattr(command, "execute", interrupted)
    assert invoke(paper()).exit_code == 130


@pytest.mark.parametrize(
    ("budget", "wanted"), [("90s", 90), ("30m", 1800), ("2h", 7200), ("1h30m", 5400), (" 1.5M ", 90), ("1h1s", 3601)]
)
def test_a_budget_is_a_time(budget, wanted):
    assert reproduce.seconds(budget) == wanted


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "Paper"),
        ("a: [", "YAML"),
        (PAPER.format(name="x", needs="", sweep="s"), "needs"),
        (PAPER.format(name="x", needs="fake", sweep="s") + "colour: red\n", "colour"),
    ],
)
def test_a_file_that_is_no_paper_is_refused(text, words, tmp_path):
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(SweepError, match=words):
        reproduce.read_papers(str(tmp_path / "x.yaml"))
