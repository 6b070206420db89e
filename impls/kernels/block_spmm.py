"""The launchers of SpMM over blocks on the matrix unit: thread blocks for BSR, DBSR, SR-BCRS, warps for low ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.interfaces import Config, DeviceArray
from spmark.impls.core.problem import Problem, numbered, offsets
from spmark.impls.formats.bsr import DbsrFormat, DenseBlocks, SrBcrsFormat
from spmark.impls.kernels.shared_rows import RowZeroing, zeroing_instance
from spmark.impls.runtime.plan import Arrays, DevicePlan, OneLaunchPlan
from spmark.impls.runtime.target import Target, ceil_div
from spmark.impls.runtime.template import C_TYPES, NARROW, Instance, KernelTemplate

HEAD = 16
"""Integers of a head, as in the kernel: eight numbers, then the columns of the first blocks."""
_TALL = 64
"""Rows from which two warps share a block's columns."""


SPMM_BLOCKS = KernelTemplate(
    Path(__file__).parent / "block_spmm.cu",
    "spmm_blocks",
    {
        "T": NARROW,
        "rows": (16, 32, 64, 96, 128),
        "tile": (64, 128),
        "depth": (16, 32, 64),
        "vector": (1, 8),
        "gathered": (False, True),
        "threads": (64, 128, 256),
    },
)


