"""Scripts that time parts of a person's wait or pack models: they write what they promise, on small problems."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from dash_fakes import CPU, CPU_OWN, TILES
from scripts_by_name import load_script

from spmark.impls.dash.encoders import EncoderKind, fit
from spmark.impls.dash.featuriser import Featuriser
from spmark.impls.dash.network import Network, NetworkSpec
from spmark.impls.dash.weights import ModelCard, TrainedModel, load

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("safetensors", reason="safetensors is not installed (extra dash)")
LINE = re.compile(r"(.+?) +([\d.]+) ms, at least +([\d.]+) ms")


def told(
    name: str, options: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> dict[str, float]:
    """Run a script; gives the medians in milliseconds by what stands before them."""
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *options])
    load_script(name).main()
    lines = [LINE.fullmatch(line) for line in capsys.readouterr().out.splitlines()]
    assert all(line and 0 < float(line[3]) <= float(line[2]) for line in lines)
    return {line[1]: float(line[2]) for line in lines if line}


def test_scoring_has_three_parts_and_their_sum(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--device", "cpu", "--rows", "512", "--nnz", "2000", "--configs", "20", "--rounds", "1"]
    found = told("scoring_time", options, monkeypatch, capsys)
    assert list(found) == ["embedding of the matrix", "embeddings of the configs", "scores", "all"]
    *parts, whole = found.values()
    assert whole == pytest.approx(sum(parts), abs=0.03)


def test_new_values_and_loading_are_timed_for_each_implementation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("SPMARK_CACHE", str(tmp_path))
    options = ["--rows", "256", "--nnz", "1000", "--rounds", "2", "--use", "scipy_cpu", "--use", "numba_cpu"]
    found = told("plan_times", options, monkeypatch, capsys)
    assert [re.split(" +", name) for name in found] == [
        [use, what] for use in ("scipy_cpu", "numba_cpu") for what in ("update_values", "load")
    ]


def test_models_are_packed_where_the_person_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    spec = NetworkSpec(featuriser=Featuriser.NONE, encoder=EncoderKind.PCA)
    network = Network(spec, 1)
    paths = []
    for subject in (CPU, TILES):
        card = ModelCard(subject=subject, spec=spec, trained_on=(), seed=1)
        paths.append(tmp_path / f"{subject.platform}.safetensors")
        TrainedModel(card, network, fit(EncoderKind.PCA, CPU_OWN.every())).save(paths[-1])
    monkeypatch.setattr(sys, "argv", ["ship_models.py", *map(str, paths), "--into", str(tmp_path / "shipped")])
    load_script("ship_models").main()
    lines = capsys.readouterr().out.splitlines()
    assert [Path(line.split(":")[0]).name for line in lines] == [
        "featuriser-spmm.safetensors", "cpu-spmm.safetensors", "tiles-spmm.safetensors",
    ]  # fmt: skip
    name, array = next(iter(load(tmp_path / "shipped" / "cpu-spmm.safetensors", CPU).tensors().items()))
    np.testing.assert_allclose(array, load(paths[0]).tensors()[name], rtol=1e-3, atol=1e-6)
