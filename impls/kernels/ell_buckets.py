"""The launcher of ELL-bucket SpMM: block ranges of equal work, zeroing before the grid, rounding after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.interfaces import DeviceArray
from spmark.impls.core.problem import DType, Problem
from spmark.impls.formats.hyb import UNIT, HybFormat
from spmark.impls.kernels.zeroing import RowZeroing
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import Target, ceil_div
from spmark.impls.runtime.template import C_TYPES, KernelTemplate, TemplateValue

_SOURCE = Path(__file__).parent / "ell_buckets.cu"
_ROUND_THREADS = 64
_MAX_ROUND_BLOCKS = 4096
_TOGETHER = 1 << 24
NEVER = 1 << 24
"""Wider than any bucket."""


def _loads_at_once(values: Mapping[str, TemplateValue]) -> bool:
    return values["T"] == "half" or int(values["vector"]) <= 4


SPMM_ELL_BUCKETS = KernelTemplate(
    _SOURCE,
    "spmm_ell_buckets",
    {"T": ("float", "half"), "vector": (1, 2, 4, 8), "lanes": (4, 8, 16, 32), "threads": (128, 256)},
    legal=_loads_at_once,
    max_registers=128,
    max_spill_bytes=16,  # for sm_100, ptxas stops at 72 registers with eight halves a load
)
ROUND_SHARED_ROWS = KernelTemplate(
    _SOURCE,
    "round_shared_rows",
    {"T": ("half",), "vector": (1, 2, 4, 8), "threads": (_ROUND_THREADS,)},
    max_registers=40,
)


class EllBucketsPlan(DevicePlan):
    """C = A B over a `HybFormat`.

    Parameters
    ----------
    config : mapping
        What `DevicePlan.config` says; the schedule below is part of it.
    vector, lanes, threads : int
        Elements of a load, threads of a group, threads of a block.
    work : int
        Elements of A that a group takes before its block ends.
    together : int
        ELL rows at least this wide are taken by a whole block, which adds up in shared memory; shorter ones by a group.
    by_row : bool
        Start blocks in the order of A's rows instead of bucket by bucket, wide before narrow: rows that stand together
        and share columns then find them in L2, but the longest work no longer starts first.
    arrays : sequence of device arrays, optional
        The format's indices and values, uploaded before by another plan of the same format.
    """

    def __init__(
        self,
        problem: Problem,
        target: Target,
        held: HybFormat,
        config: Mapping[str, object],
        *,
        vector: int,
        lanes: int,
        work: int,
        threads: int,
        together: int = NEVER,
        by_row: bool = False,
        arrays: Sequence[DeviceArray] = (),
    ) -> None:
        schedule = {"vector": vector, "lanes": lanes, "work": work, "threads": threads}
        schedule |= {"together": together, "by_row": by_row}
        super().__init__(problem, target, {**config, **schedule}, alignment=vector * problem.dtype.itemsize)
        self.stored = held.stored
        half = problem.dtype is DType.FLOAT16
        with self.phase("compile"):
            instance = SPMM_ELL_BUCKETS.instance(T=C_TYPES[problem.dtype], vector=vector, lanes=lanes, threads=threads)
            (self._kernel,) = target.load([instance])
        with self.phase("convert"):
            ranges = block_ranges(held, threads // lanes, work, together)
            if by_row:
                ranges = ranges[np.argsort(held.rows[ranges[:, 0]], kind="stable")]
            rows, shared, empty = _shared_and_empty(held)
        with self.phase("upload"):
            self.arrays = list(arrays) or [
                self.upload(a) for a in (held.indices, held.values.astype(problem.values.dtype))
            ]
            self._ranges = self.upload(ranges)
            self._rows = self.upload(rows if half else held.rows)
            self._zeroed = RowZeroing(self, empty if half else np.union1d(empty, shared), problem.width, problem.dtype)
            self._rounds = half and shared.size > 0
            self._sums = self.workspace((max(shared.size, 1) if half else 1, problem.width), np.float32)
            if self._rounds:
                every = np.arange(shared.size, dtype=np.int32)
                self._zeroed_sums = RowZeroing(self, every, problem.width, DType.FLOAT32)
                self._shared = self.upload(shared)
                instance = ROUND_SHARED_ROWS.instance(T="half", vector=vector, threads=_ROUND_THREADS)
                (self._round,) = target.load([instance])
        self.deterministic = shared.size == 0
        self._width = np.int32(problem.width)
        self._num_shared = np.int32(shared.size)
        self._grid = (ranges.shape[0], ceil_div(problem.width, lanes * vector), 1)

    def enqueue(self, operands: Sequence[DeviceArray], out: DeviceArray) -> None:
        """Clear what is empty or added up, compute, and round what was added up in float32."""
        self._zeroed.enqueue(out)
        if self._rounds:
            self._zeroed_sums.enqueue(self._sums)
        args = (self._width, self._ranges, self._rows, *self.arrays, operands[0], out, self._sums)
        self._kernel.launch(self._grid, args)
        if self._rounds:
            grid = (min(int(self._num_shared), _MAX_ROUND_BLOCKS), 1, 1)
            self._round.launch(grid, (self._num_shared, self._width, self._shared, self._sums, out))


def block_ranges(held: HybFormat, groups: int, work: int, together: int = NEVER) -> NDArray[np.int32]:
    """Cut every bucket into blocks of equal work.

    Parameters
    ----------
    held : HybFormat
    groups : int
        Groups of threads in a block.
    work : int
        Elements that a group takes; an ELL row longer than that is one group's all the same.
    together : int
        Width from which a block takes ELL rows one after the other as a whole.

    Returns
    -------
    (blocks, 4) int32
        First ELL row, units, base of the elements over `UNIT`, slots (plus a mark where rows are taken together;
        negative where rows are shared).
    """
    parts = []
    for bucket in held.buckets:
        per_unit = max(1, UNIT // bucket.width)
        units = bucket.count // per_unit
        as_one = bucket.width >= together
        step = max(1, groups * work // bucket.width) if as_one else groups * max(1, work // max(bucket.width, UNIT))
        first = np.arange(0, units, step)
        made = np.empty((first.size, 4), np.int32)
        made[:, 0] = bucket.first + first * per_unit
        made[:, 1] = np.minimum(step, units - first)
        made[:, 2] = (bucket.base + first * max(bucket.width, UNIT)) // UNIT
        made[:, 3] = (bucket.width + as_one * _TOGETHER) * (-1 if bucket.shared else 1)
        parts.append(made)
    return np.concatenate(parts) if parts else np.empty((0, 4), np.int32)


def _shared_and_empty(held: HybFormat) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
    """Give each ELL row's target (shared rows counted through), the shared rows, and the rows without non-zeros."""
    marks = np.zeros(held.shape[0], np.int8)
    marks[held.rows[held.rows >= 0]] = 1
    for bucket in held.buckets:
        if bucket.shared:
            rows = held.rows[bucket.first : bucket.first + bucket.count]
            marks[rows[rows >= 0]] = 2
    shared, empty = (np.flatnonzero(marks == mark).astype(np.int32) for mark in (2, 0))
    targets = held.rows.copy()
    number = np.zeros(held.shape[0], np.int32)
    number[shared] = np.arange(shared.size, dtype=np.int32)
    for bucket in held.buckets:
        if bucket.shared:
            span = slice(bucket.first, bucket.first + bucket.count)
            targets[span] = np.where(held.rows[span] >= 0, number[held.rows[span]], -1)
    return targets, shared, empty