class BlockSpmmPlan(DevicePlan):
    """C = A B over blocks, in 16 bits with float32 sums.

    Parameters
    ----------
    form : DenseBlocks
        BSR, DBSR or SR-BCRS, with blocks for which `block_instance` has a kernel.
    config : mapping
        Facts for `DevicePlan.config`, to which the schedule below is added.
    arrays : sequence of device arrays, optional
        `arrays` of another plan of the same format.
    **schedule : int
        - ``tile``: columns of C of a thread block: 64, or 128 where J is a multiple of 8;
        - ``depth``: columns of A that are multiplied between two barriers: C or g over a power of two;
        - ``turned``: block rows start at different blocks and go round, so that they do not all ask for the same rows
          of B at once; False by default;
        - ``parts``: thread blocks that share the longest block row, 1 by default; every other row longer than such a
          part is shared, too. This is for grids that would not fill the device. The last of these thread blocks adds up
          the sums of all in a workspace of the plan, so that runs of one plan must not overlap.

    Raises
    ------
    BuildError
        There is no kernel for these blocks.
    """

    def __init__(
        self, problem: Problem, target: Target, form: DenseBlocks, config: Config, arrays: Arrays = (), **schedule: int
    ) -> None:
        schedule = {"turned": False, "parts": 1, **schedule}
        tile, depth = schedule["tile"], schedule["depth"]
        gathered = isinstance(form, SrBcrsFormat)
        rows, block_cols = form.block_shape
        instance = block_instance(problem, rows, tile, depth, gathered)
        super().__init__(problem, target, {**config, **schedule}, alignment=int(instance.values["vector"]) * 2)
        self.stored = form.stored
        self._kernel, zeroing = self.load([instance, zeroing_instance(problem.width, problem.dtype)])
        stages = 3 if depth == 64 or (depth == 32 and rows in (64, 96)) else 4
        self._shared_bytes = stages * (rows * depth + depth * (tile + 8)) * 2
        self._kernel.allow_shared(self._shared_bytes)
        with self.phase("convert"):
            block_rows = np.arange(ceil_div(problem.matrix.num_rows, rows), dtype=np.int32)
            listed = form.rows if isinstance(form, DbsrFormat) else block_rows
            split = (block_cols // depth).bit_length() - 1
            steps = 1 << split if schedule["turned"] else 0
            heads = block_heads(listed, form.indptr, None if gathered else form.indices, steps, schedule["parts"])
            tiles = ceil_div(problem.width, tile)
            shared = int(np.count_nonzero(heads[:, 4] > 1)) * tiles
            pieces = () if arrays else (form.indices, mma_pieces(problem.dtype.stored(form.blocks)))
            cleared = (np.setdiff1d(block_rows, listed)[:, None] * rows + np.arange(rows)).ravel()
            cleared = cleared[cleared < problem.matrix.num_rows].astype(np.int32)
        held = self.share(arrays, pieces)
        self.values, self.values_in_order = held[-1], False
        self._heads = self.upload(heads)
        self._partials = self.workspace((shared * rows * tile,), np.float32)
        self._arrived = self.counters(shared)
        self._zeroed = RowZeroing(self, cleared, problem.width, zeroing)
        self._clears = cleared.size > 0
        self._sizes = tuple(map(np.int32, (*problem.matrix.shape, problem.width, split)))
        self._grid = (heads.shape[0], tiles, 1)

    def enqueue(self, operands: Arrays, out: DeviceArray) -> None:
        """Clear the rows outside of all block rows (only DBSR has such rows), and compute."""
        self._zeroed.enqueue(out)
        args = (*self._sizes, self._heads, *self.arrays, *operands, out, self._partials, self._arrived)
        self._kernel.launch(self._grid, args, self._shared_bytes, overlap=self._clears)


def block_instance(problem: Problem, rows: int, tile: int, depth: int, gathered: bool) -> Instance:
    """Give the kernel for blocks of ``rows`` rows.

    Raises
    ------
    BuildError
        There is no such kernel.
    """
    tunables = {"rows": rows, "tile": tile, "depth": depth, "vector": vector_of(problem.width), "gathered": gathered}
    return SPMM_BLOCKS.instance(T=C_TYPES[problem.dtype], **tunables, threads=tile * (2 if rows >= _TALL else 1))


def vector_of(width: int) -> int:
    """Give the elements of a copy of B: eight where rows of B start at multiples of 16 bytes, else one."""
    return 8 if width % 8 == 0 else 1


def block_heads(
    listed: NDArray[np.int32],
    indptr: NDArray[np.int32],
    indices: NDArray[np.int32] | None,
    turn: int = 0,
    parts: int = 1,
) -> NDArray[np.int32]:
    """Give the heads: integers that a thread block reads before all else.

    Parameters
    ----------
    listed : (n,) int32
        Block rows.
    indptr : (n + 1,) int32
        Offsets of the blocks of each.
    indices : (nblocks,) int32, optional
        Columns of blocks; left out where a block has no column of its own.
    turn : int
        Steps of a block where every block row starts with another block, 0 where all start with the first.
    parts : int
        Parts of the longest block row; parts of other rows are no longer than these.

    Returns
    -------
    (heads, HEAD) int32
        Block row (its complement where the row is cut), first block, number of blocks, step to start with. Then the
        parts of the block row, the number of this part, the place of the row's first part among all parts of cut rows,
        and 0. Then the columns of the first blocks. Heads with many blocks come first.
    """
    counts = np.diff(indptr)
    most = max(1, ceil_div(int(counts.max(initial=0)), parts))
    cut = np.maximum(1, -(-counts // most))
    row, part = numbered(cut)
    begin, end = (counts[row] * bound // cut[row] for bound in (part, part + 1))
    places = offsets(np.where(cut > 1, cut, 0))[:-1] * (cut > 1)
    named, first = np.where(cut > 1, ~listed, listed)[row], indptr[row] + begin
    heads = np.zeros((row.size, HEAD), np.int32)
    heads[:, [0, 1, 2, 4, 5, 6]] = np.stack([named, first, end - begin, cut[row], part, places[row]], axis=1)
    heads = heads[np.argsort(-heads[:, 2], kind="stable")]
    heads[:, 3] = np.arange(row.size) % np.maximum(heads[:, 2], 1) * turn
    if indices is not None and indices.size:
        at = np.arange(HEAD - 8, dtype=np.int32)
        there = at < heads[:, 2, None]
        heads[:, 8:][there] = indices[(heads[:, 1, None] + at)[there]]
    return heads


def mma_pieces(values: NDArray[Any]) -> NDArray[Any]:
    """Order blocks as lanes hold them for ``mma_m16n8k16``.

    Parameters
    ----------
    values : (n, R, C) array of elements of 16 bits
        R and C multiples of 16.

    Returns
    -------
    (n, C / 16, R / 16, 32, 8) array
        For every 16 x 16 piece the 8 elements of each lane, in the order of the operand's registers.
    """
    n, rows, cols = values.shape
    # Row = 16 m + 8 side + g, column = 16 k + 8 half + 2 t + e; lane = 4 g + t, its registers are (half, side, e).
    parts = values.reshape(n, rows // 16, 2, 8, cols // 16, 2, 4, 2).transpose(0, 4, 1, 3, 6, 5, 2, 7)
    return np.ascontiguousarray(parts).reshape(n, cols // 16, rows // 16, 32, 8)


def transposed_pieces(values: NDArray[Any]) -> NDArray[Any]:
    """Order groups as lanes hold them for the second operand of ``mma_m16n8k16``.

    Parameters
    ----------
    values : (n, 8, 16) array of elements of 16 bits

    Returns
    -------
    (n, 32, 4) array
        The 4 elements of each lane, in the order of the operand's registers.
    """
    # Row = g, column = 8 half + 2 t + e; lane = 4 g + t, its registers are (half, e).
    parts = values.reshape(-1, 8, 2, 4, 2).transpose(0, 1, 3, 2, 4)
    return np.ascontiguousarray(parts).reshape(-1, 32, 4)


_WARP = 32
STRIPS = (1, 2, 4)
"""Block rows of a thread block."""
SPMM_STRIPS = KernelTemplate(
    Path(__file__).parent / "strip_spmm.cu",
    "spmm_strips",
    {"T": NARROW, "columns": (4, 8), "threads": tuple(_WARP * strips for strips in STRIPS)},
)


class StripSpmmPlan(OneLaunchPlan):
    """C = A B with a warp for each block row of BSR(16, 16), in 16 bits with float32 sums.

    Parameters
    ----------
    problem : Problem
        J a multiple of 8.
    form : BsrFormat
        Blocks of 16 x 16.
    config : mapping
        Facts for `DevicePlan.config`, to which the schedule below is added.
    arrays : sequence of device arrays, optional
        `arrays` of another plan of the same format.
    **schedule : int
        ``tile``: columns of C of a warp, 32 or 64; ``strips``: block rows of a thread block.

    Raises
    ------
    BuildError
        There is no kernel with that tile.
    """

    def __init__(
        self, problem: Problem, target: Target, form: DenseBlocks, config: Config, arrays: Arrays = (), **schedule: int
    ) -> None:
        tile, strips = schedule["tile"], schedule["strips"]
        super().__init__(problem, target, {**config, **schedule}, alignment=16)
        self.stored = form.stored
        self._load(strip_instance(problem, tile, strips))
        with self.phase("convert"):
            pieces = () if arrays else (form.indices, mma_pieces(problem.dtype.stored(form.blocks)))
        block_rows = form.indptr.size - 1
        grid = (ceil_div(block_rows, strips), ceil_div(problem.width, tile), 1)
        sizes = (*problem.matrix.shape, problem.width, block_rows)
        held = self.share(arrays, pieces)
        self.values, self.values_in_order = held[-1], False
        self._arrange(grid, sizes, (form.indptr,), held)


def strip_instance(problem: Problem, tile: int, strips: int) -> Instance:
    """Give the kernel for tiles of so many columns and so many block rows of a thread block.

    Raises
    ------
    BuildError
        There is no such kernel.
    """
    return SPMM_STRIPS.instance(T=C_TYPES[problem.dtype], columns=tile // 8, threads=_WARP * strips)
