"""``spmark study train`` from collected samples of two platforms to a model's file, its curves and its card."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from problems import random_csr

from spmark.impls.core.errors import BuildError, DatasetError
from spmark.impls.core.interfaces import Candidate, Config
from spmark.impls.core.problem import Op, Problem
from spmark.impls.dash.parameters import OwnParameters
from spmark.impls.dash.weights import Subject, load
from spmark.impls.runtime.device import find
from spmark.impls.table import cost_model, create, find_platform
from spmark.impls.tuning.platform import raced
from spmark.impls.tuning.race import Race
from spmark.suite.cli import main as cli
from spmark.suite.study import transfer
from spmark.suite.study.transfer import TransferRequest

pytestmark = pytest.mark.full

pytest.importorskip("torch")

SWEEP = """
schema: 1
name: {name}
ops: [spmm]
matrices:
  - {{source: rmat, name: a{name}, args: {{scale: 6, edge_factor: 4, seed: {seed}}}}}
  - {{source: rmat, name: b{name}, args: {{scale: 7, edge_factor: 3, seed: {seed}}}}}
widths: [8]
implementations: [scipy_cpu]
"""


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", ["spmark", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert not ended.value.code


def steady(race: Race[Any], configs: Sequence[Config]) -> list[Candidate]:
    """Build and check configs as a platform does, and give them times that do not depend on the machine's load."""
    return [
        replace(one, samples_us=(100.0 * place, 101.0 * place)) if one.samples_us else one
        for place, one in enumerate(raced(race, configs), start=1)
    ]


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Collect a source on the CPU and a target on the accelerator."""
    folder = tmp_path_factory.mktemp("collected")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spmark.impls.tuning.platform.raced", steady)
        for name, platform, configs in (("source", "cpu", 3), ("target", "spade_sim", 8)):
            sweep = folder / f"{name}.yaml"
            sweep.write_text(SWEEP.format(name=name, seed=len(name)))
            options = ("--platform", platform, "--sweep", sweep, "--configs", configs, "--out", folder / name)
            run(patch, "study", "collect", *options)
    return folder


@pytest.fixture
def samples(collected: Path, tmp_path: Path) -> Path:
    """Give a test its own copy of what was collected."""
    return shutil.copytree(collected, tmp_path / "samples")


def request(samples: Path, **changes: object) -> TransferRequest:
    of = {"source": [samples / "source"], "target": [samples / "target"]}
    counts = {"source_matrices": 2, "target_matrices": 2, "seed": 0, "epochs": 2}
    rest = {"method": "dash", "op": "spmm", "out": samples / "model.safetensors", "as_json": False}
    return TransferRequest(**{**of, **counts, **rest, **changes})


def test_samples_become_a_model_with_card_and_checkpoints(
    samples: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = samples / "spade.safetensors"
    files = ("--source", samples / "source", "--target", samples / "target")
    counts = ("--source-matrices", 2, "--target-matrices", 1, "--epochs", 2)
    capsys.readouterr()
    run(monkeypatch, "study", "train", "dash", *files, *counts, "--out", out, "--json")
    answer = json.loads(capsys.readouterr().out)
    spade = find_platform("spade_sim")
    own = OwnParameters(spade.own_axes(Op.SPMM))
    subject = Subject(
        platform="spade_sim", op=Op.SPMM, space_digest=spade.digest(Op.SPMM), parameters_digest=own.digest
    )
    card = load(out, subject).card
    assert card.model_dump(mode="json") == answer["card"]
    assert [(one.platform, one.matrices) for one in card.trained_on] == [("cpu", 2), ("spade_sim", 1)]
    assert card.trained_on[1].samples == 9
    assert card.command == (
        "spmark study train dash --source source --target target --source-matrices 2 --target-matrices 1 --op spmm "
        "--seed 0 --epochs 2"
    )
    assert len(list(samples.glob("spade.*.checkpoint"))) == 2
    before = out.read_bytes()
    run(monkeypatch, "study", "train", "dash", *files, *counts, "--out", out)
    assert out.read_bytes() == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source": ["target"]}, "two platforms, found spade_sim as source and as target"),
        ({"target_matrices": 3}, "samples of 3 matrices, found 2"),
        ({"op": "sddmm"}, "samples of 2 matrices, found 0"),
    ],
)
def test_samples_that_would_mislead_are_refused(samples: Path, changes: dict[str, object], message: str) -> None:
    folders = {key: [samples / one for one in value] for key, value in changes.items() if isinstance(value, list)}
    with pytest.raises(DatasetError, match=message):
        transfer.train_transfer(request(samples, **{**changes, **folders}))


def test_a_kept_model_scores_the_configs_of_the_implementation(
    samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    how, problem = create("taco_cpu"), Problem(Op.SPMM, random_csr(30, 40, [3] * 30), 8)
    monkeypatch.setenv("SPMARK_CACHE", str(tmp_path / "kept"))
    monkeypatch.setattr("spmark.impls.dash.finding.SHIPPED", tmp_path / "none")
    model = cost_model(how, "dash", find("cpu"))
    configs = find_platform("cpu").space(problem).sample(0, 5)
    asked = r"a model of spmm on cpu, found none: .*train one with spmark study train dash.*cpu-spmm"
    with pytest.raises(BuildError, match=asked):
        model.score(problem, configs)
    transfer.train_transfer(request(samples, target=[], epochs=1, out=None))
    scores = model.score(problem, [*configs, {**configs[0], "chunk": 3}, {"c": 1}])
    assert np.isfinite(scores[:5]).all()
    assert len(set(scores[:5].tolist())) == 5
    assert np.isnan(scores[5:]).all()
    more = [{**config, "threads": 2} for config in configs]
    np.testing.assert_array_equal(model.score(problem, more), scores[:5])
