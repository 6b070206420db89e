"""Plans with dense pieces on the matrix unit, and whether they are faster than buckets alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import BuildError
from spmark.impls.core.interfaces import Built
from spmark.impls.core.problem import Csr, Problem
from spmark.impls.formats.nearness import near_order
from spmark.impls.formats.tiles import TileFormat
from spmark.impls.kernels.tile_spmm import TileSpmmPlan
from spmark.impls.kernels.tile_tasks import ALONE
from spmark.impls.liteform.dense import (
    LEAST_SHARE,
    MOST_READS,
    DensePieces,
    dense_pieces,
    dense_selection,
    rest_of,
    tile_arguments,
)
from spmark.impls.liteform.schedule import CellSchedule
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import Target
from spmark.impls.tuning.race import Race


def dense_plan(
    problem: Problem,
    target: Target,
    facts: Mapping[str, Any],
    *,
    widest_of: Callable[[Csr], int],
    schedule_of: Callable[[int], CellSchedule],
    tail_in_last: bool,
    least_share: float = LEAST_SHARE,
    most_reads: float = MOST_READS,
    alone: int = ALONE[0],
    gather: bool = True,
) -> TileSpmmPlan:
    """Take dense pieces out of the buckets, in A's order of rows or the gathered one, whichever has more in them.

    Parameters
    ----------
    problem : Problem
        One that `spmark.impls.liteform.dense.refusal` accepts.
    target : Target
    facts : mapping
        Entries of the plan's config.
    widest_of : callable
        Gives the widest bucket, a power of two, for the matrix without its pieces.
    schedule_of : callable
        Gives the schedule for buckets up to a width.
    tail_in_last : bool
        Whether the rest of a folded row stays in the widest bucket.
    least_share : float
        Least share of the non-zeros in dense pieces.
    most_reads : float
        As of `spmark.impls.liteform.dense.dense_pieces`.
    alone : int
        Pieces of a window that one warp takes by itself.
    gather : bool
        Whether the gathered order is tried, too.

    Raises
    ------
    BuildError
        Too few non-zeros are in dense pieces, or the format would store more elements than can be numbered.
    """
    own = Built()
    with own.phase("convert"):
        pieces = (fullest if gather else dense_pieces)(problem.matrix, most_reads=most_reads)
    if pieces.share < least_share:
        raise BuildError(
            f"expected {least_share:.0%} of the non-zeros in dense pieces, found {pieces.share:.1%}: take buckets alone"
        )
    with own.phase("search"):
        max_width = widest_of(rest_of(problem.matrix, pieces))
    with own.phase("convert"):
        tiles = TileFormat.from_csr(problem.matrix, dense_selection(problem.matrix, pieces, max_width, tail_in_last))
    schedule = tile_arguments(schedule_of(max_width), problem.width, alone)
    told = {**facts, "max_width": max_width, "max_widths": str(max_width), "dense": round(pieces.share, 4)}
    plan = TileSpmmPlan(problem, target, tiles, told, **schedule)
    plan.charge(own.phases_s)
    return plan


def fullest(matrix: Csr, most_reads: float = MOST_READS) -> DensePieces:
    """Give the dense pieces in A's order of rows or the gathered one, whichever has more in them."""
    orders = None, near_order(matrix).rows
    return max((dense_pieces(matrix, order, most_reads) for order in orders), key=lambda pieces: pieces.share)


def faster(
    plain: DevicePlan, make: Callable[[], DevicePlan], problem: Problem, device: DeviceSpec
) -> tuple[DevicePlan, float]:
    """Keep a plan of buckets alone or the plan that ``make`` builds, whichever is faster on this machine's GPU.

    Buckets alone are kept where both times tie, and where the other plan cannot be built or is wrong.

    Returns
    -------
    plan : DevicePlan
    seconds : float
        Spent on the plan that was not kept, and on timing.
    """
    from spmark.impls.tuning.gpu import PlanTimer

    own, kept = Built(), plain
    with own.phase("select"), suppress(BuildError):  # the suite's check says what is wrong with buckets alone
        race = Race(lambda config: make() if config["dense"] else plain, PlanTimer(problem, device))
        race.time_all([{"dense": False}, {"dense": True}])
        _, kept = race.finish()
        kept.search = plain.search and replace(plain.search, measured=race.describe().measured)
    thrown_away_s = sum(plain.phases_s.values()) - sum(kept.phases_s.values())
    return kept, own.phases_s["select"] + thrown_away_s
