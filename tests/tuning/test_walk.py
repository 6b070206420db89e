"""Walks through schedules: what is fastest is found through noise, at a cost that is limited."""

from __future__ import annotations

import math
from typing import Any

import pytest
from races import Cost, made_up_race

from spmark.impls.core.errors import BuildError
from spmark.impls.core.interfaces import Config
from spmark.impls.tuning.space import Axis, Space
from spmark.impls.tuning.strategies import walk

NEVER = 1 << 24
SPACE = Space(
    (
        Axis(
            "sharing",
            (
                {"spread": NEVER, "together": NEVER},
                {"spread": NEVER, "together": 64},
                {"spread": 32, "together": NEVER},
            ),
        ),
        Axis.of("lanes", (16, 32, 8)),
        Axis.of("work", (32, 16, 64, 8, 128)),
        Axis.of("by_row", (False, True)),
    )
)


def plain(best: dict[str, Any], step: float = 1.0) -> Cost:
    """Give a time to which every axis adds by itself."""
    return lambda schedule: 10.0 + step * sum(schedule[name] != value for name, value in best.items())


def hidden(schedule: Config) -> float:
    """Give the time of a form one row of which is long: until it is shared, nothing else can be told from noise."""
    chain = 22.0 if schedule["spread"] == schedule["together"] == NEVER else 5.0 + 0.15 * schedule["work"]
    rest = 8.0 + abs(math.log2(schedule["work"] / 8)) + 0.5 * (schedule["lanes"] != 8)
    return 4 + max(chain, rest)


def walked(*costs: Cost, noise: float = 0.0, seed: int = 0) -> list[list[Config]]:
    """Walk through one form for each cost, in one race; give what was asked of each."""

    def cost(config: Config) -> float:
        schedule = {name: value for name, value in config.items() if name != "form"}
        return costs[config["form"]](schedule)

    race, timer = made_up_race(cost, noise, seed)
    known = None
    for form in range(len(costs)):
        known = walk(race, SPACE, {"form": form}, known)
    return [[one for one in timer.asked if one["form"] == form] for form in range(len(costs))]


def best_us(asked: list[Config], cost: Cost) -> float:
    return min(cost({name: value for name, value in one.items() if name != "form"}) for one in asked)


def test_a_walk_ends_at_the_fastest() -> None:
    best = {"lanes": 8, "work": 64, "spread": 32, "together": NEVER, "by_row": True}
    (asked,) = walked(plain(best))
    assert best_us(asked, plain(best)) == 10.0
    assert asked[0] == {"form": 0, "spread": NEVER, "together": NEVER, "lanes": 16, "work": 32, "by_row": False}


@pytest.mark.parametrize("seed", range(12))
def test_what_a_long_row_hides_is_found_through_noise(seed: int) -> None:
    (asked,) = walked(hidden, noise=0.025, seed=seed)
    assert best_us(asked, hidden) == hidden({"spread": 32, "together": NEVER, "work": 8, "lanes": 8}) == 12.0


def test_forms_far_behind_are_given_up() -> None:
    _, slow = walked(plain({}), lambda _: 13.5)
    assert len(slow) == 1  # at what is known to be fast and what is taken first, which are one here


def test_a_later_form_begins_with_what_is_known() -> None:
    best = {"lanes": 8, "work": 64, "by_row": True}
    one, other = walked(plain(best, 4.0), plain(best, 4.0))
    assert other[1].items() >= best.items()
    assert best_us(other, plain(best, 4.0)) == 10.0
    assert len(other) < len(one)  # all axes once


def test_what_cannot_be_built_is_passed_by() -> None:
    def broken(schedule: Config) -> float:
        if schedule["work"] != 8:
            raise BuildError("no kernel")
        return 10.0

    (asked,) = walked(broken)
    assert any(schedule["work"] == 8 for schedule in asked)

    def nothing(schedule: Config) -> float:
        raise BuildError("no kernel")

    assert all(walked(nothing, nothing))
