"""Random problems, labels that survive an end, and models trained on them; a made-up device answers."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from rank_fakes import estimated_race

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import DatasetError
from spmark.impls.lo_spmm.rank import FEATURES, RankCard, RankModel
from spmark.impls.lo_spmm.reorder import Reordering
from spmark.impls.lo_spmm.search import Pins, TileSpace, explore
from spmark.impls.runtime.device import shipped_calibration
from spmark.studies.lo_spmm import labels
from spmark.studies.lo_spmm.labels import (
    Key,
    TileLabels,
    label_all,
    measure,
    read_labels,
    synthetic,
)
from spmark.studies.lo_spmm.training import take_over, train

pytestmark = pytest.mark.full

H200 = DeviceSpec.load(shipped_calibration("nvidia-h200"))


def space_of(key: Key) -> TileSpace:
    return explore(synthetic(key[1]), H200, Reordering.NONE, Pins())


def keys(*seeds: int) -> list[Key]:
    return [("", seed) for seed in seeds]


def test_labels_go_on_where_they_were(tmp_path: Path) -> None:
    path, later = tmp_path / "shard.jsonl", time.monotonic() + 60
    assert label_all(path, keys(0, 1, 2), space_of, estimated_race, later) == (3, 0)
    assert label_all(path, keys(*range(5)), space_of, estimated_race, time.monotonic()) == (0, 2)
    with path.open("a") as file:
        file.write('{"schema_version": 1, "seed": 9')
    asked: list[Key] = []

    def watched(key: Key) -> TileSpace:
        asked.append(key)
        return space_of(key)

    assert label_all(path, keys(*range(5)), watched, estimated_race, later) == (2, 0)
    assert sorted(asked) == keys(3, 4)
    assert [row.seed for row in read_labels([path])] == [0, 1, 2, 3, 4]
    assert label_all(tmp_path / "shard-2.jsonl", keys(*range(3, 7)), space_of, estimated_race, later) == (2, 0)


def rows_of(count: int) -> list[TileLabels]:
    return [measure(key, (space := space_of(key)), estimated_race(space)) for key in keys(*range(count))]


def test_one_device_and_one_order_of_features(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.jsonl"
    label_all(path, keys(0), space_of, estimated_race, time.monotonic() + 60)
    other = tmp_path / "b.jsonl"
    row = read_labels([path])[0]
    other.write_text(row.model_copy(update={"device": "other", "seed": 7}).model_dump_json() + "\n")
    with pytest.raises(DatasetError, match="one device, found nvidia-h200, other"):
        read_labels([path, other])
    monkeypatch.setattr(labels, "FEATURES", FEATURES[::-1])
    with pytest.raises(DatasetError, match="measure labels again"):
        read_labels([path])


def test_a_model_orders_what_it_has_not_seen(tmp_path: Path) -> None:
    pytest.importorskip("lightgbm")
    model = train(rows_of(45), RankCard(gpu="fake", labels_sha256="0", groups=0, candidates=0, ranges={}))
    assert model.card.groups == 45
    assert model.card.held_out["kendall_tau"] > 0.5
    assert model.card.held_out["regret_of_first_ten"] < model.card.held_out["regret_of_first"] < 0.3
    assert set(model.card.ranges) == set(FEATURES)
    kept = model.save(tmp_path / "m.json")
    assert RankModel.load(tmp_path / "m.json") == kept
    assert train(rows_of(45), model.card).trees == model.trees


def test_trees_predict_what_lightgbm_does() -> None:
    lightgbm = pytest.importorskip("lightgbm")
    rng = np.random.default_rng(0)
    samples = rng.uniform(0, 1, (300, len(FEATURES)))
    target = samples[:, 0] * samples[:, 3] + (samples[:, 7] > 0.3)
    booster = lightgbm.train({"verbosity": -1, "num_threads": 1}, lightgbm.Dataset(samples, target), 20)
    card = RankCard(gpu="fake", labels_sha256="0", groups=1, candidates=1, ranges={})
    scores = RankModel(card=card, trees=take_over(booster)).score(samples)
    np.testing.assert_allclose(-scores, booster.predict(samples, raw_score=True), rtol=1e-12)
