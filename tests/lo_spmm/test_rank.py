"""The rank model: its arithmetic, and a file that is checked to the last number."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError
from rank_fakes import stump

from spmark.impls.core.errors import BuildError
from spmark.impls.lo_spmm.rank import FEATURES, SHIPPED, RankModel, Trees, find


def test_scores_are_sums_of_leaves_and_less_is_better() -> None:
    trees = Trees(
        roots=(0, 3),
        feature=(2, -1, -1, 0, 4, -1, -1, -1),
        threshold=(0.5, 10.0, 20.0, 1.0, 7.0, 3.0, 1.0, 2.0),
        left=(1, 0, 0, 4, 6, 0, 0, 0),
        right=(2, 0, 0, 5, 7, 0, 0, 0),
    )
    samples = np.zeros((3, len(FEATURES)))
    samples[:, 2] = (0.5, 0.6, 0.4)
    samples[:, 0] = (1.0, 1.0, 2.0)
    samples[:, 4] = (7.0, 8.0, 0.0)
    model = stump(0, 0.0).model_copy(update={"trees": trees})
    assert model.trees.score(samples).tolist() == [-11.0, -22.0, -13.0]


def test_a_file_gives_back_the_model(tmp_path: Path) -> None:
    kept = stump(3, 1 / 3).save(tmp_path / "a" / "mine.json")
    assert kept.digest
    assert RankModel.load(tmp_path / "a" / "mine.json") == kept
    assert find(str(tmp_path / "a" / "mine.json")) == kept


def damaged(change: str) -> object:
    def edit(facts: dict[str, object]) -> None:
        if change == "a number":
            facts["trees"]["threshold"][1] = 5.0  # type: ignore[index]
        elif change == "the features":
            facts["features"] = list(reversed(FEATURES))
        elif change == "a loop":
            facts["trees"]["left"][0] = 0  # type: ignore[index]
        elif change == "a stranger":
            facts["code"] = "import os"

    return edit


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("a number", "it is damaged"),
        ("the features", "expected features in the order"),
        ("a loop", "expected left of trees"),
        ("a stranger", "Extra inputs"),
    ],
)
def test_a_damaged_file_is_refused(change: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    stump(3, 0.5).save(path)
    facts = json.loads(path.read_text())
    damaged(change)(facts)  # type: ignore[operator]
    path.write_text(json.dumps(facts))
    with pytest.raises(BuildError, match=said):
        RankModel.load(path)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(BuildError, match=r"deep\.json: expected a rank model"):
        RankModel.load(tmp_path / "deep.json")
    (tmp_path / "torn.json").write_text('{"schema_version": 1, "card"')
    with pytest.raises(BuildError, match="a rank model that can be read"):
        RankModel.load(tmp_path / "torn.json")
    with pytest.raises(BuildError, match="expected a model out of"):
        find("nobody")
    with pytest.raises(BuildError, match="cannot be written"):
        stump(0, 0.0).save(tmp_path / "torn.json" / "below.json")


@pytest.mark.parametrize(
    "lists",
    [
        {"roots": (3,)},
        {"roots": ()},
        {"threshold": (0.0, 1.0)},
        {"right": (9, 0, 0)},
        {"feature": (99, -1, -1)},
        {"left": (2**70, 0, 0)},
    ],
)
def test_trees_are_closed(lists: dict[str, tuple[float, ...]]) -> None:
    with pytest.raises(ValidationError):
        Trees.model_validate({**stump(0, 0.0).trees.model_dump(), **lists})


def test_what_ships_can_be_read() -> None:
    model = find(SHIPPED)
    assert model.card.gpu
    assert model.card.groups >= 100
    assert set(model.card.ranges) == set(FEATURES)
