"""The launcher of ELL-bucket SpMM: block ranges of equal work, zeroing before the grid, rounding after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.errors import BuildError
from spmark.impls.core.interfaces import Config, DeviceArray
from spmark.impls.core.problem import DType, Problem
from spmark.impls.formats.hyb import UNIT, HybFormat, HybLayout
from spmark.impls.formats.row_use import RowUse
from spmark.impls.kernels.family import Axes, tiles_of
from spmark.impls.kernels.shared_rows import SharedRows, shared_instances
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import Target, ceil_div
from spmark.impls.runtime.template import C_TYPES, ELEMENTS, Instance, KernelTemplate, loads_of

_SOURCE = Path(__file__).parent / "ell_buckets.cu"
_TOGETHER, _SPREAD = 1 << 24, 1 << 25
_WARP = 32
_MOST_WORK = 1 << 15
"""Most elements of a group for which the kernel's arithmetic gives the row of each element."""
EMPTY_ROWS = 8
"""Rows without elements that a group clears."""
LANES = (8, 16, 32)
"""Threads of a group."""
NEVER = 1 << 24
"""Wider than any bucket."""
WORK = (32, 16, 64, 8, 128)
"""Elements of A that a group takes, in the order of trying."""
SPREAD, TOGETHER = (NEVER, 128, 32, 64), (NEVER, 64, 128, 32)
"""Widths from which a warp, and from which a block, shares an ELL row, in the order of trying."""
LONG_ROWS = ((NEVER, NEVER), (NEVER, 64), (32, NEVER), (32, 64), (32, 128), (NEVER, 32), (128, NEVER))
"""The pairs of `SPREAD` and `TOGETHER` worth trying where both are one axis."""


SPMM_ELL_BUCKETS = KernelTemplate(
    _SOURCE,
    "spmm_ell_buckets",
    {"T": ELEMENTS, "vector": (1, 2, 4, 8), "vectors": (1, 2), "lanes": LANES, "threads": (128, 256)},
)


_USUAL = {"vectors": 1, "threads": 128, "spread": NEVER, "together": NEVER}
"""What a schedule need not say."""


def ell_instance(problem: Problem, schedule: Mapping[str, Any]) -> Instance:
    """Give the kernel of a schedule of `EllBucketsPlan`."""
    whole = {**_USUAL, **schedule}
    tunables = {name: whole[name] for name in SPMM_ELL_BUCKETS.space if name != "T"}
    return SPMM_ELL_BUCKETS.instance(T=C_TYPES[problem.dtype], **tunables)


