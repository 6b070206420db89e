"""Spaces: every legal config once, and a digest that follows them."""

from __future__ import annotations

from typing import Any

import pytest

from spmark.impls.tuning.space import Axis, Space, key_of

TILES = Axis("tile", ({"vector": 4, "lanes": 8}, {"vector": 2, "lanes": 16}))
SPACE = Space((TILES, Axis.of("work", (8, 16, 32))))


def test_configs_are_the_product_of_the_axes_in_order() -> None:
    configs = list(SPACE.configs())
    assert configs[:3] == [{"vector": 4, "lanes": 8, "work": work} for work in (8, 16, 32)]
    assert len(configs) == len({key_of(config) for config in configs}) == 6


def test_what_is_illegal_is_left_out() -> None:
    legal = Space(SPACE.axes, lambda config: config["vector"] * config["work"] <= 32)
    assert [(config["vector"], config["work"]) for config in legal.configs()] == [(4, 8), (2, 8), (2, 16)]


def test_a_digest_follows_the_legal_configs_alone() -> None:
    turned = Space((Axis.of("work", (32, 16, 8)), Axis("another name", TILES.values[::-1])))
    assert turned.digest == SPACE.digest, "order and names of axes are no part of what can be chosen"
    assert Space((TILES, Axis.of("work", (8, 16)))).digest != SPACE.digest
    assert Space(SPACE.axes, lambda config: config["work"] < 32).digest != SPACE.digest
    assert SPACE.digest == "6ccd6db789705fbb", "it is the same in every process and version"


@pytest.mark.parametrize(
    ("config", "inside"),
    [
        ({"vector": 4, "lanes": 8, "work": 8}, True),
        ({"vector": 4, "lanes": 16, "work": 8}, False),
        ({"vector": 4, "lanes": 8}, False),
        ({"vector": 4, "lanes": 8, "work": 8, "more": 1}, False),
        ({"vector": 4.0, "lanes": 8, "work": 8}, False),
        ({"vector": 4, "lanes": 8, "work": "8"}, False),
        ({"vector": 4, "lanes": 8, "work": 8, "thirds": True}, True),
        ({"vector": 4, "lanes": 8, "work": 8, "thirds": 1}, False),
    ],
)
def test_a_config_of_a_file_is_held_against_the_axes(config: dict[str, Any], inside: bool) -> None:
    assert (config in Space((*SPACE.axes, Axis("thirds", ({}, {"thirds": True}))))) == inside
    assert config not in Space(SPACE.axes, lambda config: False)


def test_a_sample_is_legal_without_repetition_and_the_same_for_one_seed() -> None:
    legal = Space(SPACE.axes, lambda config: config["vector"] * config["work"] <= 32)
    drawn = legal.sample(7, 2)
    assert drawn == legal.sample(7, 2)
    assert drawn == legal.sample(7, 3)[:2], "a longer draw begins as a shorter one"
    everything = legal.sample(7, 100)
    assert sorted(map(key_of, everything)) == sorted(map(key_of, legal.configs()))
