"""The search for a schedule of SpMM straight from CSR: some twenty are measured."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.interfaces import Config, Plan
from spmark.impls.core.problem import Problem
from spmark.impls.kernels.direct_space import DIRECT_SPMM, direct_deep, direct_starts
from spmark.impls.kernels.direct_spmm import usual_schedule
from spmark.impls.tuning.race import Race
from spmark.impls.tuning.strategies import both_ways, exhaustive
from spmark.impls.tuning.tune import space_of, tune


def fastest_direct(problem: Problem, device: DeviceSpec, pinned: Config) -> Plan:
    """Give the plan that won the race of `search_direct`, or one by the rules where nothing can be measured."""
    search = partial(search_direct, problem, pinned=pinned)
    return tune(problem, device, [DIRECT_SPMM], search, owner="direct", pinned=pinned)


def search_direct(problem: Problem, race: Race[Any], pinned: Config) -> None:
    """Time some twenty schedules of `DirectPlan`: tiles, rows, unrolling, tiles again, depth, and then all other axes.

    With two lengths of long rows the walk came within 0.5 % of the fastest of the whole product in the geometric mean,
    and within 8 % at worst (72 problems of 12 matrices, development runs on an H200).

    Parameters
    ----------
    problem : Problem
    race : Race
        Of configs of `DIRECT_SPMM`, perhaps beside others.
    pinned : dict
        Tunables of all configs.
    """
    space, axes = space_of(DIRECT_SPMM, problem, pinned), DIRECT_SPMM.axes(problem, pinned)
    starts = direct_starts(problem)
    tiles = [{name: start[name] for name in ("vector", "vectors", "lanes")} for start in starts]

    def varied(config: Config, changes: Iterable[Config]) -> list[Config]:
        return [one for change in changes if (one := {**config, **change, **pinned}) in space]

    def walked(config: Config, name: str) -> Config:
        values = () if name in pinned else axes[name]
        return both_ways(race, config, name, [value for value in values if {**config, name: value} in space])

    best = exhaustive(race, varied({}, starts) or [usual_schedule(problem, pinned) | pinned]).config
    best = walked(walked(best, "rows"), "unroll")
    best = exhaustive(race, [best, *varied(best, tiles)]).config
    best = exhaustive(race, [best, *varied(best, direct_deep(problem))]).config
    for name in axes:
        if name not in {"tile", "rows", "unroll", "parts"}:
            best = walked(best, name)
