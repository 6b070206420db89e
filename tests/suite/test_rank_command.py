"""``spmark label lo_spmm`` and ``spmark train lo_spmm``, with a race that the estimate times."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from rank_fakes import estimated_race

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import DeviceError, SweepError
from spmark.impls.core.recordfile import read_rows
from spmark.impls.lo_spmm import labels
from spmark.impls.lo_spmm.labels import LabelRow
from spmark.impls.lo_spmm.rank import RankModel
from spmark.impls.lo_spmm.study import Compared
from spmark.impls.runtime.device import shipped_calibration
from spmark.suite import cli
from spmark.suite.commands import rank_model
from spmark.suite.commands.rank_model import LAYERS, RankRequest, measure_kernels

H200 = DeviceSpec.load(shipped_calibration("nvidia-h200"))


def spmark(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["spmark", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


@pytest.fixture
def fake_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_model, "gpu_named", lambda name: H200)
    monkeypatch.setattr(rank_model, "_race", lambda space, device, proxies=False: estimated_race(space, proxies))
    monkeypatch.setattr(labels, "assemble", lambda *arguments, **facts: None)
    monkeypatch.setattr(labels, "GROUPS", 24)


@pytest.mark.usefixtures("fake_gpu")
def test_from_kernels_to_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("lightgbm")
    for shard in ("1/2", "2/2"):
        assert spmark(monkeypatch, "label", "lo_spmm", "--shard", shard, "--out", str(tmp_path)) == 0
    files = sorted((tmp_path / "nvidia-h200" / "lo_spmm").glob("*.jsonl"))
    assert [sorted(row.seed for row in read_rows(file, LabelRow)) for file in files] == [
        list(range(0, 24, 2)),
        list(range(1, 24, 2)),
    ]
    out = tmp_path / "model.json"
    assert spmark(monkeypatch, "train", "lo_spmm", "--labels", str(tmp_path), "--name", "fake", "--out", str(out)) == 0
    card = RankModel.load(out).card
    assert (card.name, card.gpu, card.groups) == ("fake", "nvidia-h200", 24)
    assert str(tmp_path) not in json.dumps(card.made_with)


@pytest.mark.usefixtures("fake_gpu")
def test_what_is_left_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_model, "seconds", lambda text: 0.0)
    assert spmark(monkeypatch, "label", "lo_spmm", "--out", str(tmp_path)) == 1


@pytest.mark.usefixtures("fake_gpu")
def test_proxies_are_compared_layer_by_layer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rank_model, "LAYERS", LAYERS[:2])
    for shard in ("1/2", "1/1"):
        assert spmark(monkeypatch, "label", "lo_spmm", "--proxies", "--shard", shard, "--out", str(tmp_path)) == 0
    rows = list(read_rows(tmp_path / "nvidia-h200" / "lo_spmm" / "proxies.jsonl", Compared))
    assert [row.layer for row in rows] == [f"{name} J{width}" for name, width in LAYERS[:2]]
    assert all(len(row.sizes) == 10 for row in rows)
    assert all(row.tau == pytest.approx(1) for row in rows)
    assert all(row.regret == 0 for row in rows)
    assert "tau 1.00 on average" in capsys.readouterr().out


def test_it_needs_a_gpu_and_a_shard(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="expected a GPU"):
        measure_kernels(RankRequest("1m", "1/1", "host-simt", tmp_path, as_json=False))
    with pytest.raises(SweepError, match="--shard"):
        measure_kernels(RankRequest("1m", "3/2", "auto", tmp_path, as_json=False))
