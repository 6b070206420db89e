"""The search of the kernel that takes CSR as it comes, for every system in which the kernel competes with formats."""

from __future__ import annotations

from spmark.impls.core.problem import Problem
from spmark.impls.kernels.direct_spmm import DIRECT, direct_axes, direct_deep, direct_starts
from spmark.impls.tuning.race import ConfigTime
from spmark.impls.tuning.strategies import Times, along, both_ways, exhaustive


def search_direct(problem: Problem, race: Times) -> ConfigTime:
    """Time some twenty schedules of `DirectPlan`: tiles, rows, unrolling, tiles again, depth, long rows and blocks.

    With two lengths of long rows the walk came within 0.5 % of the fastest of the whole product in the geometric mean,
    and within 8 % at worst (72 problems of 12 matrices, development runs on an H200).

    Parameters
    ----------
    problem : Problem
    race : Race
        Of configs ``format, vector, vectors, lanes, parts, unroll, rows, longest, threads``, perhaps beside others.
    """
    axes = direct_axes(problem)
    starts = [{**DIRECT, **schedule} for schedule in direct_starts(problem)]
    best = exhaustive(race, starts).config
    best = along(race, along(race, best, "rows", axes["rows"]), "unroll", axes["unroll"])
    tile_names = ("vector", "vectors", "lanes")
    best = exhaustive(
        race, [best, *({**best, **{name: start[name] for name in tile_names}} for start in starts)]
    ).config
    best = exhaustive(race, [best, *({**best, **deep} for deep in direct_deep(problem))]).config
    best = both_ways(race, best, "longest", axes["longest"])
    return race.time(along(race, best, "threads", axes["threads"]))
