"""Split K: the columns of A in parts whose tiles are chains of their own, and the launch that adds their results.

The paper does not cut columns. Code that is run once is fetched about as slowly as one warp runs it, so that few rows
of many columns are few long chains on few multiprocessors. A part of the columns is a matrix like any other. Its tiles
write to a workspace as to the rows of a taller C. A second grid, which is launched while the first ends, adds the parts
in their order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.interfaces import DeviceArray
from spmark.impls.core.problem import Csr, Problem, offsets
from spmark.impls.lo_spmm.kernel import Tile, make_tiles
from spmark.impls.lo_spmm.space import SPLITS
from spmark.impls.runtime.target import Target, ceil_div
from spmark.impls.runtime.template import KernelTemplate, loads_of

_THREADS = 128
SUM_PARTS = KernelTemplate(
    Path(__file__).parent / "kernels" / "sum_parts.cu",
    "sum_parts",
    {"parts": tuple(split for split in SPLITS if split > 1), "vector": (1, 2, 4), "threads": (_THREADS,)},
)


def part_of_columns(matrix: Csr, split: int) -> NDArray[np.int32]:
    """Cut the columns into ranges of about as many non-zeros; with half of the parts, each range is a pair of these.

    Returns
    -------
    (K,) int32
        Part of each column, increasing, each below ``split``.
    """
    counts = np.bincount(matrix.indices, minlength=matrix.num_cols)
    middle = np.cumsum(counts) - counts / 2  # a column goes where its middle lies
    return np.asarray(np.minimum(middle * split / max(1, matrix.nnz), split - 1), np.int32)


def tiles_of(problem: Problem, dealt: Sequence[NDArray[np.int32]], split: int) -> tuple[Tile, ...]:
    """Lay out the tiles of dealt rows (`spmark.impls.lo_spmm.kernel.make_tiles`), each in ``split`` parts.

    Returns
    -------
    tuple of Tile
        In one part with the empty rows of A. Else all tiles of the first part, then all of the second, which write row
        r of part p to row ``p I + r``; tiles without entries write zeros. They leave empty rows out: the grid that adds
        the parts writes every row of C, and reads zeros where no tile has written (`PartSums`).
    """
    matrix, tiles = problem.matrix, list[Tile]()
    if split == 1:
        return make_tiles(matrix, problem.values, dealt)
    part_of, none = part_of_columns(matrix, split)[matrix.indices], np.zeros(0, np.int32)
    for part in range(split):
        kept = part_of == part
        own = Csr(matrix.shape, offsets(kept)[matrix.indptr], matrix.indices[kept], matrix.values[kept])
        for tile in make_tiles(own, problem.values[kept], dealt)[: len(dealt)]:
            tiles.append(replace(tile, rows=tile.rows + np.int32(part * matrix.num_rows), empty=none))
    return tuple(tiles)


def workspace_bytes(problem: Problem, split: int) -> int:
    """Give the bytes that the parts' results take beside C."""
    return 0 if split == 1 else split * math.prod(problem.out_shape) * problem.dtype.itemsize


class PartSums:
    """The workspace of a split kernel and the launch that adds it up; runs that share a workspace must not overlap.

    Parameters
    ----------
    target : Target
    problem : Problem
    split : int
        More than 1.

    Attributes
    ----------
    partial : device array
        (split, I, J) float32, written by the kernel. Rows that no tile writes stay zero.
    alignment : int
        Bytes that the address of C must be a multiple of.
    """

    def __init__(self, target: Target, problem: Problem, split: int) -> None:
        elements = math.prod(problem.out_shape)
        vector = loads_of(elements, 4)[0]
        self.partial: DeviceArray = target.empty((split, *problem.out_shape), problem.dtype.numpy)
        self.partial.fill(0)
        self.alignment = vector * problem.dtype.itemsize
        (self._kernel,) = target.load([SUM_PARTS.instance(parts=split, vector=vector, threads=_THREADS)])
        self._elements = np.int64(elements)
        self._grid = ceil_div(elements, vector * _THREADS), 1, 1

    def enqueue(self, out: DeviceArray) -> None:
        """Write all of ``out``; the grid may begin before the kernel's grid has ended, and waits for that grid."""
        self._kernel.launch(self._grid, (self._elements, self.partial, out), overlap=True)
