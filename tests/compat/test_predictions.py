"""What shipped models say of fifty matrices does not move, to the last bit: choices of users follow from it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from compat_facts import MATRICES, predictions, prices, read

pytestmark = pytest.mark.full

FROZEN: list[dict[str, Any]] = read("predictions.json.gz")


@pytest.mark.parametrize("first", range(0, MATRICES, 10))
def test_predictions_are_those_of_old(first: int) -> None:
    moved = []
    for number in range(first, first + 10):
        today = json.loads(json.dumps(predictions(number)))
        assert today.keys() >= FROZEN[number].keys()
        moved += [
            f"matrix {number}, {name}: {old}, now {today[name]}"
            for name, old in FROZEN[number].items()
            if today[name] != old
        ]
    assert not moved, "other choices would be made:\n" + "\n".join(moved[:10])


def test_the_matrices_ask_for_every_answer() -> None:
    """Else a model could change unseen."""
    assert len(FROZEN) == MATRICES
    assert len({one["matrix"] for one in FROZEN}) == MATRICES
    chosen = {tuple(one[f"liteform {name} J512"][:2]) for one in FROZEN for name in ("nvidia-h200", "published-v100")}
    assert {form for form, _ in chosen} == {"csr", "cell"}
    assert len({tuple(one["lo_spmm estimate"][1]) for one in FROZEN}) > 10
    assert len({tuple(one["lo_spmm ec_spmm"][1]) for one in FROZEN}) > 10
    stile = [one["stile nvidia-h200 spmm float32"] for one in FROZEN]
    assert len({one[1] for one in stile}) > 1
    assert sum(one[5] > 0 for one in stile) > 10  # withdrawn


def test_prices_are_those_of_old() -> None:
    frozen, today = read("prices.json"), json.loads(json.dumps(prices()))
    assert frozen.keys() <= today.keys()
    for name, old in frozen.items():
        if name.endswith("mlp"):
            assert today[name] == pytest.approx(old, rel=1e-12, abs=0), name
        else:
            assert today[name] == old, name
