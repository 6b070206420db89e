"""The search of the kernel that takes CSR as it comes, for every system in which the kernel competes with formats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import Problem
from spmark.impls.kernels.direct_spmm import DIRECT, direct_axes, direct_deep, direct_starts, is_offered
from spmark.impls.tuning.race import ConfigTime
from spmark.impls.tuning.space import Axis, Space
from spmark.impls.tuning.strategies import Times, along, both_ways, exhaustive


def direct_space(problem: Problem) -> Space:
    """Give the space that the walk of `search_direct` stays in."""
    axes, deep = direct_axes(problem), direct_deep(problem)
    starts: list[Config] = [{**DIRECT, **schedule} for schedule in direct_starts(problem)]
    seen: dict[str, list[Any]] = {}
    single: list[Config] = [{name: value} for name, values in axes.items() for value in values]
    for config in (*starts, *map(dict, deep), *single):
        for name, value in config.items():
            seen.setdefault(name, []).append(value)
    return Space(tuple(Axis.of(name, dict.fromkeys(values)) for name, values in seen.items()), _has_kernel(problem))


def _has_kernel(problem: Problem) -> Callable[[Mapping[str, Any]], bool]:
    return lambda config: is_offered(problem.dtype, {name: config[name] for name in config if name not in DIRECT})


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
