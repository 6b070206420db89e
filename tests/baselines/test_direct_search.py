"""The search of `direct` on made-up times: every step finds its best."""

from __future__ import annotations

import pytest
from problems import random_csr
from races import made_up_race

from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import Op, Problem
from spmark.impls.direct.plan import Direct
from spmark.impls.direct.search import kernels_ahead, search_direct
from spmark.impls.kernels.direct_space import DIRECT_SPMM, direct_deep, direct_starts
from spmark.impls.kernels.direct_spmm import UNSPLIT, direct_instance, usual_schedule
from spmark.impls.runtime.device import find
from spmark.impls.tuning.tune import space_of

SHORT = Problem(Op.SPMM, random_csr(64, 64, [5] * 62 + [40] * 2), 64)
LONG = Problem(Op.SPMM, random_csr(64, 128, [20] * 60 + [120] * 4), 64)


def searched(problem: Problem, best: Config) -> tuple[Config, list[Config]]:
    """Give what a search ends with where each tunable of ``best`` halves the time, and what it asked for."""

    def cost(config: Config) -> float:
        return float(100.0 * 0.5 ** sum(config[name] == value for name, value in best.items()))

    race, timer = made_up_race(cost)
    search_direct(problem, race)
    space = space_of(DIRECT_SPMM, problem)
    assert all(config in space for config in timer.asked)
    return race.finish()[0], timer.asked


@pytest.mark.parametrize(
    ("problem", "best"),
    [
        (SHORT, {"lanes": 8, "vectors": 2, "rows": 4, "unroll": 2, "longest": UNSPLIT, "threads": 256}),
        (SHORT, {"lanes": 16, "vectors": 1, "rows": 1, "threads": 64}),
        (LONG, {"parts": 4, "lanes": 8, "vectors": 1, "threads": 64, "longest": 52}),
        (LONG, {"unroll": 8, "lanes": 8, "threads": 64}),
    ],
)
def test_the_best_of_each_axis_is_found(problem: Problem, best: Config) -> None:
    config, asked = searched(problem, best)
    assert best.items() <= config.items()
    starts = direct_starts(problem)
    assert asked[: len(starts)] == starts
    assert len(asked) <= 40


@pytest.mark.parametrize("problem", [SHORT, LONG])
def test_most_kernels_of_a_search_are_named_ahead(problem: Problem) -> None:
    _, asked = searched(problem, {"lanes": 8, "unroll": 8})
    needed, named = {direct_instance(problem, one) for one in asked}, list(kernels_ahead(problem))
    assert named[: len(direct_starts(problem))] == [direct_instance(problem, one) for one in direct_starts(problem)]
    assert len(needed - set(named)) <= len(needed) // 4
    assert list(Direct().ahead(problem)) == [direct_instance(problem, usual_schedule(problem))]


def test_small_problems_are_deep_in_every_way() -> None:
    _, asked = searched(LONG, {"unroll": 8})
    deep = direct_deep(LONG)
    assert deep
    assert all(any(one.items() <= config.items() for config in asked) for one in deep)


def test_without_a_gpu_the_rules_choose() -> None:
    host = find("host-simt")
    assert Direct(search=True).build(SHORT, host).config == Direct().build(SHORT, host).config