def ell_tiles(width: int, dtype: DType) -> list[Config]:
    """List the loads of ELL rows: the two widest that divide J, over so many lanes, and the widest two side by side."""
    loads = loads_of(width, 16 // dtype.itemsize)[:2]
    doubles = [tile for tile in tiles_of(width, loads[:1], LANES, (1, 2)) if tile["vectors"] == 2]
    return [*tiles_of(width, loads, LANES), *doubles]


def ell_axes(problem: Problem) -> Axes:
    """Give what `EllBucketsPlan` leaves open beside the format."""
    return {
        "tile": ell_tiles(problem.width, problem.dtype),
        "work": WORK,
        "spread": SPREAD,
        "together": TOGETHER,
        "threads": SPMM_ELL_BUCKETS.space["threads"],
    }


class EllBucketsPlan(DevicePlan):
    """C = A B over a `HybFormat`.

    Parameters
    ----------
    layout : HybLayout
        Of A; a `HybFormat` where ``arrays`` is empty.
    config : mapping
        What `DevicePlan.config` says; the plan adds the schedule below, without the order of rows.
    arrays : sequence of device arrays, optional
        Indices and values of the format that another plan has uploaded.
    by_row : bool
        Whether blocks start in the order of A's rows instead of bucket by bucket, wide before narrow. Neighbouring
        rows that share columns then find rows of B in a cache, but the longest work no longer starts first.
    positions : (I,) int32, optional
        Place of each row in the order that ``by_row`` follows; by default A's order.
    **schedule : int
        All of the following, but for those that have a usual value.

        - ``vector, vectors, lanes``: elements of a load, loads of a thread side by side, threads of a group;
        - ``work``: elements of A that a group takes before its block ends;
        - ``threads``: threads of a block;
        - ``spread, together``: widths from which all groups of a warp take an ELL row and add up by shuffles, or a
          whole block takes the row and adds up in shared memory. One group takes a narrower row.
    """

    def __init__(
        self,
        problem: Problem,
        target: Target,
        layout: HybLayout,
        config: Mapping[str, object],
        arrays: Sequence[DeviceArray] = (),
        *,
        by_row: bool = False,
        positions: NDArray[np.int32] | None = None,
        **schedule: int,
    ) -> None:
        schedule = {**_USUAL, **schedule}
        vector = schedule["vector"]
        super().__init__(problem, target, {**config, **schedule}, alignment=vector * problem.dtype.itemsize)
        self.stored = layout.stored
        with self.phase("convert"):
            use = layout.use
            in_order = np.arange(use.num_rows) if positions is None else positions
            ranges, rows = ell_work(layout, use, problem.dtype, schedule, in_order if by_row else None)
        around = shared_instances(use.shared.size > 0, problem.width, problem.dtype, vector)
        self._kernel, *kernels = self.load([ell_instance(problem, schedule), *around])
        whole = cast("HybFormat", layout)
        lists = () if arrays else (whole.indices.astype(np.int32, copy=False), problem.dtype.stored(whole.values))
        held = self.share(arrays, lists)
        self.values, self.values_in_order = held[1], False
        self._ranges, self._rows = self.upload(ranges), self.upload(rows)
        # Rows without elements are cleared by the grid itself.
        self._shared = SharedRows(self, replace(use, empty=use.empty[:0]), problem.width, problem.dtype, kernels)
        self.deterministic = use.shared.size == 0
        self._width = np.int32(problem.width)
        columns = vector * schedule["vectors"] * schedule["lanes"]
        self._grid = (ranges.shape[0], ceil_div(problem.width, columns), 1)

    def enqueue(self, operands: Sequence[DeviceArray], out: DeviceArray) -> None:
        """Clear rows that are added up, compute, and round rows that were added up in float32."""
        self._shared.before(out)
        args = (self._width, self._ranges, self._rows, *self.arrays, operands[0], out, self._shared.sums)
        self._kernel.launch(self._grid, args, overlap=self._shared.clears)
        self._shared.after(out)


def ell_work(
    layout: HybLayout | None,
    use: RowUse,
    dtype: DType,
    schedule: Mapping[str, int],
    order: NDArray[np.integer[Any]] | None = None,
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Cut ELL rows, and behind them the rows of C without elements, into blocks.

    Parameters
    ----------
    layout : HybLayout, optional
    use : RowUse
        Of C.
    dtype : DType
        Of C.
    schedule : mapping
        Of `EllBucketsPlan`.
    order : (I,) integers, optional
        Places of A's rows by which blocks start; by default bucket by bucket.

    Returns
    -------
    ranges : (blocks, 4) int32
        As `block_ranges`; rows without elements have 0 slots.
    rows : (r,) int32
        Target of each row that a range counts.
    """
    groups = schedule.get("threads", 128) // schedule["lanes"]
    ranges, rows = np.empty((0, 4), np.int32), np.empty(0, np.int32)
    if layout:
        limits = {name: schedule[name] for name in ("spread", "together")}
        ranges = block_ranges(layout, groups, schedule["work"], team=_WARP // schedule["lanes"], **limits)
        if order is not None:
            ranges = ranges[np.argsort(order[layout.rows[ranges[:, 0]]], kind="stable")]
        rows = numbered_rows(layout, use.shared) if dtype.narrow else layout.rows
    first, step = np.arange(0, use.empty.size, groups * EMPTY_ROWS), groups * EMPTY_ROWS
    nothing = np.zeros_like(first)
    empty = np.stack([rows.size + first, np.minimum(step, use.empty.size - first), nothing, nothing], axis=1)
    return np.concatenate([ranges, empty.astype(np.int32)]), np.concatenate([rows, use.empty])


def block_ranges(
    layout: HybLayout, groups: int, work: int, *, team: int = 1, spread: int = NEVER, together: int = NEVER
) -> NDArray[np.int32]:
    """Cut every bucket into blocks of equal work.

    Parameters
    ----------
    layout : HybLayout
    groups : int
        Groups of threads in a block.
    work : int
        Elements that a group takes; one group takes a longer ELL row all the same.
    team : int
        Groups of a warp.
    spread, together : int
        Widths from which the groups of a warp share an ELL row (where each gets the same number of whole units), and
        from which a whole block takes ELL rows one after the other.

    Returns
    -------
    (blocks, 4) int32
        First ELL row, units, base of the elements over `UNIT`, slots (plus a mark where rows are spread or taken
        together; negative where rows are shared).

    Raises
    ------
    BuildError
        A bucket is as wide as a mark, or wider; or a block would take ELL rows that are shorter than a unit together.
    """
    if together < UNIT:
        raise BuildError(
            f"expected ELL rows of at least {UNIT} elements for a whole block to take together, found together: "
            f"{together}: take {UNIT} or more"
        )
    widest = max((bucket.width for bucket in layout.buckets), default=0)
    if widest >= NEVER:
        raise BuildError(
            f"expected buckets narrower than {NEVER:,} elements, found one of {widest:,}: take a smaller k"
        )
    parts, work = [np.empty((0, 4), np.int32)], min(work, _MOST_WORK)
    for bucket in layout.buckets:
        per_unit, item, kind = max(1, UNIT // bucket.width), max(bucket.width, UNIT), bucket.width
        if bucket.width >= together:
            step, kind = max(1, groups * work // item), kind + _TOGETHER
        elif bucket.width >= spread and bucket.width % (UNIT * team) == 0 and team > 1:
            step, kind = groups // team * max(1, work * team // item), kind + _SPREAD
        else:
            step = groups * max(1, work // item)
        units = bucket.count // per_unit
        first = np.arange(0, units, step)
        made = np.empty((first.size, 4), np.int32)
        made[:, 0] = bucket.first + first * per_unit
        made[:, 1] = np.minimum(step, units - first)
        made[:, 2] = (bucket.base + first * item) // UNIT
        made[:, 3] = -kind if bucket.shared else kind
        parts.append(made)
    return np.concatenate(parts)


def numbered_rows(layout: HybLayout, shared: NDArray[np.int32]) -> NDArray[np.int32]:
    """Give each ELL row's target where a workspace has one row for the sums of each shared row.

    Parameters
    ----------
    layout : HybLayout
    shared : (s,) int32
        Rows of A behind the rows of the workspace, rising.

    Returns
    -------
    (r,) int32
        A row of the workspace for ELL rows in shared buckets, else a row of A; -1 where an ELL row only fills a unit.
    """
    targets = layout.rows.copy()
    for bucket in layout.buckets:
        if bucket.shared:
            rows = targets[bucket.first : bucket.first + bucket.count]
            rows[rows >= 0] = np.searchsorted(shared, rows[rows >= 0])
    return targets
