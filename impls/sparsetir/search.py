"""The searches over hyb(c, k), CSR and SDDMM's schedules: which candidates are timed, and in what order.

SparseTIR searches c and k over small sets and measures every candidate (Ye et al., ASPLOS 2023, section 4.2.1). Here
the schedule is searched as well, one axis after the other. The tile comes first, since it decides most, then the width
of the last bucket and the threads that take long rows. This walk starts from A's order of rows and from an order that
puts rows with common columns together. The column partitions follow, and then all axes once more. An axis ends early
where two values in a row are clearly worse. Where bucket widths of 24, 48, 96, ... save padding, the last bucket is
searched with and without them. A few schedules of the kernel that takes CSR as it comes are timed before any schedule
of hyb: where times tie, CSR is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import Problem
from spmark.impls.formats.hyb import slots_of, widths_up_to
from spmark.impls.formats.pieces import partition_columns
from spmark.impls.kernels.ell_buckets import LANES, NEVER
from spmark.impls.kernels.sddmm import rows_are_near
from spmark.impls.runtime.template import loads_of
from spmark.impls.tuning.direct import direct_space, search_direct
from spmark.impls.tuning.race import ConfigTime
from spmark.impls.tuning.runs import runs_space, search_runs
from spmark.impls.tuning.space import Axis, Space
from spmark.impls.tuning.strategies import Times, along, both_ways, exhaustive, fastest

PARTITIONS = (1, 2, 4, 8, 16)
"""c of the paper's search."""
MAX_WIDTHS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048)
"""Widths 2^k of the widest bucket that the walk may try; the width of the paper's rule k = ceil(log2(nnz / I)) is
measured in any case."""
MOST_K = 20
"""Greatest k of hyb(c, k): longer rows are folded, and kernels mark their ranges with numbers above such widths."""
TOGETHER = (64, 128, 32)
"""Widths from which a block takes a row together."""
SPREAD = (32, 64, 128, NEVER)
"""Widths from which the groups of a warp share a row."""
WORK = (8, 16, 32, 64, 128)
"""Elements that a group takes."""
_LARGE = 4_000_000
"""Products nnz J above which reading B takes the time."""
_WORTH = 0.05
"""Share of the slots that widths between the powers of two must save."""


def rule_width(problem: Problem) -> int:
    """Give 2^k by the paper's rule, k = ceil(log2(nnz / I)), at most 2^`MOST_K`."""
    mean = problem.matrix.nnz / problem.matrix.num_rows
    return 1 << min(int(np.ceil(np.log2(max(mean, 1.0)))), MOST_K)


def tiles(problem: Problem, every_lanes: tuple[int, ...] = LANES) -> list[tuple[int, int]]:
    """List (vector, lanes) that fit J: the widest loads that divide it, and half of them, over so many lanes."""
    most = 16 // problem.dtype.itemsize
    vectors = loads_of(problem.width, most)[:2]
    fitting = [(v, n) for v in vectors for n in every_lanes if v * n <= problem.width]
    return fitting or [(vectors[-1], every_lanes[0])]


def _is_large(problem: Problem) -> bool:
    """Tell whether reading B, not starting up, takes the time."""
    return problem.matrix.nnz * problem.width > _LARGE


def thirds_pay(problem: Problem, partitions: int, max_width: int) -> bool:
    """Tell whether widths of 24, 48, 96, ... save more than 5 % of the slots. O(I + pieces log pieces), no device."""
    lengths = partition_columns(problem.matrix, partitions).lengths
    powers, between = (slots_of(lengths, widths_up_to(max_width, thirds)) for thirds in (False, True))
    return powers - between > _WORTH * powers


def spmm_tiles(problem: Problem) -> list[Config]:
    """List the tiles of SpMM.

    The tiles of `tiles`, and two of the widest loads side by side where J has room for both. Narrower loads only pay
    where they give small problems more threads.
    """
    widest = tiles(problem)[0][0]
    single = [
        {"vector": v, "vectors": 1, "lanes": n} for v, n in tiles(problem) if v == widest or not _is_large(problem)
    ]
    room = problem.width // (2 * widest)
    return single + [{**one, "vectors": 2} for one in single if one["vector"] == widest and one["lanes"] <= room]


