"""``spmark replay`` of collected samples: any platform's model is judged on them, and what they are is told."""

from __future__ import annotations

import bz2
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from dash_fakes import keep_model
from typer.testing import CliRunner

from spmark.datasets.cache import Cache
from spmark.datasets.load import load_matrix
from spmark.datasets.sweep import MatrixSpec
from spmark.impls.core.errors import DatasetError, SweepError
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.study.collected import CollectedRow, SampledConfig
from spmark.impls.table import PLATFORMS, cost_model, find_platform
from spmark.suite import cli
from spmark.suite.collected import holds_samples
from spmark.suite.replay import RANDOM, RECORDED, replay

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


@pytest.mark.parametrize(("kind", "pack"), [("bz2", bz2.compress), ("gz", gzip.compress)])
def test_a_folder_of_archives_holds_samples(kind: str, pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    plain = write(tmp_path / "plain" / "a.jsonl", row("cpu"))
    packed = tmp_path / "packed" / f"a.jsonl.{kind}"
    packed.parent.mkdir()
    packed.write_bytes(pack(plain.read_bytes()))
    assert holds_samples(packed.parent)
    assert not holds_samples(tmp_path / "nowhere")
    ((one, _),) = replay([packed.parent], RANDOM).scored
    assert one.times_us.tolist() == [11.0, 12.0, 13.0, 14.0, 15.0, 16.0]


def test_without_a_model_the_reason_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spmark.impls.dash.finding.SHIPPED", tmp_path / "none")
    (left,) = replay([write(tmp_path / "a.jsonl", row("spade_sim"))], "dash").left_out
    assert left.reason == "the model refuses it"
    assert "a model of spmm on spade_sim at " in left.detail


def test_a_random_order_is_the_floor_and_nothing_was_predicted(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", row("cuda"))
    assert len(replay([file], RANDOM).scored) == 1
    (left,) = replay([file], RECORDED).left_out
    assert left.reason == "its search predicted nothing"
    with pytest.raises(SweepError, match="expected a cost model out of dash, random, recorded for these records"):
        replay([file], "rule")


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


def test_samples_of_several_machines_stand_in_paths_of_their_own(tmp_path: Path) -> None:
    other = row("cuda", machine="elsewhere")
    files = [write(tmp_path / name / "a.jsonl", one) for name, one in (("here", row("cuda")), ("there", other))]
    assert [one.machine for one, _ in replay(files, RANDOM).scored] == ["somewhere", "elsewhere"]
    with pytest.raises(DatasetError, match="one platform and machine"):
        replay([tmp_path], RANDOM)


def test_the_command_says_what_the_times_are(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", row("spade_sim"))
    words = ["replay", str(file), "--model", "random"]
    shown = CliRunner().invoke(cli.app, words)
    assert shown.exit_code == 0, shown.output
    assert f"spade_sim: {find_platform('spade_sim').note}" in " ".join(shown.output.split())
    told = json.loads(CliRunner().invoke(cli.app, [*words, "--json"]).stdout)
    assert told["notes"] == {"spade_sim": "SPADE-like, simulated; not the published simulator"}
    assert [(case["implementation"], case["candidates"]) for case in told["cases"]] == [("spade_sim", 6)]


def test_t4_names_the_machine(tmp_path: Path) -> None:
    out = tmp_path / "t4.json"
    file = write(tmp_path / "a.jsonl", row("spade_sim", machine="simulated"))
    ended = CliRunner().invoke(cli.app, ["replay", str(file), "--model", "random", "--export", "t4", str(out)])
    assert ended.exit_code == 0, ended.output
    told = json.loads(out.read_text())
    schema = json.loads((Path(__file__).parent / "t4_results.json").read_text())
    jsonschema.validate(told, schema, jsonschema.Draft202012Validator)
    assert len(told["results"]) == 7
    assert {"name": "device", "value": "simulated", "unit": ""} in told["results"][0]["measurements"]
    assert told["results"][-1]["invalidity"] == "correctness"
