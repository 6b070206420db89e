"""The launcher of ELL-bucket SpMM: block ranges of equal work, zeroing before the grid, rounding after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.interfaces import DeviceArray
from spmark.impls.core.problem import DType, Problem
from spmark.impls.formats.decompose import RowUse, row_use
from spmark.impls.formats.hyb import UNIT, HybFormat, HybLayout
from spmark.impls.kernels.shared_rows import SharedRows, shared_instances
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import Target, ceil_div
from spmark.impls.runtime.template import C_TYPES, Instance, KernelTemplate, TemplateValue

_SOURCE = Path(__file__).parent / "ell_buckets.cu"
_TOGETHER, _SPREAD = 1 << 24, 1 << 25
_WARP = 32
_THREADS = 128
_MOST_WORK = 1 << 15
"""Elements of a group up to which the kernel finds the row of one."""
EMPTY_ROWS = 8
"""Rows without elements that a group clears."""
LANES = (8, 16, 32)
"""Threads of a group."""
NEVER = 1 << 24
"""Wider than any bucket."""


def _worth_having(values: Mapping[str, TemplateValue]) -> bool:
    """One load takes at most 16 bytes; large blocks, for their common cache, only where a thread takes most at once."""
    most = 8 if values["T"] == "half" else 4
    vector = int(values["vector"])
    return vector <= most and (values["threads"] == _THREADS or (vector == most and values["vectors"] == 2))


SPMM_ELL_BUCKETS = KernelTemplate(
    _SOURCE,
    "spmm_ell_buckets",
    {"T": ("float", "half"), "vector": (1, 2, 4, 8), "vectors": (1, 2), "lanes": LANES, "threads": (128, 256)},
    legal=_worth_having,
    max_registers=128,
    max_spill_bytes=96,  # a few bytes spilled cost less than fewer threads of a multiprocessor
)


def ell_instance(problem: Problem, schedule: Mapping[str, Any]) -> Instance:
    """Give the kernel of a schedule: ``vector``, ``lanes``, and, unlike by default, ``vectors`` and ``threads``."""
    return SPMM_ELL_BUCKETS.instance(
        T=C_TYPES[problem.dtype],
        vector=schedule["vector"],
        vectors=schedule.get("vectors", 1),
        lanes=schedule["lanes"],
        threads=schedule.get("threads", _THREADS),
    )


class EllBucketsPlan(DevicePlan):
    """C = A B over a `HybFormat`.

    Parameters
    ----------
    config : mapping
        What `DevicePlan.config` says; the schedule below is added to it, but for the order of rows.
    vector, vectors, lanes : int
        Elements of a load, loads of a thread side by side, threads of a group.
    work : int
        Elements of A that a group takes before its block ends.
    threads : int
        Threads of a block.
    spread, together : int
        ELL rows at least this wide are taken by all groups of a warp, which add up by shuffles, or by a whole block,
        which adds up in shared memory; shorter ones by one group.
    by_row : bool
        Start blocks in the order of A's rows instead of bucket by bucket, wide before narrow: rows that stand together
        and share columns then find them in a cache, but the longest work no longer starts first.
    positions : (I,) int32, optional
        What ``by_row`` takes for the order of rows; A's by default.
    arrays : sequence of device arrays, optional
        The format's indices and values, uploaded before by another plan of the same format.
    """

    def __init__(
        self,
        problem: Problem,
        target: Target,
        held: HybLayout,
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
        self.stored = held.stored
        with self.phase("convert"):
            groups = threads // lanes
            ranges = block_ranges(held, groups, work, team=_WARP // lanes, spread=spread, together=together)
            if by_row:
                firsts = held.rows[ranges[:, 0]]
                ranges = ranges[np.argsort(firsts if positions is None else positions[firsts], kind="stable")]
            use = row_use(held.shape[0], [held.rows[held.rows >= 0]])
            rows = numbered_rows(held, use.shared) if problem.dtype is DType.FLOAT16 else held.rows
            ranges = np.concatenate([ranges, empty_ranges(rows.size, use.empty.size, groups * EMPTY_ROWS)])
            rows = np.concatenate([rows, use.empty])
        with self.phase("compile"):
            around = shared_instances(use.shared.size > 0, problem.width, problem.dtype, vector)
            self._kernel, *kernels = target.load([ell_instance(problem, schedule), *around])
        with self.phase("upload"):
            if not arrays:
                whole = cast("HybFormat", held)
                arrays = [target.upload(a) for a in (whole.indices, whole.values.astype(problem.values.dtype))]
            self.arrays = list(arrays)
            self.device_bytes += sum(array.nbytes for array in self.arrays)
            self._ranges, self._rows = self.upload(ranges), self.upload(rows)
            # Rows without elements are cleared by the grid itself.
            use = RowUse(use.num_rows, use.shared, empty=np.empty(0, np.int32))
            self._shared = SharedRows(self, use, problem.width, problem.dtype, kernels)
        self.deterministic = use.shared.size == 0
        self._width = np.int32(problem.width)
        self._grid = (ranges.shape[0], ceil_div(problem.width, vectors * lanes * vector), 1)

    def enqueue(self, operands: Sequence[DeviceArray], out: DeviceArray) -> None:
        """Clear what is added up, compute, and round what was added up in float32."""
        self._shared.before(out)
        args = (self._width, self._ranges, self._rows, *self.arrays, operands[0], out, self._shared.sums)
        self._kernel.launch(self._grid, args, overlap=not self.deterministic)
        self._shared.after(out)


def empty_ranges(first: int, count: int, step: int) -> NDArray[np.int32]:
    """Cut rows of C that have no elements into blocks that clear them.

    Parameters
    ----------
    first, count : int
        Where they stand in the kernel's ``rows``.
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
    held: HybLayout, groups: int, work: int, *, team: int = 1, spread: int = NEVER, together: int = NEVER
) -> NDArray[np.int32]:
    """Cut every bucket into blocks of equal work.

    Parameters
    ----------
    held : HybLayout
    groups : int
        Groups of threads in a block.
    work : int
        Elements that a group takes; an ELL row longer than that is one group's all the same.
    team : int
        Groups of a warp.
    spread, together : int
        Widths from which the groups of a warp share an ELL row (where each has as many whole units of it), and from
        which a block takes ELL rows one after the other as a whole.

    Returns
    -------
    (blocks, 4) int32
        First ELL row, units, base of the elements over `UNIT`, slots (plus a mark where rows are spread or taken
        together; negative where rows are shared).
    """
    parts, work = [], min(work, _MOST_WORK)
    for bucket in held.buckets:
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


def numbered_rows(held: HybLayout, shared: NDArray[np.int32]) -> NDArray[np.int32]:
    """Give each ELL row's target where the sums of shared rows have a workspace with one row for each of them.

    Parameters
    ----------
    held : HybLayout
    shared : (s,) int32
        Rows of the workspace, rising.

    Returns
    -------
    (r,) int32
        Of ELL rows in shared buckets the row of the workspace, of the others the row of A; -1 where there is none.
    """
    targets = held.rows.copy()
    for bucket in held.buckets:
        if bucket.shared:
            rows = targets[bucket.first : bucket.first + bucket.count]
            rows[rows >= 0] = np.searchsorted(shared, rows[rows >= 0])
    return targets
