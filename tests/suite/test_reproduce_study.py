"""The study within ``spmark reproduce``: what is collected and trained, what stops it, and the page that it fills."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import moved_fakes
import pytest
import typer
from typer.testing import CliRunner

import spmark.report.site.site  # noqa: F401 - before the fakes: pydantic looks through all modules, and one of them raises
from spmark.datasets.sweep.model import Sweep
from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.errors import DatasetError
from spmark.impls.runtime import device
from spmark.suite.cli import main as cli
from spmark.suite.cluster import clusters
from spmark.suite.plan.papers import read_papers, seconds
from spmark.suite.run import execute
from spmark.suite.study import transfer
from spmark.suite.study.label import parsed_shard

SWEEP = """
schema: 1
name: toy_sweep
ops: [spmm]
matrices: [{source: patterns, name: a}]
widths: [32]
implementations: [scipy_cpu]
"""
PAPER = """
schema: 1
name: dash
title: A paper
citation: Someone, 2026
needs: [fake]
beside: [fake_gpu]
steps:
  - {{sweep: {sweep}, shows: all of it}}
study:
  method: mover
  source: cpu
  targets: [spade_sim, cuda]
  pretraining: {{sweep: much, shard: 1/9}}
  fine_tuning: {{sweep: few}}
  evaluation: {{sweep: judges, shard: 2/3}}
  ops: [spmm]
  configs: 20
  source_matrices: 8
  target_matrices: 5
  seeds: 1
  epochs: 3
"""


class Log:
    """Stands for collecting and training, and keeps what was asked."""

    def __init__(self) -> None:
        self.collected: list[Any] = []
        self.studied: list[Any] = []
        self.left: dict[str, int] = {}
        self.fails = False

    def collect(self, platform: str, sweep: str, overrides: tuple[str, ...], **options: Any) -> int:
        """Print a line as the command does."""
        typer.echo(f"collected {platform}")
        self.collected.append(Request(platform=platform, sweep=sweep, overrides=overrides, **options))
        return self.left.get(platform, 0)

    def study(self, request: Any) -> int:
        """Write facts, or fail."""
        if self.fails:
            raise DatasetError("expected 8 matrices, found 3")
        self.studied.append(request)
        (name,) = (path.name for path in request.target)
        moved_fakes.write(request.out, list(moved_fakes.results({"dash": (0.9, 8, 5)}, target=name, seeds=(0,))))
        return 0


@pytest.fixture
def asked(fakes: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Log:
    """Replace the device, the bench, collecting and training."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPMARK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(device, "find", lambda name: fakes.CPU)
    monkeypatch.setattr(device, "calibrated", lambda spec: spec)
    monkeypatch.setattr(execute, "calibrated", lambda spec: spec)
    log = Log()
    monkeypatch.setattr(transfer, "collect_samples", log.collect)
    monkeypatch.setattr(transfer, "StudyRequest", Request, raising=False)
    monkeypatch.setattr(transfer, "study_transfer", log.study, raising=False)
    return log


class Request:
    """Keeps its arguments."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


@pytest.fixture
def reproduce(tmp_path: Path) -> Callable[..., Any]:
    def run(*arguments: str) -> Any:
        (tmp_path / "toy_sweep.yaml").write_text(SWEEP)
        path = tmp_path / "dash.yaml"
        path.write_text(PAPER.format(sweep=tmp_path / "toy_sweep.yaml"))
        return CliRunner().invoke(cli.app, ["reproduce", str(path), *arguments], catch_exceptions=False)

    return run


@pytest.mark.full
def test_a_machine_without_a_gpu_studies_what_is_simulated(asked: Log, reproduce: Callable[..., Any]) -> None:
    ended = reproduce("--json", "--budget", "20m")
    assert ended.exit_code == 0, ended.stderr
    answer = json.loads(ended.stdout)
    assert [(one["target"], one["left"], one["why"]) for one in answer["studies"]] == [("spade_sim", 0, "")]
    assert [(r.platform, r.sweep, r.shard, r.configs, r.out.name) for r in asked.collected] == [
        ("cpu", "much", "1/9", 20, "source"),
        ("spade_sim", "few", "1/1", 20, "target"),
        ("spade_sim", "judges", "2/3", 20, "evaluation"),
    ]
    assert {r.overrides for r in asked.collected} == {('ops=["spmm"]',)}
    (request,) = asked.studied
    assert (request.method, request.source_matrices, request.target_matrices) == ("mover", 8, 5)
    assert request.source[0].parts[-2:] == ("source", "cpu")
    assert request.evaluation[0].parts[-2:] == ("evaluation", "spade_sim")
    assert 500 < seconds(request.budget) <= 600, "half of the time"
    assert "no device for cuda" in ended.stderr and "collected cpu" in ended.stderr
    pages = Path(answer["pages"]["dash"]).parent.rglob("*.html")
    page = "".join(path.read_text() for path in pages)
    assert "Nothing was measured on spade_sim" in page and "dash_fig5_per_matrix" in page
    assert [step["ok"] + step["no result"] for step in answer["steps"]] == [2], "cases run beside the study"


@pytest.mark.full
def test_a_study_beside_workers_runs_on_this_machine(
    asked: Log, reproduce: Callable[..., Any], fakes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = fakes.environment(device=fakes.CPU.model_copy(update={"name": "theirs"}))
    monkeypatch.setattr(clusters, "opened", lambda *_, **asked: nullcontext(execute.Here(theirs)))
    monkeypatch.setattr(device, "find", lambda name: {"auto": fakes.CPU}[name])
    ended = reproduce("--json", "--gpus", "0,1", "--device", "cuda")
    assert ended.exit_code == 0, ended.stderr
    answer = json.loads(ended.stdout)
    assert [(one["target"], one["left"], one["why"]) for one in answer["studies"]] == [("spade_sim", 0, "")]
    assert {one.platform for one in asked.collected} == {"cpu", "spade_sim"}
    assert "on theirs" in ended.stderr


@pytest.mark.full
def test_problems_that_are_left_come_before_training(asked: Log, reproduce: Callable[..., Any]) -> None:
    asked.left = {"spade_sim": 3}
    ended = reproduce("--json")
    assert [(one["left"], one["why"]) for one in json.loads(ended.stdout)["studies"]] == [(3, "")]
    assert not asked.studied
    assert "the same command goes on" in ended.stderr


@pytest.mark.full
def test_a_study_that_cannot_go_on_says_why_and_cases_run(asked: Log, reproduce: Callable[..., Any]) -> None:
    asked.fails = True
    ended = reproduce("--json")
    answer = json.loads(ended.stdout)
    assert answer["studies"][0]["why"] == "expected 8 matrices, found 3"
    assert "the study of spade_sim cannot go on: expected 8 matrices, found 3" in ended.stderr
    assert answer["steps"][0]["left"] == 0


def test_the_packaged_study_has_the_matrices_that_it_asks_for() -> None:
    ((paper, study),) = [(paper, paper.study) for paper in read_papers("all") if paper.study]
    assert paper.name == "dash"
    assert study.able(DeviceKind.CPU) == ["spade_sim"]
    assert study.able(DeviceKind.CUDA) == ["spade_sim", "cuda"]
    sizes = {}
    for part in (study.pretraining, study.fine_tuning, study.evaluation):
        number, parts = parsed_shard(part.shard)
        sizes[part.sweep] = len(Sweep.load(part.sweep).matrices[number - 1 :: parts])
    assert sizes[study.pretraining.sweep] >= study.source_matrices
    assert sizes[study.fine_tuning.sweep] >= study.target_matrices
    assert sizes[study.evaluation.sweep] >= 4
