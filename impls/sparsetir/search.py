"""The searches over hyb(c, k) and SDDMM's schedules: which candidates are timed, and in what order.

SparseTIR searches c and k over small sets and measures every candidate (Ye et al., ASPLOS 2023, section 4.2.1). Here
the schedule is searched as well, one axis after the other. The tile comes first, since it decides most, then the width
of the last bucket and the threads that take long rows. This walk starts from A's order of rows and from an order that
puts rows with common columns together. The column partitions follow, and then all axes once more. An axis ends early
where two values in a row are clearly worse. Where bucket widths of 24, 48, 96, ... save padding, the last bucket is
searched with and without them.

Beside them stand the spaces of the paper's own search, with the schedules of its public code; every config of these is
measured (sections 4.2.1 and 4.2.2).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any

from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import Op, Problem
from spmark.impls.formats.hyb import partition_columns, slots_of, widths_up_to
from spmark.impls.kernels.ell_buckets import NEVER, TOGETHER, ell_instance, ell_tiles
from spmark.impls.kernels.family import Axes, tiles_of
from spmark.impls.kernels.hyb_spmm import HYB_SPMM, MAX_WIDTHS, PARTITIONS, filling_instance, rule_width
from spmark.impls.kernels.sddmm import CSR_SDDMM, GROUPS, run_tiles, sddmm_kernel
from spmark.impls.kernels.shared_rows import shared_instances
from spmark.impls.runtime.template import Instance, loads_of
from spmark.impls.tuning.race import ConfigTime, Race
from spmark.impls.tuning.runs import search_runs
from spmark.impls.tuning.strategies import along, both_ways, exhaustive, fastest
from spmark.impls.tuning.tune import space_of

LANES = 32
"""Threads that share a row of C in the paper's space."""
_LARGE = 4_000_000
"""Products nnz J above which reading B takes the time."""
_WORTH = 0.05
"""Share of the slots that widths between the powers of two must save."""


def _is_large(problem: Problem) -> bool:
    """Tell whether reading B, not starting up, takes the time."""
    return problem.matrix.nnz * problem.width > _LARGE


def thirds_pay(problem: Problem, partitions: int, max_width: int) -> bool:
    """Tell whether widths of 24, 48, 96, ... save more than 5 % of the slots. O(I + pieces log pieces), no device."""
    lengths = partition_columns(problem.matrix, partitions).table[2]
    powers, between = (slots_of(lengths, widths_up_to(max_width, thirds)) for thirds in (False, True))
    return powers - between > _WORTH * powers


def spmm_tiles(problem: Problem) -> list[Config]:
    """List the tiles worth trying: narrower loads only pay where they give small problems more threads."""
    every = ell_tiles(problem.width, problem.dtype)
    return [tile for tile in every if tile["vector"] == every[0]["vector"] or not _is_large(problem)]


def search_hyb(problem: Problem, pinned: Mapping[str, Any], race: Race[Any]) -> None:
    """Time the configs of hyb(c, k), with their schedules, that are worth trying.

    Parameters
    ----------
    problem : Problem
    pinned : mapping
        Tunables that are not searched, of ``c`` and ``max_width``.
    race : Race
        Of configs of `HYB_SPMM`, with ``thirds`` where such widths are tried.
    """
    widest = max(32, min(rule_width(problem), 512))
    start: Config = {"c": 1, "max_width": widest, "work": 32, "spread": 128, "together": NEVER, "threads": 128}
    start |= {"order": "width", **pinned, **spmm_tiles(problem)[0]}
    # All other axes depend on the order of rows: where rows of B may meet in a cache, both orders are starts.
    square = problem.matrix.num_rows == problem.matrix.num_cols
    orders = ("width", "near") if square and _is_large(problem) else ("width",)
    best = fastest([_one_turn(problem, race, {**start, "order": order}, pinned) for order in orders]).config
    if "c" not in pinned:
        best = along(race, best, "c", PARTITIONS[1:])
    _one_turn(problem, race, best, pinned)


