"""``spmark study replay`` of collected samples: any platform's model is judged on them, and what they are is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dash_fakes import keep_model
from typer.testing import CliRunner

from spmark.datasets.cache import Cache
from spmark.datasets.load import load_matrix
from spmark.datasets.sweep.model import MatrixSpec
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.table import PLATFORMS, cost_model, find_platform
from spmark.studies.collected import CollectedRow, SampledConfig
from spmark.suite.cli import main as cli
from spmark.suite.study.replay import replay

SPEC = {"source": "rmat", "name": "small", "args": {"scale": 6, "edge_factor": 4}}
MATRIX = load_matrix(MatrixSpec.model_validate(SPEC), Cache.default(), 0).csr
PROBLEM = Problem(Op.SPMM, MATRIX, 8)


def row(platform: str, /, **changes: Any) -> CollectedRow:
    """Give made-up samples of six configs of a platform, and one config without."""
    made = find_platform(platform)
    configs = [made.default(PROBLEM), *made.space(PROBLEM).sample(1, 6)]
    sampled = [SampledConfig.of(config, (10.0 + at, 12.0 + at, 11.0 + at)) for at, config in enumerate(configs[:-1])]
    facts: dict[str, Any] = {
        "platform": platform, "note": made.note, "op": Op.SPMM, "matrix": "rmat/small", "spec": SPEC, "width": 8,
        "dtype": DType.FLOAT32, "space_digest": made.digest(Op.SPMM), "version": "v", "machine": "somewhere",
        "wanted": 6, "pattern_sha256": MATRIX.hash,
        "configs": (*sampled, SampledConfig.of(configs[-1], (), "wrong result: far off")),
    }  # fmt: skip
    return CollectedRow(**facts | changes)


def write(file: Path, *rows: CollectedRow) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(one.model_dump_json() + "\n" for one in rows))
    return file


@pytest.fixture(autouse=True)
def own_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPMARK_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_platform_s_model_is_judged_on_its_samples(platform: str, tmp_path: Path) -> None:
    pytest.importorskip("safetensors", reason="safetensors is not installed (extra dash)")
    pytest.importorskip("torch", reason="PyTorch is not installed (extra dash)")
    keep_model(platform, Op.SPMM)
    file = write(tmp_path / "samples" / platform / "a.jsonl", row(platform))
    for path in (file, tmp_path / "samples"):
        ((one, scores),) = replay([path], "dash").scored
        configs = [config.config for config in one.measured]
        expected = cost_model(find_platform(platform), "dash", None).score(PROBLEM, configs)
        np.testing.assert_array_equal(scores, expected)
        assert np.isfinite(scores).all()
        assert one.times_us.tolist() == [11.0, 12.0, 13.0, 14.0, 15.0, 16.0]
        assert (one.case.implementation, one.machine) == (platform, "somewhere")


@pytest.mark.full
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"space_digest": "0123", "op": Op.SDDMM}, "its platform has another space today"),
        ({"spec": {"source": 3}}, "no sweep can ask for its matrix"),
        ({"pattern_sha256": "0" * 64}, "its source gives another matrix today"),
        ({"configs": (SampledConfig.of({}, (), "no room"),)}, "fewer than two of its configs were measured"),
    ],
)
def test_samples_that_cannot_be_replayed_are_left_out(changes: dict[str, Any], reason: str, tmp_path: Path) -> None:
    pytest.importorskip("safetensors", reason="safetensors is not installed (extra dash)")
    pytest.importorskip("torch", reason="PyTorch is not installed (extra dash)")
    keep_model("cuda", Op.SPMM)
    found = replay([write(tmp_path / "a.jsonl", row("cuda"), row("cuda", **changes))], "dash")
    assert reason in {one.reason for one in found.left_out}
    assert len(found.scored) == 1


def test_the_command_says_what_the_times_are(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", row("spade_sim"))
    words = ["study", "replay", str(file), "--model", "random"]
    shown = CliRunner().invoke(cli.app, words)
    assert shown.exit_code == 0, shown.output
    assert f"spade_sim: {find_platform('spade_sim').note}" in " ".join(shown.output.split())
    told = json.loads(CliRunner().invoke(cli.app, [*words, "--json"]).stdout)
    assert told["notes"] == {"spade_sim": "SPADE-like, simulated; not the published simulator"}
    assert [(case["implementation"], case["candidates"]) for case in told["cases"]] == [("spade_sim", 6)]
