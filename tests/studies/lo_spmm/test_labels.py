"""Random problems, labels that survive an end, and models trained on them; a made-up device answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from rank_fakes import estimated_race

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import DatasetError
from spmark.impls.lo_spmm.rank import FEATURES, RankModel
from spmark.impls.lo_spmm.reorder import Reordering
from spmark.impls.lo_spmm.search import Pins, explore
from spmark.impls.runtime.device import shipped_calibration
from spmark.studies.lo_spmm import labels
from spmark.studies.lo_spmm.labels import TileLabels, measure, read_labels, synthetic
from spmark.studies.lo_spmm.training import take_over, train

pytestmark = pytest.mark.full

H200 = DeviceSpec.load(shipped_calibration("nvidia-h200"))
ABOUT = {"gpu": "fake", "labels_sha256": "0"}


def rows_of(count: int) -> list[TileLabels]:
    spaces = [explore(synthetic(seed), H200, Pins(split=1, order=Reordering.NONE)) for seed in range(count)]
    return [measure(seed, space, estimated_race(space)) for seed, space in enumerate(spaces)]


def test_one_device_and_one_order_of_features(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (row,), path, other = rows_of(1), tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    path.write_text(row.model_dump_json() + "\n")
    other.write_text(row.model_copy(update={"device": "other", "seed": 7}).model_dump_json() + "\n")
    with pytest.raises(DatasetError, match="one device, found nvidia-h200, other"):
        read_labels([path, other])
    monkeypatch.setattr(labels, "FEATURES", FEATURES[::-1])
    with pytest.raises(DatasetError, match="measure labels again"):
        read_labels([path])


def test_a_model_orders_what_it_has_not_seen(tmp_path: Path) -> None:
    pytest.importorskip("lightgbm")
    model = train(rows_of(45), ABOUT, "a command")
    assert model.card.groups == 45
    assert model.card.held_out["kendall_tau"] > 0.5
    assert model.card.held_out["regret_of_first_ten"] < model.card.held_out["regret_of_first"] < 0.3
    assert set(model.card.ranges) == set(FEATURES)
    kept = model.save(tmp_path / "m.json")
    assert RankModel.load(tmp_path / "m.json") == kept
    assert train(rows_of(45), ABOUT, "again").trees == model.trees


def test_trees_predict_what_lightgbm_does() -> None:
    lightgbm = pytest.importorskip("lightgbm")
    rng = np.random.default_rng(0)
    samples = rng.uniform(0, 1, (300, len(FEATURES)))
    target = samples[:, 0] * samples[:, 3] + (samples[:, 7] > 0.3)
    booster = lightgbm.train({"verbosity": -1, "num_threads": 1}, lightgbm.Dataset(samples, target), 20)
    scores = take_over(booster).score(samples)
    np.testing.assert_allclose(-scores, booster.predict(samples, raw_score=True), rtol=1e-12)
