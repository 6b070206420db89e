"""The launcher of SDDMM over BSR blocks on the matrix unit, and where the results of a block stand in CSR order."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import Problem, numbered, openings
from spmark.impls.formats.bsr import BsrFormat
from spmark.impls.kernels.family import Axes, KernelFamily, OneFormat
from spmark.impls.runtime.plan import OneLaunchPlan
from spmark.impls.runtime.target import Target, ceil_div
from spmark.impls.runtime.template import C_TYPES, NARROW, KernelTemplate

STRIP, UNIT_COLUMNS, HEAD = 16, 32, 8
"""Rows of A of a warp, columns of A that it takes at a time, and integers of a task, as in the kernel."""
SDDMM_BLOCKS = (16, 32)
"""Rows, and columns, of a block."""

BLOCK_SDDMM = KernelTemplate(
    Path(__file__).parent / "block_sddmm.cu",
    "block_sddmm",
    {"T": NARROW, "block": SDDMM_BLOCKS, "vector": (1, 2, 8), "full": (False, True), "threads": (128, 256)},
)


def row_runs(bsr: BsrFormat) -> tuple[NDArray[np.int32], NDArray[np.uint32]]:
    """Say where the non-zeros of every row of every block stand in CSR order; columns rise, so they stand together.

    Parameters
    ----------
    bsr : BsrFormat
        Blocks of at most 32 columns.

    Returns
    -------
    starts : (nblocks * R,) int32
        Position in CSR order of the first non-zero of a row of a block; 0 where the row has none.
    masks : (nblocks * R,) uint32
        Bit c is set where column c of the block is a non-zero. O(nnz + nblocks R).
    """
    rows, cols = bsr.block_shape
    run, inside = np.divmod(bsr.positions, np.int32(cols))
    opens = openings(run)
    starts = np.zeros(bsr.indices.size * rows, np.int32)
    starts[run[opens]] = np.flatnonzero(opens)
    # Sums of different powers of two below 2^32 are exact in float64.
    masks = np.bincount(run, weights=np.exp2(inside), minlength=starts.size).astype(np.uint32)
    return starts, masks


def strip_tasks(bsr: BsrFormat, units: int, together: int) -> NDArray[np.int32]:
    """Cut the strips of 16 rows into tasks of at most ``units`` units of 32 columns.

    Parameters
    ----------
    bsr : BsrFormat
        Square blocks of 16 or 32.
    units : int
        Most units of a task.
    together : int
        Strips whose tasks follow each other piece by piece, so that a thread block finds them on the same columns.

    Returns
    -------
    (n, 8) int32
        First row, first block, end of the blocks, non-zeros of a full row before the first block, columns of the first
        two units' blocks (0 where there are none).
    """
    size = bsr.block_shape[0]
    per_task = units * UNIT_COLUMNS // size
    lengths = np.repeat(np.diff(bsr.indptr), size // STRIP)
    firsts = np.repeat(bsr.indptr[:-1], size // STRIP)
    pieces = -(-lengths // per_task)
    pieces[np.arange(lengths.size) * STRIP >= bsr.shape[0]] = 0
    strip, piece = numbered(pieces)
    order = np.lexsort((strip, piece, strip // together))
    strip, piece = strip[order], piece[order]
    begin = firsts[strip] + piece * per_task
    end = np.minimum(begin + per_task, firsts[strip] + lengths[strip])
    tasks = np.zeros((strip.size, HEAD), np.int32)
    tasks[:, :4] = np.stack([strip * STRIP, begin, end, piece * per_task * size], axis=1)
    blocks = begin[:, None] + np.arange(2 * UNIT_COLUMNS // size)
    there = blocks < end[:, None]
    tasks[:, 4 : 4 + blocks.shape[1]][there] = bsr.indices[blocks[there]]
    return tasks


class BlockSddmmPlan(OneLaunchPlan):
    """D = (X Y^T at A's non-zeros) in 16 bits over square blocks, scaled by A where the problem is.

    The plan keeps only the places of the blocks. A's values are read where the problem is scaled, in CSR order.

    Parameters
    ----------
    bsr : BsrFormat
        Blocks of 16 x 16 or 32 x 32.
    config : mapping
        Facts for `DevicePlan.config`, to which the schedule below is added.
    **schedule : int
        ``units``: units of 32 columns that a warp takes one after the other; ``threads``: threads of a block, 128 or,
        where 8 divides J, 256.
    """

    def __init__(
        self, problem: Problem, target: Target, bsr: BsrFormat, config: Mapping[str, object], **schedule: int
    ) -> None:
        matrix, threads = problem.matrix, schedule["threads"]
        vector = next(v for v in (8, 2, 1) if problem.width % v == 0)
        tile = {"block": bsr.block_shape[0], **schedule}
        full = vector == 8 and matrix.nnz == bsr.stored
        super().__init__(problem, target, {**config, **tile}, alignment=vector * problem.dtype.itemsize)
        self.stored = bsr.stored
        size = {"block": tile["block"], "vector": vector, "full": full, "threads": threads}
        self._load(BLOCK_SDDMM.instance(T=C_TYPES[problem.dtype], **size))
        with self.phase("convert"):
            tasks = strip_tasks(bsr, schedule["units"], threads // 32)
            starts, masks = (matrix.indptr, np.zeros(0, np.uint32)) if full else row_runs(bsr)
        sizes = (*matrix.shape, problem.width, problem.scaled, len(tasks))
        arrays = (tasks, starts, masks, bsr.indices, problem.factors)
        self._arrange((ceil_div(len(tasks), threads // 32), 1, 1), sizes, arrays)


def _axes(problem: Problem, pinned: Config) -> Axes:
    # Kernels with loads of less than 16 bytes are compiled for one size of thread block.
    threads = BLOCK_SDDMM.space["threads"][: 2 if problem.width % 8 == 0 else 1]
    return {"block": SDDMM_BLOCKS, "units": (4, 1, 2, 8, 16), "threads": threads}


SDDMM_OVER_BLOCKS = KernelFamily(
    mark="units",
    axes=_axes,
    opened=lambda problem, target: OneFormat(
        ("block",),
        lambda form: BsrFormat.from_csr(problem.matrix, form["block"], form["block"]),
        lambda held, _, schedule, arrays: BlockSddmmPlan(problem, target, held, {}, **schedule),
    ),
)
