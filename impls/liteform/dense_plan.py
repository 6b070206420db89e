"""Plans with all rows in dense pieces on the matrix unit, and whether they are faster than buckets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import BuildError
from spmark.impls.core.interfaces import Built
from spmark.impls.core.problem import Problem
from spmark.impls.formats.tiles import TileFormat
from spmark.impls.kernels.tile_spmm import TileSpmmPlan
from spmark.impls.liteform.composition import BucketOrder
from spmark.impls.liteform.dense import alone_of, selection_of, windows_of
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import Target
from spmark.impls.tuning.race import Race

_VECTOR, _LANES, _WORK = 8, 8, 32
"""How the kernel takes rows of ELL tiles, of which there are only rows without elements."""


def dense_plan(  # noqa: PLR0917
    problem: Problem,
    target: Target,
    facts: Mapping[str, Any],
    order: BucketOrder,
    most_reads: float | None = None,
    alone: int = 0,
) -> TileSpmmPlan:
    """Put all rows into pieces.

    Parameters
    ----------
    problem : Problem
        One that `spmark.impls.liteform.dense.refusal` accepts.
    target : Target
    facts : mapping
        Entries of the plan's config.
    order : BucketOrder
        As of `spmark.impls.liteform.dense.windows_of`.
    most_reads : float, optional
        Most rows of B that windows may read for a non-zero.
    alone : int
        Pieces of a window that one warp takes by itself; 0 takes `spmark.impls.liteform.dense.alone_of`.

    Raises
    ------
    BuildError
        Windows read more rows of B, or the format would store more elements than can be numbered.
    """
    own = Built()
    with own.phase("convert"):
        windows = windows_of(problem.matrix, order)
    if most_reads is not None and windows.reads > most_reads:
        raise BuildError(
            f"expected windows that read at most {most_reads} rows of B for a non-zero, found {windows.reads:.2f}: "
            "take buckets"
        )
    with own.phase("convert"):
        tiles = TileFormat.from_csr(problem.matrix, selection_of(problem.matrix, windows))
    told = {**facts, "order": windows.order.value, "reads": round(windows.reads, 4)}
    taken = alone or alone_of(windows.rows.shape[0], problem.width, target.spec.num_sms)
    plan = TileSpmmPlan(problem, target, tiles, told, alone=taken, vector=_VECTOR, lanes=_LANES, work=_WORK)
    plan.charge(own.phases_s)
    return plan


def faster(
    plain: DevicePlan, make: Callable[[], DevicePlan], problem: Problem, device: DeviceSpec
) -> tuple[DevicePlan, float]:
    """Keep a plan without pieces or the plan that ``make`` builds, whichever is faster on this machine's GPU.

    The plan without pieces is kept where both times tie, and where the other plan cannot be built or is wrong.

    Returns
    -------
    plan : DevicePlan
    seconds : float
        Spent on the plan that was not kept, and on timing.
    """
    from spmark.impls.tuning.gpu import PlanTimer

    own, kept = Built(), plain
    with own.phase("select"), suppress(BuildError):  # the suite's check says what is wrong with the plain plan
        race = Race(lambda config: make() if config["dense"] else plain, PlanTimer(problem, device))
        race.time_all([{"dense": False}, {"dense": True}])
        _, kept = race.finish()
        kept.search = plain.search and replace(plain.search, measured=race.describe().measured)
    thrown_away_s = sum(plain.phases_s.values()) - sum(kept.phases_s.values())
    return kept, own.phases_s["select"] + thrown_away_s