def _one_turn(problem: Problem, race: Race[Any], config: Config, pinned: Mapping[str, Any]) -> ConfigTime:
    """Go along every axis once, without the column partitions, each of which costs a conversion."""
    best = exhaustive(race, [{**config, "threads": 128, **tile} for tile in spmm_tiles(problem)]).config
    axes = HYB_SPMM.axes(problem, {})
    best = both_ways(race, best, "work", axes["work"])
    widths = () if "max_width" in pinned else sorted(axes["max_width"])
    rule = (rule_width(problem),) if widths else ()

    def widened(ways: list[Config]) -> ConfigTime:
        return exhaustive(race, [along(race, both_ways(race, w, "max_width", widths), "max_width", rule) for w in ways])

    # Whether blocks take long rows together decides how wide the last bucket should be: both ways are followed.
    best = widened([{**best, "together": together} for together in TOGETHER[:2]]).config
    if "thirds" not in best and thirds_pay(problem, best["c"], pinned.get("max_width", MAX_WIDTHS[-1])):
        best = fastest([race.time(best), widened([{**best, "thirds": True}])]).config
    if best["together"] != NEVER:
        best = along(race, best, "together", TOGETHER[1:])
    best = along(race, best, "spread", sorted(axes["spread"]))
    best = along(race, best, "order", ("row",))
    return race.time(along(race, best, "threads", (256,) if best["vectors"] == 2 else ()))


def search_sddmm(problem: Problem, race: Race[Any]) -> None:
    """Time SparseTIR's space, and then the tiles that keep rows of X in registers over a run of non-zeros.

    Parameters
    ----------
    problem : Problem
    race : Race
        Of configs ``vector, lanes, batch``, and of the configs of `search_runs`.
    """
    exhaustive(race, space_of(CSR_SDDMM, problem).configs())
    search_runs(problem, race, {})


def kernels_ahead(problem: Problem) -> Iterator[Instance]:
    """Give the kernels that `search_hyb` or `search_sddmm` asks for, in the order of asking."""
    if problem.op is Op.SDDMM:
        runs = ({**tile, "run": tile["batch"]} for tile in run_tiles(problem.width, problem.dtype))
        yield from (sddmm_kernel(problem, config) for config in (*space_of(CSR_SDDMM, problem).configs(), *runs))
        return
    tiles = spmm_tiles(problem)
    yield from (ell_instance(problem, tile) for tile in tiles)
    yield filling_instance(problem.dtype)
    yield from shared_instances(True, problem.width, problem.dtype, tiles[0]["vector"])
    yield from (ell_instance(problem, {**tile, "threads": 256}) for tile in tiles if tile["vectors"] == 2)


class SpaceOwner(StrEnum):
    """Whose search."""

    OWN = "own"
    """Ours: more widths and orders of rows, and schedules one axis after the other."""
    PAPER = "paper"
    """The paper's: every config of `PAPERS_HYB` or `PAPERS_SDDMM`."""


def _spmm(problem: Problem, pinned: Config) -> Axes:
    width = pinned.get("max_width", rule_width(problem))
    form = {"max_width": width, "order": "width", "tail_in_last": True}
    schedule = {"vector": 1, "lanes": LANES, "work": width, "threads": 128, "spread": NEVER, "together": NEVER}
    return {
        "c": (pinned["c"],) if "c" in pinned else PARTITIONS,
        "fixed": (form | schedule,),
        "vectors": (1, 2) if problem.width > LANES else (1,),
    }


def _sddmm(problem: Problem, pinned: Config) -> Axes:
    tiles = [
        {"vector": tile["vector"], "lanes": tile["lanes"], "threads": groups * tile["lanes"]}
        for tile in tiles_of(problem.width, sorted(loads_of(problem.width, 4)), (8, 16, 32))
        for groups in GROUPS
    ]
    return {"tile": tiles, "batch": (1, 2, 4)}


PAPERS_HYB = replace(HYB_SPMM, axes=_spmm)
"""hyb(c, k) with c out of 1, 2, 4, 8, 16 and k = ceil(log2(nnz / I)).

The rest of a folded row stays in the last bucket, and rows stand by width. A group of 32 threads takes 2^k elements of
A. Its threads own one or two columns (the public code's coarsening factor)."""
PAPERS_SDDMM = replace(CSR_SDDMM, axes=_sddmm, default=None)
"""SDDMM with 1, 2 or 4 non-zeros and 1, 2, 4 or 8 groups of a block. Rows come from an array."""
