"""Rows of A dealt to tiles so that a tile has few non-empty columns and all have about as many non-zeros.

LO-SpMM, section 4: algorithm 1, and the hypergraph partitioner with which figure 6 compares it. For the partitioner,
rows are nodes that weigh their non-zeros, and columns are nets. The connectivity metric counts in how many tiles beyond
the first a column has non-zeros: exactly the loads that a partition costs. The paper takes KaHyPar. Here it is the
multi-threaded successor of KaHyPar in the deterministic preset, on one thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from functools import cache
from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from spmark.impls.core.errors import needed
from spmark.impls.core.loops import IN, LONG, compiled
from spmark.impls.core.problem import Csr
from spmark.impls.runtime.target import ceil_div

IMBALANCE = 0.1
"""Share by which a tile's non-zeros may exceed the mean, as the partitioner takes it."""
_SEED = 0
MOST_EMPTY = 128
"""Empty rows that a tile may take before tiles are made for them alone. They are stored in about a microsecond, and the
tallest matrix of almost only empty rows needs 512 functions, each of which takes the assembler milliseconds."""


class Reordering(StrEnum):
    """How rows are dealt to tiles."""

    GREEDY = "greedy"
    """Algorithm 1."""
    NONE = "none"
    """Consecutive rows, empty ones left out."""
    HYPERGRAPH = "hypergraph"
    """By a partitioner (`partition_rows`), which needs the extra ``hypergraph``."""


def deal_rows(matrix: Csr, tile_rows: int, order: Reordering = Reordering.GREEDY) -> list[NDArray[np.int32]]:
    """Give the rows of every tile, increasing; empty rows are dealt by `deal_empty_rows`.

    Rows come in the order of their lengths, shortest first. A row may join tiles with room and fewer non-zeros than the
    mean of all tiles, or, where no such tile is left, all tiles with room. Of these it goes to the tile that then has
    the fewest non-empty columns. Ties go to the earlier row and the earlier tile.

    Parameters
    ----------
    matrix : Csr
    tile_rows : int
        M1, the most rows of a tile.
    order : Reordering

    Returns
    -------
    list of (m,) int32
        ceil(non-empty rows / M1) tiles; the greedy order takes O(nnz * tiles) time and K * tiles bytes.
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
    return np.split(by_tile, np.cumsum(np.bincount(tile_of, minlength=count))[:-1]) if count else []


def deal_empty_rows(matrix: Csr, dealt: Sequence[NDArray[np.int32]]) -> list[NDArray[np.int32]]:
    """Spread the rows without entries over tiles, so that no launch of their own has to clear them.

    A store of a constant needs no register and waits for nothing, so a tile takes empty rows beside its M1 rows. Each
    tile gets about as many, neighbours together. Where they would be more than a tile's own rows, and more than
    `MOST_EMPTY`, the remaining ones go to further tiles.

    Parameters
    ----------
    matrix : Csr
    dealt : sequence of (m,) int32
        Rows of each tile, by `deal_rows`.

    Returns
    -------
    list of (e,) int32
        Empty rows of each tile of ``dealt``, in order, then of tiles that have empty rows alone; increasing.
    """
    empty = np.flatnonzero(matrix.row_lengths == 0).astype(np.int32)
    room = max([MOST_EMPTY, *(rows.size for rows in dealt)])
    count = max(len(dealt), ceil_div(empty.size, room))
    return np.array_split(empty, count) if count else []


@compiled(types.void, IN, IN, IN, LONG, types.float64, LONG, LONG, types.int32[::1])
def _deal(  # noqa: PLR0917 (Numba takes no keyword-only arguments)
    indptr: Any, indices: Any, rows: Any, tile_rows: Any, most_nnz: Any, num_cols: Any, count: Any, tile_of: Any
) -> None:
    """Deal rows to ``count`` tiles by algorithm 1.

    Parameters
    ----------
    indptr : (I + 1,) int32
        Where each row of A begins in ``indices``.
    indices : (nnz,) int32
        Columns of A in CSR.
    rows : (n,) int32
        Non-empty rows, shortest first.
    tile_rows : int
        M1; ``count`` tiles of as many rows have room for all rows.
    most_nnz : float
        Mean of the non-zeros of a tile.
    num_cols, count : int
        K, and the number of tiles.
    tile_of : (n,) int32
        Written: the tile of each of ``rows``. The caller allocates it.
    """
    marks = np.zeros((num_cols, count), np.uint8)  # one line has a column's mark in every tile: scanned side by side
    columns = np.zeros(count, np.int64)
    nnz = np.zeros(count, np.int64)
    size = np.zeros(count, np.int64)
    shared = np.zeros(count, np.int32)
    for position in range(rows.size):
        start, stop = indptr[rows[position]], indptr[rows[position] + 1]
        shared[:] = 0
        for at in range(start, stop):
            line = marks[indices[at]]
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
            marks[indices[at], best] = 1


def partition_rows(matrix: Csr, rows: NDArray[np.int32], tile_rows: int) -> list[NDArray[np.int32]]:
    """Deal rows to ceil(rows / M1) tiles.

    A partitioner balances non-zeros and not rows. Where a tile gets more than M1 rows, its longest rows move, each to
    the tile with room to which the row adds fewest columns.

    Parameters
    ----------
    matrix : Csr
    rows : (n,) int32
        Rows that are not empty, increasing.
    tile_rows : int
        M1.

    Returns
    -------
    list of (m,) int32
        Rows of each tile, increasing; tiles without rows are left out.

    Raises
    ------
    UnsupportedError
        The partitioner is not installed.
    """
    count = -(-rows.size // tile_rows)
    if count <= 1:
        return [rows] if rows.size else []
    blocks = _partitioned(matrix, rows, count)
    dealt = [rows[blocks == number].tolist() for number in range(count)]
    columns_of = {row: set(matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]].tolist()) for row in rows}
    columns = [set[int]().union(*(columns_of[row] for row in tile)) for tile in dealt]
    for number in range(count):
        by_length = sorted(dealt[number], key=lambda row: (int(matrix.row_lengths[row]), row))
        dealt[number], moved = by_length[:tile_rows], by_length[tile_rows:]
        for row in moved:
            room = [tile for tile in range(count) if len(dealt[tile]) < tile_rows]
            best = min(room, key=lambda tile: len(columns_of[row] - columns[tile]))
            dealt[best].append(row)
            columns[best] |= columns_of[row]
    return [np.sort(np.array(tile, np.int32)) for tile in dealt if tile]


@cache
def _partitioner() -> Any:
    """Give the instance of the library that this process initialises once."""
    return needed("mtkahypar", "Mt-KaHyPar", "hypergraph").initialize(1)


def _partitioned(matrix: Csr, rows: NDArray[np.int32], count: int) -> NDArray[np.int64]:
    """Give the block of every row."""
    library = _partitioner()
    import mtkahypar

    mtkahypar.set_seed(_SEED)
    context = library.context_from_preset(mtkahypar.PresetType.DETERMINISTIC)
    context.set_partitioning_parameters(count, IMBALANCE, mtkahypar.Objective.KM1)
    context.logging = False
    by_column = matrix.of_rows(rows)[0].transposed()
    nets = [nodes.tolist() for nodes in np.split(by_column.indices, by_column.indptr[1:-1]) if nodes.size > 1]
    weights = matrix.row_lengths[rows].tolist()
    graph = library.create_hypergraph(context, rows.size, len(nets), nets, weights, [1] * len(nets))
    partition = graph.partition(context)
    return np.array([partition.block_id(node) for node in range(rows.size)], np.int64)
