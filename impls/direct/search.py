"""The search for a schedule of SpMM straight from CSR: some twenty are measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any

from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import Problem
from spmark.impls.kernels.direct_space import DIRECT_SPMM, direct_deep, direct_starts
from spmark.impls.kernels.direct_spmm import direct_instance
from spmark.impls.runtime.template import Instance
from spmark.impls.tuning.race import Race
from spmark.impls.tuning.strategies import both_ways, exhaustive
from spmark.impls.tuning.tune import space_of


def search_direct(problem: Problem, race: Race[Any]) -> None:
    """Time some twenty schedules of `DirectPlan`: tiles, rows, unrolling, tiles again, depth, and then all other axes.

    With two lengths of long rows the walk came within 0.5 % of the fastest of the whole product in the geometric mean,
    and within 8 % at worst (72 problems of 12 matrices, development runs on an H200).

    Parameters
    ----------
    problem : Problem
    race : Race
        Of configs of `DIRECT_SPMM`, perhaps beside others.
    """
    space, axes = space_of(DIRECT_SPMM, problem), DIRECT_SPMM.axes(problem, {})
    starts = direct_starts(problem)
    tiles = [{name: start[name] for name in ("vector", "vectors", "lanes")} for start in starts]

    def varied(config: Config, changes: Iterable[Config]) -> list[Config]:
        return [one for change in changes if (one := {**config, **change}) in space]

    def walked(config: Config, name: str) -> Config:
        return both_ways(race, config, name, [value for value in axes[name] if {**config, name: value} in space])

    best = exhaustive(race, varied({}, starts)).config
    best = walked(walked(best, "rows"), "unroll")
    best = exhaustive(race, [best, *varied(best, tiles)]).config
    best = exhaustive(race, [best, *varied(best, direct_deep(problem))]).config
    for name in axes:
        if name not in {"tile", "rows", "unroll", "parts"}:
            best = walked(best, name)


def kernels_ahead(problem: Problem) -> Iterator[Instance]:
    """Give the kernels of the first schedules, and of those that differ from one of them as the walk does."""
    space, axes, starts = space_of(DIRECT_SPMM, problem), DIRECT_SPMM.axes(problem, {}), direct_starts(problem)
    changes = [{"rows": rows, "unroll": unroll} for rows, unroll in product(axes["rows"][:2], axes["unroll"])]
    changes += [*direct_deep(problem), *({"threads": threads} for threads in axes["threads"][1:])]
    for change, start in product(changes, starts):
        if (config := {**start, **change}) in space:
            yield direct_instance(problem, config)
