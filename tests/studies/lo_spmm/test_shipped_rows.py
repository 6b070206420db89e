"""The rows that ship: what they are of, and that a model is trained on them."""

from __future__ import annotations

from pathlib import Path

import pytest

from spmark.datasets.origins import other_ids
from spmark.datasets.sweep.reading import packaged_lists, read_list
from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.lo_spmm.rank import RankModel, find
from spmark.impls.runtime.device import shipped_calibration
from spmark.studies.contracts import TrainingJob
from spmark.studies.lo_spmm.commands import RankTraining
from spmark.studies.lo_spmm.labels import TileLabels, read_labels

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[3]
H200 = DeviceSpec.load(shipped_calibration("nvidia-h200"))
ROWS = ROOT / "impls/lo_spmm/models/h200-rows.jsonl.gz"


@pytest.fixture(scope="module")
def rows() -> list[TileLabels]:
    return read_labels([ROWS])


def test_shipped_rows_are_of_the_tuning_half_and_of_seeds(rows: list[TileLabels]) -> None:
    tuning = {next(other_ids(spec)) for spec in read_list(packaged_lists()["tuning_layers"])}
    layers = {row.matrix for row in rows if row.matrix}
    assert (len(rows), len(layers)) == (107, 39)
    assert layers <= tuning


def test_a_model_learns_from_the_random_problems(tmp_path: Path) -> None:
    pytest.importorskip("lightgbm")
    job = TrainingJob("mine", tmp_path / "mine.json", "spmark study train lo_spmm --labels h200-rows.jsonl.gz", [ROWS])
    card = RankTraining().train(job).answer["card"]
    assert card["groups"] == 29
    assert 0 < card["held_out"]["kendall_tau"] < find("h200").card.held_out["kendall_tau"]
    assert RankModel.load(job.out).card.model_dump() == card
