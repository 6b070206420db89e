"""Walks through schedules: what is fastest is found through noise, at a cost that is limited."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from spmark.impls.stile.walk import Axis, Schedule, Timed, Walks

NEVER = 1 << 24
AXES: list[Axis] = [
    [{"spread": NEVER, "together": NEVER}, {"spread": NEVER, "together": 64}, {"spread": 32, "together": NEVER}],
    [{"lanes": 16}, {"lanes": 32}, {"lanes": 8}],
    [{"work": 32}, {"work": 16}, {"work": 64}, {"work": 8}, {"work": 128}],
    [{"by_row": False}, {"by_row": True}],
]


class Bench:
    """Times by a formula, with the noise of short kernels."""

    def __init__(self, true_us: Callable[[Schedule], float], seed: int = 0, noise_us: float = 0.0) -> None:
        self.asked: list[Schedule] = []
        self.fastest_us = math.inf
        self._true_us, self._noise_us, self._rng = true_us, noise_us, np.random.default_rng(seed)

    def time(self, schedule: Schedule) -> Timed:
        self.asked.append(schedule)
        noise = self._rng.normal(0, self._noise_us, 15)
        timed = Timed.of(schedule, list(self._true_us(schedule) + noise))
        self.fastest_us = min(self.fastest_us, timed.us)
        return timed

    def best_us(self) -> float:
        return min(self._true_us(schedule) for schedule in self.asked)


def plain(best: dict[str, Any], step: float = 1.0) -> Callable[[Schedule], float]:
    """Give a time to which every axis adds by itself."""
    return lambda schedule: 10.0 + step * sum(schedule[name] != value for name, value in best.items())


def hidden(schedule: Schedule) -> float:
    """Give the time of a form one row of which is long: until it is shared, nothing else can be told from noise."""
    chain = 22.0 if schedule["spread"] == schedule["together"] == NEVER else 5.0 + 0.15 * schedule["work"]
    rest = 8.0 + abs(math.log2(schedule["work"] / 8)) + 0.5 * (schedule["lanes"] != 8)
    return 4 + max(chain, rest)


def walked(bench: Bench, *more: Bench) -> None:
    walks = Walks(lambda: min(one.fastest_us for one in (bench, *more)))
    for one in (bench, *more):
        walks.walk(AXES, one.time)


def test_a_walk_ends_at_the_fastest() -> None:
    best = {"lanes": 8, "work": 64, "spread": 32, "together": NEVER, "by_row": True}
    bench = Bench(plain(best))
    walked(bench)
    assert bench.best_us() == 10.0
    assert bench.asked[0] == {"spread": NEVER, "together": NEVER, "lanes": 16, "work": 32, "by_row": False}


def test_nothing_is_asked_twice() -> None:
    bench = Bench(plain({"work": 8, "by_row": True}), noise_us=0.3)
    walked(bench)
    assert len({str(schedule) for schedule in bench.asked}) == len(bench.asked) <= 40


@pytest.mark.parametrize("seed", range(12))
def test_what_a_long_row_hides_is_found_through_noise(seed: int) -> None:
    bench = Bench(hidden, seed, noise_us=0.35)
    walked(bench)
    assert bench.best_us() == hidden({"spread": 32, "together": NEVER, "work": 8, "lanes": 8}) == 12.0


def test_where_two_cannot_be_told_apart_both_are_walked_on_from() -> None:
    def either(schedule: Schedule) -> float:
        """Be fast with 32 lanes or with 8 before work is looked at, and with 8 only after."""
        return 10.0 + 3 * (schedule["lanes"] == 16) - 2 * (schedule["lanes"] == 8 and schedule["work"] == 64)

    for seed in range(8):
        bench = Bench(either, seed, noise_us=0.3)
        walked(bench)
        assert bench.best_us() == 8.0


def test_forms_far_behind_are_given_up() -> None:
    fast, slow = Bench(plain({})), Bench(lambda _: 13.5)
    walked(fast, slow)
    assert len(slow.asked) == 1  # at what is known to be fast and what is taken first, which are one here
    first = Bench(lambda _: 13.5)
    first.fastest_us = 10.0
    walked(first)
    assert {schedule["work"] for schedule in first.asked} == {32}  # only who shares rows, and lanes, are tried
    assert len(first.asked) == 1 + 2 + 2 * 2


def test_a_later_form_begins_with_what_is_known() -> None:
    best = {"lanes": 8, "work": 64, "by_row": True}
    one, other = Bench(plain(best, 4.0)), Bench(plain(best, 4.0))
    walked(one, other)
    assert other.asked[1].items() >= best.items()
    assert other.best_us() == 10.0
    assert len(other.asked) < len(one.asked)  # what was far behind is not asked again


def test_what_cannot_be_built_is_passed_by() -> None:
    bench = Bench(lambda schedule: 10.0 if schedule["work"] == 8 else math.inf)

    def time(schedule: Schedule) -> Timed:
        found = bench.time(schedule) if schedule["work"] == 8 else Timed(schedule, math.inf)
        bench.fastest_us = min(bench.fastest_us, found.us)
        return found

    Walks(lambda: bench.fastest_us).walk(AXES, time)
    assert any(schedule["work"] == 8 for schedule in bench.asked)
    nothing = Walks(lambda: math.inf)
    nothing.walk(AXES, lambda schedule: Timed(schedule, math.inf))
    nothing.walk(AXES, lambda schedule: Timed(schedule, math.inf))


def test_the_error_of_a_median() -> None:
    rng = np.random.default_rng(4)
    draws = rng.normal(20.0, 0.5, (4000, 15))
    timed = [Timed.of({}, list(draw)) for draw in draws]
    spread = float(np.std([one.us for one in timed]))
    assert np.mean([one.error_us for one in timed]) == pytest.approx(spread, rel=0.15)
    assert Timed({}, 10.0, 0.1).ties(Timed({}, 10.2, 0.1))
    assert not Timed({}, 10.0, 0.1).ties(Timed({}, 10.3, 0.1))
    assert Timed.of({}, [5.0] * 14 + [50.0]).error_us == 0.0
