"""The search of the kernel that takes CSR as it comes, for every system in which the kernel competes with formats."""

from __future__ import annotations

from spmark.impls.core.problem import Problem
from spmark.impls.kernels.direct_spmm import DIRECT, direct_axes, direct_starts
from spmark.impls.tuning.race import ConfigTime
from spmark.impls.tuning.strategies import Times, along, exhaustive


def search_direct(problem: Problem, race: Times) -> ConfigTime:
    """Time some eleven schedules of `DirectPlan`: tiles, rows and unrolling, tiles once more, long rows and blocks.

    Of the whole product (at most 288 schedules; 72 problems of 12 matrices, tuning half and seeded; H200) the walk came
    within 0.5 % of the fastest in the geometric mean, and within 8 % at worst.

    Parameters
    ----------
    problem : Problem
    race : Race
        Of configs ``format, vector, vectors, lanes, unroll, rows, longest, threads``, among others.
    """
    axes = direct_axes(problem)
    starts = [{**DIRECT, **schedule} for schedule in direct_starts(problem)]
    best = exhaustive(race, starts).config
    best = along(race, along(race, best, "rows", axes["rows"]), "unroll", axes["unroll"])
    tile_names = ("vector", "vectors", "lanes")
    best = exhaustive(
        race, [best, *({**best, **{name: start[name] for name in tile_names}} for start in starts)]
    ).config
    return race.time(along(race, along(race, best, "longest", axes["longest"]), "threads", axes["threads"]))
