"""Rows of A dealt to tiles so that a tile has few non-empty columns and all have about as many non-zeros.

LO-SpMM, section 4, algorithm 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from spmark.impls.core.loops import compiled
from spmark.impls.core.problem import Csr
from spmark.impls.lo_spmm.hypergraph import partition_rows
from spmark.impls.runtime.target import ceil_div

_LONG = types.int64
_IN = types.Array(types.int32, 1, "C", readonly=True)
MOST_EMPTY = 128
"""Empty rows of a tile up to which none is made for them alone: so many that the tallest matrix of hardly anything else
needs 512 functions, since each takes the assembler milliseconds, and few enough to be stored in about a microsecond."""


class Reordering(StrEnum):
    """How rows come to tiles."""

    GREEDY = "greedy"
    """Algorithm 1."""
    NONE = "none"
    """Consecutive rows, empty ones left out."""
    HYPERGRAPH = "hypergraph"
    """By a partitioner (`spmark.impls.lo_spmm.hypergraph`), which needs the extra of that name."""


def deal_rows(matrix: Csr, tile_rows: int, order: Reordering = Reordering.GREEDY) -> list[NDArray[np.int32]]:
    """Give the rows of every tile, increasing; empty rows are dealt by `deal_empty_rows`.

    Rows come in the order of their lengths, shortest first. Each goes to the tile with the fewest non-empty columns
    once it has joined, of those with room and fewer non-zeros than the mean of all tiles; where no tile with room is
    below the mean, to the one with the fewest columns. Ties go to the earlier row and the earlier tile.

    Parameters
    ----------
    matrix : Csr
    tile_rows : int
        M1, the most rows of a tile.
    order : Reordering

    Returns
    -------
    list of (m,) int32
        ceil(non-empty rows / M1) tiles; the greedy one takes O(nnz * tiles) time and K * tiles bytes.
    """
    lengths = matrix.row_lengths
    rows = np.flatnonzero(lengths).astype(np.int32)
    if order is Reordering.NONE:
        return [rows[start : start + tile_rows] for start in range(0, rows.size, tile_rows)]
    if order is Reordering.HYPERGRAPH:
        return partition_rows(matrix, rows, tile_rows)
    rows = rows[np.argsort(lengths[rows], kind="stable")]
    count = -(-rows.size // tile_rows)
    tile_of = np.zeros(rows.size, np.int32)
    if count > 1:
        _deal(matrix.indptr, matrix.indices, rows, tile_rows, matrix.nnz / count, matrix.num_cols, count, tile_of)
    by_tile = rows[np.lexsort((rows, tile_of))]
    ends = np.cumsum(np.bincount(tile_of, minlength=count))
    return [by_tile[start:stop] for start, stop in zip([0, *ends[:-1]], ends, strict=True)] if count else []


def deal_empty_rows(matrix: Csr, dealt: Sequence[NDArray[np.int32]]) -> list[NDArray[np.int32]]:
    """Spread the rows without entries over tiles, so that no launch of their own has to clear them.

    A store of a constant needs no register and waits for nothing, so they come on top of M1, to each tile about as many
    neighbouring ones. What would be more than a tile's own rows, and more than `MOST_EMPTY`, goes to further tiles.

    Parameters
    ----------
    matrix : Csr
    dealt : sequence of (m,) int32
        Of `deal_rows`.

    Returns
    -------
    list of (e,) int32
        Increasing: of each tile that is dealt, in their order, then of those that have empty rows alone.
    """
    empty = np.flatnonzero(matrix.row_lengths == 0).astype(np.int32)
    room = max([MOST_EMPTY, *(rows.size for rows in dealt)])
    count = max(len(dealt), ceil_div(empty.size, room))
    return np.array_split(empty, count) if count else []


@compiled(types.void, _IN, _IN, _IN, _LONG, types.float64, _LONG, _LONG, types.int32[::1])
def _deal(  # noqa: PLR0917 (Numba takes no keyword-only arguments)
    indptr: Any, indices: Any, rows: Any, tile_rows: Any, most_nnz: Any, num_cols: Any, count: Any, tile_of: Any
) -> None:
    """Write the tile of each of ``rows``, in their order; ``count`` tiles have room for all."""
    held = np.zeros((num_cols, count), np.uint8)  # one line holds a column's mark in every tile: scanned side by side
    columns = np.zeros(count, np.int64)
    nnz = np.zeros(count, np.int64)
    size = np.zeros(count, np.int64)
    shared = np.zeros(count, np.int32)
    for position in range(rows.size):
        start, stop = indptr[rows[position]], indptr[rows[position] + 1]
        shared[:] = 0
        for at in range(start, stop):
            line = held[indices[at]]
            for tile in range(count):
                shared[tile] += line[tile]
        best, fewest, below = -1, num_cols + 1, False
        for tile in range(count):
            if size[tile] < tile_rows:
                merged = columns[tile] + (stop - start) - shared[tile]
                light = nnz[tile] < most_nnz
                if (light and not below) or (light == below and merged < fewest):
                    best, fewest, below = tile, merged, light
        tile_of[position] = best
        columns[best] = fewest
        nnz[best] += stop - start
        size[best] += 1
        for at in range(start, stop):
            held[indices[at], best] = 1
