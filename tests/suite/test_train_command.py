"""``spmark study train`` and ``label`` from the command line to their files, with labels that were made up."""

from __future__ import annotations

import json
import sys
from math import inf
from pathlib import Path

import pytest
from label_fakes import published_csv

from spmark.datasets.cache import Cache
from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import BuildError, SweepError
from spmark.impls.core.problem import Csr, DType
from spmark.impls.liteform.compose import StoredAs
from spmark.impls.liteform.features import SELECTION_BY_WIDTH
from spmark.impls.liteform.predictor import find
from spmark.impls.runtime.device import shipped_calibration
from spmark.studies.liteform.commands import LABELS, OVERHEADS, SPEEDS
from spmark.studies.liteform.labels import MatrixLabels, TriedConfig, read_labels
from spmark.studies.liteform.tables import numbers, read_published
from spmark.studies.rows import append_rows
from spmark.suite.cli import main as cli
from spmark.suite.study import label, train
from spmark.suite.study.label import LabelRequest, measure_labels

pytestmark = pytest.mark.full

OVERHEAD = "name,num_rows,num_cols,autotuning_time(s),time_select(s),time_num_parts(s),time_bucket(s)\n"
SPEED = "name,num_rows,num_cols,Oracle(ms),LiteForm(ms)\n"


