"""Our trees against scikit-learn's, and the file they are kept in: nothing damaged or foreign is taken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from label_fakes import published_csv

from spmark.impls.core.errors import BuildError
from spmark.impls.liteform.features import PARTITIONS, SELECTION, SELECTION_BY_WIDTH, Features
from spmark.impls.liteform.forest import Forest
from spmark.impls.liteform.predictor import SHIPPED, ForestCard, Predictor, find, load, shipped
from spmark.studies.liteform.forests import FOREST, fit, forest_of, model_kinds, train
from spmark.studies.liteform.tables import numbers, partition_numbers, read_published

LABELS = read_published(published_csv())
ABOUT = ForestCard(name="made-up", trained_on="numbers made up", labels_sha256="0" * 64, gpu="none")


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    return train(LABELS, ABOUT)


@pytest.fixture
def path(predictor: Predictor, tmp_path: Path) -> Path:
    predictor.save(tmp_path / "model.npz")
    return tmp_path / "model.npz"


@pytest.mark.parametrize("kind", [FOREST, "Decision Tree"])
def test_our_trees_say_what_scikit_learn_says_on_10_000_rows(kind: str) -> None:
    rng = np.random.default_rng(2)
    features = rng.lognormal(3, 2, (400, 5))
    labels = np.digitize(features[:, 0] / features[:, 3] * rng.uniform(0.8, 1.2, 400), [0.1, 1, 8])
    model = fit(model_kinds()[kind], features, labels)
    forest = forest_of(model, features)
    samples = np.concatenate([rng.lognormal(3, 2, (9_600, 5)), features])
    expected = model.predict_proba(samples)
    found = np.array([forest.shares(sample) for sample in samples])
    assert np.array_equal(found, expected)
    assert [forest.predict(sample) for sample in samples[:500]] == model.predict(samples[:500]).tolist()


@pytest.mark.parametrize(
    ("name", "gpu", "origin", "rows", "classes"),
    [
        ("published-v100", "V100", "published", {"selection": 2279, "partitions": 4991}, [1, 2, 4, 8, 16, 32, 64, 128]),
        ("nvidia-h200", "h200", "measured with spmark", {"selection": 850, "partitions": 389}, [1, 2, 4, 8, 16]),
        (
            "nvidia-h200-published",
            "h200",
            "measured with spmark",
            {"selection": 170, "partitions": 389},
            [1, 2, 4, 8, 16],
        ),
    ],
)
def test_models_that_ship_are_whole_and_say_where_they_are_from(
    name: str, gpu: str, origin: str, rows: dict[str, int], classes: list[int]
) -> None:
    assert {SHIPPED, name} <= set(shipped())
    predictor = find(name)
    assert gpu in predictor.card.gpu
    assert origin in predictor.card.trained_on
    assert predictor.card.rows == rows
    assert predictor.selection.classes.tolist() == [0, 1]
    assert predictor.partitions.classes.tolist() == classes


def test_a_file_gives_back_what_was_saved(predictor: Predictor, path: Path) -> None:
    back = load(path)
    assert back.card.model_dump(exclude={"digest"}) == predictor.card.model_dump(exclude={"digest"})
    assert back.card.features == {"selection": SELECTION, "partitions": PARTITIONS}
    for sample in partition_numbers(LABELS):
        assert np.array_equal(back.partitions.shares(sample), predictor.partitions.shares(sample))
    assert find(str(path)).card == back.card


def _rewritten(path: Path, change: Any) -> Path:
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    change(arrays)
    np.savez_compressed(path, **arrays)
    return path


def _card(change: Any) -> Any:
    def of(arrays: dict[str, Any]) -> None:
        card = json.loads(arrays["card"].tobytes())
        change(card)
        arrays["card"] = np.frombuffer(json.dumps(card).encode(), np.uint8)

    return of


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a["selection.threshold"].__setitem__(0, 7.5), "digest"),
        (lambda a: a.pop("partitions.roots"), "digest"),
        (lambda a: a.pop("card"), "with a card"),
        (_card(lambda card: card.update(schema_version=2)), "schema 1"),
        (_card(lambda card: card.update(surprise=1)), "schema 1"),
        (_card(lambda card: card["features"]["selection"].reverse()), "features in the order"),
        (_card(lambda card: card["features"].pop("partitions")), "features in the order"),
    ],
)
def test_a_changed_file_is_refused(path: Path, change: Any, message: str) -> None:
    with pytest.raises(BuildError, match=message):
        load(_rewritten(path, change))


def test_a_damaged_or_missing_file_is_refused(path: Path, tmp_path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(BuildError, match="expected a model file with a card of schema 1, found something else"):
        load(path)
    with pytest.raises(BuildError, match=r"expected a model out of .*published-v100"):
        find(str(tmp_path / "nothing.npz"))


def test_pickles_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "evil.npz"
    np.savez(path, card=np.array([{"a": 1}], object), allow_pickle=True)
    with pytest.raises(BuildError, match="expected a model file with a card of schema 1, found something else"):
        load(path)


@pytest.mark.parametrize(
    ("name", "value"),
    [("left", 10**6), ("left", 0), ("right", -5), ("feature", 40), ("roots", 10**6), ("scale", 0.0)],
)
def test_nodes_that_point_elsewhere_are_refused_even_with_a_digest(
    predictor: Predictor, tmp_path: Path, name: str, value: float
) -> None:
    arrays = {key: array.copy() for key, array in predictor.selection.arrays().items()}
    arrays[name][0] = value
    broken = Predictor(predictor.card, Forest(**arrays), predictor.partitions)
    broken.save(tmp_path / "broken.npz")
    with pytest.raises(BuildError, match="selection: expected"):
        load(tmp_path / "broken.npz")


def test_outside_of_the_training_range_is_said_except_by_the_papers_forests(predictor: Predictor) -> None:
    own = train(LABELS, ABOUT, by_width=True)
    inside = Features(*(float(np.median(column)) for column in numbers(LABELS).T))  # type: ignore[arg-type]
    assert own.outside(inside, 32) == ""
    beyond = Features(10**7, 10**7, 10**8, 10.0, 0, 500, 50.0)
    assert "num_rows of 1e+07 is outside of the training range" in own.outside(beyond, 32)
    assert "width of 512" in own.outside(inside, 512)
    assert predictor.outside(beyond, 512) == ""


def test_a_model_that_knows_the_width_chooses_for_each(tmp_path: Path) -> None:
    by_width = train(LABELS, ABOUT, by_width=True)
    by_width.save(tmp_path / "own.npz")
    back = load(tmp_path / "own.npz")
    assert back.by_width
    assert back.card.features["selection"] == SELECTION_BY_WIDTH
    assert back.card.rows["selection"] == len(LABELS)
    forest = back.selection
    for sample in numbers(LABELS, SELECTION_BY_WIDTH)[:200]:
        features = Features(*sample[:-1].tolist())
        assert back.pays(features, int(sample[-1])) == bool(forest.predict(sample))
    said = np.array([forest.predict(sample) for sample in numbers(LABELS, SELECTION_BY_WIDTH)])
    assert np.mean(said == (LABELS.speedup >= 1)) > 0.99, "a forest knows what it was trained on"
    low, high = LABELS.width.min(), LABELS.width.max()
    middle = Features(*(float(np.median(column)) for column in numbers(LABELS).T))  # type: ignore[arg-type]
    assert back.outside(middle, int(low)) == back.outside(middle, int(high)) == ""
    assert "width" in back.outside(middle, int(high) + 1)