def hyb_spaces(problem: Problem, pinned: Mapping[str, Any]) -> tuple[Space, ...]:
    """Give the spaces that the walk of `search_hyb` stays in."""
    rule = rule_width(problem)
    of_form = {"c": PARTITIONS, "max_width": dict.fromkeys((*MAX_WIDTHS, rule)), "order": ("width", "near", "row")}
    of_schedule = {"work": WORK, "spread": SPREAD, "together": (NEVER, *TOGETHER), "threads": (128, 256)}
    values = {**of_form, **of_schedule, **{name: (value,) for name, value in pinned.items()}}
    axes = [Axis.of(name, each) for name, each in values.items()]
    if "thirds" not in pinned:
        axes.append(Axis("thirds", ({}, {"thirds": True})))
    hyb = Space((*axes, Axis("tile", tuple(spmm_tiles(problem)))))
    return (hyb,) if pinned else (hyb, direct_space(problem))


def sddmm_spaces(problem: Problem) -> tuple[Space, ...]:
    """Give the spaces that the walk of `search_sddmm` stays in."""
    return sddmm_space(problem), runs_space(problem)


def search_hyb(problem: Problem, pinned: Mapping[str, Any], race: Times) -> None:
    """Time the configs of CSR and of hyb(c, k), with their schedules, that are worth trying.

    Parameters
    ----------
    problem : Problem
    pinned : mapping
        Tunables that are not searched, of ``c``, ``max_width`` and ``thirds``; with any of these CSR is left out.
    race : Race
        Of configs ``c, max_width, order, work, spread, together, threads, vector, vectors, lanes`` of hyb, with
        ``thirds`` where such widths are tried, and of the configs of `search_direct`.
    """
    if not pinned:
        search_direct(problem, race)
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


def _one_turn(problem: Problem, race: Times, config: Config, pinned: Mapping[str, Any]) -> ConfigTime:
    """Go along every axis once, without the column partitions, each of which costs a conversion."""
    best = exhaustive(race, [{**config, "threads": 128, **tile} for tile in spmm_tiles(problem)]).config
    best = both_ways(race, best, "work", WORK)
    # Whether blocks take long rows together decides how wide the last bucket should be: both ways are followed.
    ways = [{**best, "together": together} for together in (NEVER, TOGETHER[0])]
    if "thirds" not in best and thirds_pay(problem, best["c"], pinned.get("max_width", MAX_WIDTHS[-1])):
        ways += [{**way, "thirds": True} for way in ways]
    if "max_width" not in pinned:
        now, rule = best["max_width"], rule_width(problem)
        widths = sorted({*MAX_WIDTHS, rule})
        sides = tuple(w for w in widths[::-1] if w < now), tuple(w for w in widths if w > now)
        ways = [along(race, way, "max_width", side) for way in ways for side in sides]
        ways = [along(race, way, "max_width", (rule,)) for way in ways]
    best = exhaustive(race, ways).config
    if best["together"] != NEVER:
        best = along(race, best, "together", TOGETHER[1:])
    best = along(race, best, "spread", SPREAD)
    best = along(race, best, "order", ("row",))
    return race.time(along(race, best, "threads", (256,) if best["vectors"] == 2 else ()))


def search_sddmm(problem: Problem, race: Times) -> None:
    """Time SparseTIR's space, and then the tiles that keep rows of X in registers over a run of non-zeros.

    Parameters
    ----------
    problem : Problem
    race : Race
        Of configs ``vector, lanes, batch, searched``, and of the configs of `search_runs`.
    """
    near = rows_are_near(problem.matrix)
    exhaustive(race, [config for config in sddmm_space(problem).configs() if near or not config["searched"]])
    search_runs(problem, race, {})


def sddmm_space(problem: Problem) -> Space:
    """Give the space of SDDMM: loads and lanes, non-zeros of a group, rows stored or searched.

    SparseTIR's space (section 4.2.2) with the number of groups of a block left to the kernel.
    """
    loads = tuple({"vector": vector, "lanes": lanes} for vector, lanes in tiles(problem, (8, 16, 32)))
    return Space((Axis("tile", loads), Axis.of("batch", (2, 4)), Axis.of("searched", (False, True))))
