"""The race: every candidate once, ties by errors, finalists again, budgets, reasons and accounts."""

from __future__ import annotations

import gc
import math
from typing import Any, ClassVar
from weakref import WeakSet

import pytest
from problems import problems
from races import Cost, made_up_race

from spmark.impls.core.errors import BuildError
from spmark.impls.core.interfaces import Built, Plan
from spmark.impls.runtime.device import find
from spmark.impls.scipy_cpu.plan import ScipyCpu
from spmark.impls.tuning.race import FINALISTS, FIRST, MORE, ConfigTime, Race, fastest_plan


def cost_of(config: dict[str, Any]) -> float:
    return float(config["x"])


def broken_at(broken: int) -> Cost:
    def cost(config: dict[str, Any]) -> float:
        if config["x"] == broken:
            raise BuildError(f"{broken} is broken")
        return cost_of(config)

    return cost


def test_a_candidate_is_built_and_timed_once() -> None:
    race, timer = made_up_race(cost_of)
    assert race.time({"x": 3, "y": 1}) is race.time({"y": 1, "x": 3}), "the order of tunables does not matter"
    assert len(timer.asked) == 1


def test_disturbed_samples_make_no_tie() -> None:
    """The last samples of two variants of cuSPARSE for lp_qap15 at J = 32 on an H200."""
    slow = ConfigTime.of({}, [109.5, 22.8, 122.3, 23.4, 23.1, 23.8, 23.6, 94.3, 22.2, 23.2])
    fast = ConfigTime.of({}, [9.1, 9.2, 8.8, 8.9, 79.1, 8.9, 8.4, 9.0, 8.6, 8.9])
    assert not slow.ties(fast)
    assert ConfigTime.of({}, [9.0, 9.2, 8.8, 8.9, 79.1, 8.9, 8.5, 9.1, 8.7, 8.9]).ties(fast)


def test_the_fastest_are_timed_again_in_alternation_and_the_first_of_ties_is_taken() -> None:
    race, timer = made_up_race(cost_of)
    race.time_all([{"x": x} for x in (9, 8, 7, 5, 6, 5.0, 20)])
    config, plan = race.finish()
    assert config == {"x": 5}
    assert plan.config == config
    (finals,) = timer.finals
    assert len(finals) == FINALISTS
    assert {"x": 20} not in finals
    assert [len(one.samples_us) for one in race.describe().seen if one.config == {"x": 5}] == [FIRST + MORE + 50] * 2


@pytest.mark.parametrize("seed", range(1, 8))  # all of these tie; one in twenty does not
def test_the_first_that_was_met_wins_whatever_the_samples_of_ties_say(seed: int) -> None:
    race, _ = made_up_race(lambda _: 10.0, noise=0.05, seed=seed)
    race.time_all([{"x": x} for x in range(3)])
    assert race.finish()[0] == {"x": 0}


def test_of_ties_what_is_preferred_wins_before_what_was_met_first() -> None:
    race, _ = made_up_race(lambda _: 10.0)
    race.time_all([{"x": x} for x in range(3)])
    assert race.finish([{"x": 1}, {"x": 0}])[0] == {"x": 1}


def test_candidates_that_take_turns_are_compared_with_each_other_and_with_the_fastest_so_far() -> None:
    race, timer = made_up_race(cost_of, compiled=lambda: 3)
    assert [timed.us for timed in race.time_by_turns([{"x": 30}, {"x": 20}, {"x": 21}])] == [30, 20, 21]
    assert [timed.us for timed in race.time_by_turns([{"x": 20}, {"x": 24}, {"x": 26}, {"x": 24}])] == [20, 24, 26, 24]
    assert [[plan["x"] for plan in turn] for turn in timer.turns] == [[30, 20, 21], [20, 21], [24, 26], [24]]
    assert [len(one.samples_us) for one in race.describe().seen] == [FIRST, *[FIRST + MORE] * 3, FIRST]
    assert race.describe().compiled == 3


def test_what_fails_among_candidates_that_take_turns_leaves_the_others_their_times() -> None:
    race, _ = made_up_race(broken_at(2))
    assert [timed.us for timed in race.time_by_turns([{"x": 1}, {"x": 2}, {"x": 3}])] == [1, math.inf, 3]
    assert [one.reason for one in race.describe().seen] == ["", "2 is broken", ""]


def test_what_a_race_trusts_is_not_checked() -> None:
    race, timer = made_up_race(cost_of, trusts=lambda config: config["x"] > 1)
    race.time_all([{"x": 1}, {"x": 2}])
    assert timer.asked == [{"x": 1}]
    assert race.finish()[0] == {"x": 1}