def spmark(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["spmark", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {
        LABELS: published_csv(40),
        SPEEDS: SPEED + "a,2000,2000,2,1\nb,2000,3000,1,4\n",
        OVERHEADS: OVERHEAD + "a,2000,2000,9,1,1,1\n",
    }
    monkeypatch.setattr(train, "read_table", lambda name, cache: texts[name])


def measured(path: Path, device: str = "fake-gpu") -> Path:
    published = read_published(published_csv(40))
    rows = []
    for i in range(0, len(published), 2):
        widths = (int(published.width[i]), int(published.width[i + 1]))
        names = ("num_rows", "num_cols", "nnz", "avg_length", "min_length", "max_length", "std_length")
        rows.append(
            MatrixLabels(
                matrix=str(published.matrix[i]), matrix_hash="0", matrix_kind="synthetic", device=device,
                dtype=DType.FLOAT32, widths=widths, features={n: float(getattr(published, n)[i]) for n in names},
                fixed_us={"csr": {w: [float(published.csr_us[i + k])] for k, w in enumerate(widths)}},
                tried=tuple(
                    TriedConfig(partitions=int(published.partitions[i + k]), max_width=32,
                          samples_us={w: [float(published.cell_us[i + k])]})
                    for k, w in enumerate(widths)
                ),
                complete=True, spent_s=1.0,
            )
        )  # fmt: skip
    by_name = {row.matrix: row for row in rows}
    append_rows(path, by_name.items(), lambda _, row: row, inf)
    return path


def test_a_model_is_trained_on_measured_labels(monkeypatch, tmp_path: Path, capsys) -> None:
    labels = measured(tmp_path / "labels" / "shard.jsonl")
    out = tmp_path / "model.npz"
    code = spmark(
        monkeypatch,
        "study",
        "train",
        "liteform",
        "--labels",
        str(labels.parent),
        "--name",
        "fake",
        "--out",
        str(out),
        "--json",
    )
    assert code == 0
    told = json.loads(capsys.readouterr().out)
    card, scores = told["card"], {(one["task"], one["model"], one["metric"]): one for one in told["held_out"]}
    regret = scores["selection", "Random Forest", "regret"]
    assert 0 <= regret["least"] <= regret["mean"] <= regret["greatest"]
    accuracies = [scores["selection", model, "accuracy"]["mean"] for model in ("Random Forest", "majority")]
    assert 0 < accuracies[1] < accuracies[0] <= 1, "what decides is a feature"
    assert (card["name"], card["gpu"], card["rows"]["selection"]) == ("fake", "fake-gpu", 80)
    assert card["trained_on"] == "labels measured with spmark on fake-gpu in float32"
    sample = numbers(read_published(published_csv(40)), SELECTION_BY_WIDTH)[0]
    assert find(str(out)).selection.predict(sample) in (0, 1)


def test_labels_of_two_gpus_are_not_mixed(monkeypatch, tmp_path: Path, capsys) -> None:
    measured(tmp_path / "labels" / "a.jsonl")
    measured(tmp_path / "labels" / "b.jsonl", "other-gpu")
    assert spmark(monkeypatch, "study", "train", "liteform", "--labels", str(tmp_path / "labels")) == 2
    assert "expected labels of one device, found fake-gpu, other-gpu" in capsys.readouterr().err


def test_the_study_is_written_with_its_page(monkeypatch, tables: None, tmp_path: Path, capsys) -> None:
    assert spmark(monkeypatch, "study", "train", "liteform", "--reproduce", "--seeds", "1", "--out", str(tmp_path)) == 0
    assert "Random forest over 1 splits" in capsys.readouterr().out
    study = json.loads((tmp_path / "study.json").read_text())
    assert study["command"] == "spmark study train liteform --reproduce --seeds 1"
    assert [source["sha256"] for source in study["sources"]] == [
        train.TABLES[name].sha256 for name in (LABELS, SPEEDS, OVERHEADS)
    ]
    assert study["ratios"][0]["ratios"] == [2.0, 0.25]
    assert (tmp_path / "index.html").is_file()


def request(**changes) -> LabelRequest:
    fields = {
        "method": "liteform", "patterns": ("seeded/mesh_0*",), "dtypes": (), "budget": "1s",
        "shard": "1/1", "device": "cpu", "out": Path("nowhere"), "as_json": True,
    }  # fmt: skip
    return LabelRequest(**(fields | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shard": "3/2"}, "expected N/M"),
        ({"dtypes": ("float64",)}, "found 'float64'"),
        ({"patterns": ("seeded/none_*",)}, "found none"),
        ({"budget": "soon"}, "expected a time"),
    ],
)
def test_wrong_requests_are_refused(changes, message: str) -> None:
    with pytest.raises(SweepError, match=message):
        measure_labels(request(**changes))


def test_labels_are_made_shard_by_shard_and_what_cannot_be_is_told(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    gpu = pytest.importorskip("spmark.studies.liteform.gpu", reason="needs CuPy")
    device = DeviceSpec.load(shipped_calibration("nvidia-h200"))

    class FakeTimer:
        def __init__(self, matrix: Csr, *_: object) -> None:
            if "banded" in names_of[matrix.hash]:
                raise BuildError("nothing to time")

        def fixed(self, form: StoredAs, width: int) -> list[float]:
            return [9.0]

        def cell(self, partitions: int, max_width: int) -> dict[int, list[float]]:
            return {width: [5.0 + partitions + abs(max_width - 16)] for width in (32, 64, 128, 256, 512)}

    monkeypatch.setattr(gpu, "GpuTimer", FakeTimer)
    monkeypatch.setattr(gpu, "compile_schedules", lambda *_: None)
    monkeypatch.setattr(gpu, "start_width", lambda *_: 16)
    monkeypatch.setattr(label, "gpu_named", lambda *_: device)
    monkeypatch.setattr(label, "loaded", lambda names, cache: ((name, label._load(name, cache)) for name in names))
    how = {"dtypes": ("float32",), "budget": "60s", "out": tmp_path}
    names = ("seeded/mesh_03", "seeded/no_such", "seeded/banded_03")
    held = ((name, label._load(name, Cache.default())) for name in names)
    names_of = {found.csr.hash: name for name, found in held if not isinstance(found, str)}
    assert measure_labels(request(patterns=(*names, "seeded/mesh_03"), **how)) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["made"], told["left"], told["failed"]) == (1, 0, 2)
    assert "cannot be measured: nothing to time" in caplog.text
    # Another sharding finds what is there.
    assert measure_labels(request(patterns=names, shard="1/2", **how)) == 0
    assert json.loads(capsys.readouterr().out)["made"] == 0
    assert len(read_labels(sorted((tmp_path / device.name).glob("*.jsonl")))) == 1
