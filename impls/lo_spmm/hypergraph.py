"""Rows dealt by a hypergraph partitioner, with which LO-SpMM's section 4 and figure 6 compare algorithm 1.

Rows are nodes that weigh their non-zeros, and columns are nets. The connectivity metric counts in how many tiles beyond
the first a column has non-zeros: exactly the loads that a partition costs. The paper takes KaHyPar. Here it is the
multi-threaded successor of KaHyPar in the deterministic preset, on one thread.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.errors import UnsupportedError
from spmark.impls.core.extras import how_to_install
from spmark.impls.core.problem import Csr

IMBALANCE = 0.1
"""Share by which a tile's non-zeros may exceed the mean."""
_SEED = 0


def is_installed() -> bool:
    """Tell whether the partitioner is installed."""
    return find_spec("mtkahypar") is not None


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
    try:
        import mtkahypar
    except ImportError as error:
        raise UnsupportedError(f"expected Mt-KaHyPar, found none ({error}): {how_to_install('hypergraph')}") from error
    return mtkahypar.initialize(1)


def _partitioned(matrix: Csr, rows: NDArray[np.int32], count: int) -> NDArray[np.int64]:
    """Give the block of every row."""
    library = _partitioner()
    import mtkahypar

    mtkahypar.set_seed(_SEED)
    context = library.context_from_preset(mtkahypar.PresetType.DETERMINISTIC)
    context.set_partitioning_parameters(count, IMBALANCE, mtkahypar.Objective.KM1)
    context.logging = False
    node_of = np.full(matrix.num_rows, -1, np.int64)
    node_of[rows] = np.arange(rows.size)
    order = np.argsort(matrix.indices, kind="stable")
    ends = np.searchsorted(matrix.indices[order], np.arange(matrix.num_cols + 1))
    nodes = node_of[matrix.rows_of_entries()[order]]
    nets = [nodes[start:stop].tolist() for start, stop in pairwise(ends) if stop - start > 1]
    weights = matrix.row_lengths[rows].tolist()
    graph = library.create_hypergraph(context, rows.size, len(nets), nets, weights, [1] * len(nets))
    partition = graph.partition(context)
    return np.array([partition.block_id(node) for node in range(rows.size)], np.int64)
