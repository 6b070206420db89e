"""``spmark study label lo_spmm`` and ``spmark study train lo_spmm``, with a race that the estimate times."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from rank_fakes import estimated_race

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import DeviceError, SweepError
from spmark.impls.lo_spmm.rank import RankModel
from spmark.impls.runtime.device import shipped_calibration
from spmark.records.rowfile import read_rows
from spmark.studies.lo_spmm import commands, labels
from spmark.studies.lo_spmm.labels import TileLabels
from spmark.suite.cli import main as cli
from spmark.suite.study import label
from spmark.suite.study.label import LabelRequest, measure_labels

pytestmark = pytest.mark.full

H200 = DeviceSpec.load(shipped_calibration("nvidia-h200"))


def spmark(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["spmark", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


@pytest.fixture
def fake_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label, "gpu_named", lambda *_: H200)
    monkeypatch.setattr(commands, "_race", lambda space, device: estimated_race(space))
    monkeypatch.setattr(labels, "GROUPS", 24)


@pytest.mark.usefixtures("fake_gpu")
def test_from_kernels_to_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("lightgbm")
    for shard in ("1/2", "2/2"):
        assert spmark(monkeypatch, "study", "label", "lo_spmm", "--shard", shard, "--out", str(tmp_path)) == 0
    files = sorted((tmp_path / "nvidia-h200" / "lo_spmm").glob("*.jsonl"))
    assert [sorted(row.seed for row in read_rows(file, TileLabels)) for file in files] == [
        list(range(0, 24, 2)),
        list(range(1, 24, 2)),
    ]
    files[1].write_text(files[1].read_text().split("\n", 1)[1] + '{"schema_version": 1, "seed": 9')
    assert spmark(monkeypatch, "study", "label", "lo_spmm", "--out", str(tmp_path)) == 0
    assert [row.seed for row in read_rows(files[0].with_name("shard-01-of-01.jsonl"), TileLabels)] == [1]
    out = tmp_path / "model.json"
    assert (
        spmark(monkeypatch, "study", "train", "lo_spmm", "--labels", str(tmp_path), "--name", "fake", "--out", str(out))
        == 0
    )
    card = RankModel.load(out).card
    assert (card.name, card.gpu, card.groups) == ("fake", "nvidia-h200", 24)
    assert str(tmp_path) not in json.dumps(card.made_with)


@pytest.mark.parametrize(
    ("budget", "shard", "device", "error", "message"),
    [
        ("1m", "1/1", "host-simt", DeviceError, "expected a GPU to measure labels on"),
        ("1m", "3/2", "auto", SweepError, "--shard"),
        ("soon", "1/1", "auto", SweepError, "expected a time"),
    ],
)
def test_wrong_requests_are_refused(budget: str, shard: str, device: str, error: type, message: str) -> None:
    request = LabelRequest("lo_spmm", (), (), budget, shard, device, Path("nowhere"), as_json=False)
    with pytest.raises(error, match=message):
        measure_labels(request)
