"""Strategies on made-up times: what each asks for, and that noise alone moves none of them."""

from __future__ import annotations

from typing import Any

from races import made_up_race

from spmark.impls.core.errors import BuildError
from spmark.impls.core.interfaces import Config
from spmark.impls.tuning.space import Axis, Space
from spmark.impls.tuning.strategies import along, exhaustive, first_built, walk


def test_exhaustive_asks_for_everything_and_gives_the_first_of_equals() -> None:
    race, timer = made_up_race(lambda config: abs(config["x"] - 3) + 1.0)
    assert exhaustive(race, [{"x": x} for x in (5, 4, 2, 1)]).config == {"x": 4}
    assert len(timer.asked) == 4


def test_others_are_asked_for_in_place_of_configs_that_cannot_be_built() -> None:
    def cost(config: Config) -> float:
        if config["x"] % 2:
            raise BuildError("odd")
        return 10.0 - config["x"]

    race, timer = made_up_race(cost)
    assert first_built(race, [{"x": x} for x in (5, 2, 1, 3, 4, 6)], 2).config == {"x": 4}
    assert [config["x"] for config in timer.asked] == [5, 2, 1, 3, 4]
    assert first_built(race, [{"x": x} for x in (1, 8, 3)], 2).config == {"x": 8}


def test_an_axis_ends_after_two_values_that_are_clearly_worse() -> None:
    race, timer = made_up_race(lambda config: 10.0 * config["c"])
    assert along(race, {"c": 1}, "c", (2, 4, 8, 16)) == {"c": 1}
    assert [config["c"] for config in timer.asked] == [1, 2, 4]


def test_a_better_value_begins_the_count_of_worse_ones_again() -> None:
    times = {1: 10.0, 2: 11.0, 4: 9.0, 8: 10.0, 16: 5.0}
    race, _ = made_up_race(lambda config: times[config["c"]])
    assert along(race, {"c": 1}, "c", (2, 4, 8, 16)) == {"c": 16}


def test_values_of_an_axis_are_prepared_together() -> None:
    asked: list[list[int]] = []
    race, timer = made_up_race(
        lambda config: float(config["c"]), prepare=lambda configs: asked.append([config["c"] for config in configs])
    )
    along(race, {"c": 1}, "c", (2, 4, 8, 16))
    assert asked[0] == [1, 2, 4, 8, 16]
    assert [config["c"] for config in timer.asked] == [1, 2, 4]


def test_noise_moves_nothing_along_an_axis() -> None:
    moved = 0
    for seed in range(30):
        race, _ = made_up_race(lambda config: 100.0, noise=0.05, seed=seed)
        moved += along(race, {"c": 1}, "c", (2,)) != {"c": 1}
    assert moved <= 6, "a tie keeps what was there before"
    race, _ = made_up_race(lambda config: 100.0 - 20 * (config["c"] == 4), noise=0.02)
    assert along(race, {"c": 1}, "c", (2, 4)) == {"c": 4}


SPACE = Space((Axis.of("x", (1, 2, 3)), Axis.of("y", (1, 2, 3)), Axis.of("z", (1, 2, 3))))


def test_a_walk_finds_the_best_of_axes_that_hide_each_other() -> None:
    """While x is 1, neither y nor z shows; the best is (3, 2, 3)."""

    def cost(config: dict[str, Any]) -> float:
        if config["x"] == 1:
            return 100.0
        return 80.0 + 10 * (config["x"] != 3) + 5 * (config["y"] != 2) + 3 * (config["z"] != 3)

    race, timer = made_up_race(cost)
    walk(race, SPACE, {"fixed": 7})
    assert race.finish()[0] == {"fixed": 7, "x": 3, "y": 2, "z": 3}
    assert len(timer.asked) < len(list(SPACE.configs()))
