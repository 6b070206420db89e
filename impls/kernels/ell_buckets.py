"""The launcher of ELL-bucket SpMM: block ranges of equal work, zeroing before the grid, rounding after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.errors import BuildError
from spmark.impls.core.interfaces import Config, DeviceArray
from spmark.impls.core.problem import DType, Problem
from spmark.impls.formats.hyb import UNIT, HybFormat, HybLayout
from spmark.impls.formats.row_use import RowUse, row_use
from spmark.impls.kernels.family import Axes, tiles_of
from spmark.impls.kernels.shared_rows import SharedRows, shared_instances
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import Target, ceil_div
from spmark.impls.runtime.template import C_TYPES, Instance, KernelTemplate, loads_of

_SOURCE = Path(__file__).parent / "ell_buckets.cu"
_TOGETHER, _SPREAD = 1 << 24, 1 << 25
_WARP = 32
_THREADS = 128
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
    {"T": ("float", "half"), "vector": (1, 2, 4, 8), "vectors": (1, 2), "lanes": LANES, "threads": (128, 256)},
    max_registers=128,
    max_spill_bytes=96,  # a few bytes spilled cost less than fewer threads of a multiprocessor
)


def ell_instance(problem: Problem, schedule: Mapping[str, Any]) -> Instance:
    """Give the kernel of a schedule: ``vector``, ``lanes``, and optionally ``vectors`` and ``threads``."""
    return SPMM_ELL_BUCKETS.instance(
        T=C_TYPES[problem.dtype],
        vector=schedule["vector"],
        vectors=schedule.get("vectors", 1),
        lanes=schedule["lanes"],
        threads=schedule.get("threads", _THREADS),
    )


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
    vector, vectors, lanes : int
        Elements of a load, loads of a thread side by side, threads of a group.
    work : int
        Elements of A that a group takes before its block ends.
    threads : int
        Threads of a block.
    spread, together : int
        Widths from which all groups of a warp take an ELL row and add up by shuffles, or a whole block takes the row
        and adds up in shared memory. One group takes a narrower row.
    by_row : bool
        Whether blocks start in the order of A's rows instead of bucket by bucket, wide before narrow. Neighbouring
        rows that share columns then find rows of B in a cache, but the longest work no longer starts first.
    positions : (I,) int32, optional
        Place of each row in the order that ``by_row`` follows; by default A's order.
    arrays : sequence of device arrays, optional
        Indices and values of the format that another plan has uploaded.
    """

    def __init__(
        self,
        problem: Problem,
        target: Target,
        layout: HybLayout,
        config: Mapping[str, object],
        *,
        vector: int,
        lanes: int,
        work: int,
        vectors: int = 1,
        threads: int = _THREADS,
        spread: int = NEVER,
        together: int = NEVER,
        by_row: bool = False,
        positions: NDArray[np.int32] | None = None,
        arrays: Sequence[DeviceArray] = (),
    ) -> None:
        schedule = {"vector": vector, "vectors": vectors, "lanes": lanes, "work": work, "threads": threads}
        schedule |= {"spread": spread, "together": together}
        super().__init__(problem, target, {**config, **schedule}, alignment=vector * problem.dtype.itemsize)
        self.stored = layout.stored
        with self.phase("convert"):
            groups = threads // lanes
            ranges = block_ranges(layout, groups, work, team=_WARP // lanes, spread=spread, together=together)
            if by_row:
                firsts = layout.rows[ranges[:, 0]]
                ranges = ranges[np.argsort(firsts if positions is None else positions[firsts], kind="stable")]
            use = row_use(layout.shape[0], [layout.rows[layout.rows >= 0]])
            rows = numbered_rows(layout, use.shared) if problem.dtype is DType.FLOAT16 else layout.rows
            ranges = np.concatenate([ranges, empty_ranges(rows.size, use.empty.size, groups * EMPTY_ROWS)])
            rows = np.concatenate([rows, use.empty])
        with self.phase("compile"):
            around = shared_instances(use.shared.size > 0, problem.width, problem.dtype, vector)
            self._kernel, *kernels = target.load([ell_instance(problem, schedule), *around])
        with self.phase("upload"):
            if not arrays:
                whole = cast("HybFormat", layout)
                arrays = [target.upload(a) for a in (whole.indices, whole.values.astype(problem.values.dtype))]
            self.arrays = list(arrays)
            self.values, self.values_in_order = self.arrays[1], False
            self.device_bytes += sum(array.nbytes for array in self.arrays)
            self._ranges, self._rows = self.upload(ranges), self.upload(rows)
            # Rows without elements are cleared by the grid itself.
            use = RowUse(use.num_rows, use.shared, empty=np.empty(0, np.int32))
            self._shared = SharedRows(self, use, problem.width, problem.dtype, kernels)
        self.deterministic = use.shared.size == 0
        self._width = np.int32(problem.width)
        self._grid = (ranges.shape[0], ceil_div(problem.width, vectors * lanes * vector), 1)

    def enqueue(self, operands: Sequence[DeviceArray], out: DeviceArray) -> None:
        """Clear rows that are added up, compute, and round rows that were added up in float32."""
        self._shared.before(out)
        args = (self._width, self._ranges, self._rows, *self.arrays, operands[0], out, self._shared.sums)
        self._kernel.launch(self._grid, args, overlap=not self.deterministic)
        self._shared.after(out)


def empty_ranges(first: int, count: int, step: int) -> NDArray[np.int32]:
    """Cut rows of C without elements into blocks that clear the rows.

    Parameters
    ----------
    first, count : int
        Place of the first of these rows in the kernel's ``rows``, and their number.
    step : int
        Rows of a block.

    Returns
    -------
    (blocks, 4) int32
        As `block_ranges`, with 0 slots.
    """
    begins = np.arange(0, count, step, dtype=np.int32)
    zeros = np.zeros_like(begins)
    return np.stack([first + begins, np.minimum(step, count - begins), zeros, zeros], axis=1).astype(np.int32)


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
    parts, work = [], min(work, _MOST_WORK)
    for bucket in layout.buckets:
        per_unit = max(1, UNIT // bucket.width)
        units = bucket.count // per_unit
        item = max(bucket.width, UNIT)
        kind = bucket.width
        if bucket.width >= together:
            step, kind = max(1, groups * work // item), kind + _TOGETHER
        elif bucket.width >= spread and bucket.width % (UNIT * team) == 0 and team > 1:
            step, kind = groups // team * max(1, work * team // item), kind + _SPREAD
        else:
            step = groups * max(1, work // item)
        first = np.arange(0, units, step)
        made = np.empty((first.size, 4), np.int32)
        made[:, 0] = bucket.first + first * per_unit
        made[:, 1] = np.minimum(step, units - first)
        made[:, 2] = (bucket.base + first * item) // UNIT
        made[:, 3] = -kind if bucket.shared else kind
        parts.append(made)
    return np.concatenate(parts) if parts else np.empty((0, 4), np.int32)


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