def test_what_fails_is_kept_with_its_reason() -> None:
    def cost(config: dict[str, Any]) -> float:
        if config["x"] == 1:
            raise BuildError("wrong result: expected an error of at most 1, found 2")
        if config["x"] == 2:
            raise MemoryError
        return float(config["x"])

    race, _ = made_up_race(cost)
    assert [timed.us for timed in race.time_all([{"x": 1}, {"x": 2}, {"x": 3}])] == [math.inf, math.inf, 3.0]
    record = race.describe(cores=4, eligible=9)
    reasons = [one.reason for one in record.seen]
    assert reasons == ["wrong result: expected an error of at most 1, found 2", "MemoryError", ""]
    assert (record.candidates, record.measured, record.cores, record.eligible) == (3, 1, 4, 9)
    assert race.finish()[0] == {"x": 3}


def test_nothing_that_works_is_an_error_with_every_reason_once() -> None:
    def cost(config: dict[str, Any]) -> float:
        raise BuildError(f"{config['x'] % 2} is broken")

    race, _ = made_up_race(cost)
    race.time_all([{"x": x} for x in range(4)])
    with pytest.raises(BuildError, match=r"one of 4 candidates .* found none: 0 is broken; 1 is broken$"):
        race.finish()


def test_candidates_are_prepared_together_once() -> None:
    asked: list[list[Any]] = []

    def prepare(configs: Any) -> None:
        asked.append([config["x"] for config in configs])
        raise BuildError("one of them does not compile: the candidate says so itself")

    race, _ = made_up_race(cost_of, prepare=prepare)
    race.time_all([{"x": 1}, {"x": 2}])
    race.time_all([{"x": 2}, {"x": 3}])
    race.time_all([{"x": 3}])
    assert asked == [[1, 2], [3]]
    assert race.finish()[0] == {"x": 1}


def test_a_budget_ends_a_search_but_not_before_the_first_candidate() -> None:
    race, timer = made_up_race(cost_of, budget_s=0.0)
    race.time_all([{"x": x} for x in (5, 4, 3)])
    assert timer.asked == [{"x": 5}]
    reasons = [one.reason for one in race.describe().seen]
    assert reasons[0] == ""
    assert all("budget ended after" in reason for reason in reasons[1:])
    assert race.finish()[0] == {"x": 5}


class Large(Built):
    """A plan of which no more than two fit into memory."""

    alive: ClassVar[WeakSet[Large]] = WeakSet()

    def __init__(self, config: dict[str, Any]) -> None:
        gc.collect()
        if len(self.alive) >= 2:
            raise MemoryError("no room")
        super().__init__(config=config)
        self.alive.add(self)

    __hash__ = object.__hash__


def test_finalists_make_room_for_a_candidate_and_are_built_again() -> None:
    race: Race[Large] = Race(lambda config: Large(dict(config)), made_up_race(cost_of)[1])
    race.time_all([{"x": x} for x in (4, 3, 2, 1)])
    assert [one.reason for one in race.describe().seen] == [""] * 4
    config, plan = race.finish()
    assert plan.config == config
    assert config["x"] <= 2, "what cannot be built again beside the fastest stays out of the last round"


def test_finalists_that_cannot_be_built_again_are_an_error_of_ours() -> None:
    room = True

    def made(config: dict[str, Any]) -> Built:
        if not room:
            raise MemoryError
        return Built(config=dict(config))

    race: Race[Built] = Race(made, made_up_race(cost_of)[1])
    race.time_all([{"x": 2}, {"x": 1}])
    room = False
    race.time({"x": 3})
    assert [one.reason for one in race.describe().seen] == ["", "", "MemoryError"]
    with pytest.raises(
        BuildError, match="expected memory to build one of the 2 fastest candidates again, found too li"
    ):
        race.finish()


def test_the_accounts_tell_compiling_from_running_and_leave_out_the_plan_that_is_kept() -> None:
    def build(config: dict[str, Any]) -> Built:
        return Built(config=dict(config), phases_s={"compile": config["x"] * 1.0})

    race: Race[Built] = Race(build, made_up_race(cost_of)[1], predict=lambda config: config["x"] / 2)
    race.time_all([{"x": 2}, {"x": 1}])
    race.finish()
    record = race.describe()
    assert record.compile_s == pytest.approx(2.0)
    assert 0 < record.run_s < 1
    assert [one.predicted for one in record.seen] == [1.0, 0.5]


def test_the_fastest_of_a_few_says_what_the_race_cost() -> None:
    problem, device = problems()["sddmm-hub-J32-float32"], find("cpu")
    configs, built = [{"chunk_bytes": 64}, {"chunk_bytes": 1 << 16}], list[Plan]()

    def build(config: dict[str, Any]) -> Plan:
        built.append(ScipyCpu(**config).build(problem, device))
        built[-1].charge({"compile": 100.0})
        return built[-1]

    plan = fastest_plan(problem, device, build, configs)
    assert plan in built
    assert plan.search is not None
    assert [one.config for one in plan.search.seen] == configs
    assert plan.search.measured == 2
    assert -100 < plan.phases_s["search"] < 0, "what the plan reports itself is none of the search"
