"""The order in which every PE meets the non-zeros of A: tiles, their static assignment, and groups between barriers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.problem import Csr, offsets, openings
from spmark.impls.spade_sim import loops


@dataclass(frozen=True, eq=False)
class TileOrder:
    """The non-zeros of A in the order of groups, PEs, tiles and rows."""

    rows: NDArray[np.int32]
    """(nnz,) row of every non-zero."""
    columns: NDArray[np.int32]
    """(nnz,) column of every non-zero."""
    opens: NDArray[np.uint8]
    """(nnz + 1,) what begins with every non-zero, as `spmark.impls.spade_sim.loops.run_stage` reads it."""
    begins: NDArray[np.int64]
    """(groups * PEs + 1,) first non-zero of every PE in every group."""
    tiles: NDArray[np.int64]
    """(groups, PEs) tiles with non-zeros."""

    @property
    def groups(self) -> int:
        """Groups of tiles; between two of them stands a barrier."""
        return len(self.tiles)


def tile_order(matrix: Csr, p_row: int, p_col: int, barrier: bool, pes: int) -> TileOrder:
    """Cut A into tiles and deal the rows of tiles to PEs by turns.

    Row r of tiles belongs to PE ``r % pes``. Without a barrier there is one group: a PE takes row after row of its
    tiles, each from left to right. With a barrier every column of tiles is a group: a PE takes its tiles of the column
    from top to bottom. Tiles without non-zeros are left out.

    Parameters
    ----------
    matrix : Csr
    p_row, p_col : int
        Rows and columns of a tile.
    barrier : bool
    pes : int

    Returns
    -------
    TileOrder
        O(nnz log nnz + tile rows + tile columns * pes) time.
    """
    num_rows, num_cols = matrix.shape
    tile_rows, tile_cols = -(-num_rows // p_row), -(-num_cols // p_col)
    numbers = np.arange(tile_rows)
    first = offsets(np.bincount(numbers % pes, minlength=pes))
    dealt = (first[numbers % pes] + numbers // pes).astype(np.int32)  # place of every row of tiles, PE by PE

    down = np.repeat(dealt[np.arange(num_rows) // p_row], matrix.row_lengths)
    across = matrix.indices // np.int32(p_col)
    # The last key counts first, and entries of equal keys keep their order.
    order = np.lexsort((down, across) if barrier else (across, down))
    begins_sum = np.zeros(matrix.nnz, np.bool_)
    begins_sum[matrix.indptr[:-1][matrix.row_lengths > 0]] = True  # whatever the tiles, a row goes from left to right
    rows, columns, down, across = matrix.rows_of_entries()[order], matrix.indices[order], down[order], across[order]
    opens_tile = openings(down) | openings(across)
    opens = np.full(matrix.nnz + 1, loops.OPENS_ROW, np.uint8)
    opens[:-1] = (opens_tile | openings(rows)) * loops.OPENS_ROW + begins_sum[order] * loops.BEGINS_SUM
    groups = tile_cols if barrier else 1
    places = np.repeat(np.arange(pes), np.diff(first))[down]
    if barrier:
        places += across.astype(np.int64) * pes
    begins = offsets(np.bincount(places, minlength=groups * pes))
    tiles = np.bincount(places[opens_tile], minlength=groups * pes).reshape(groups, pes)
    return TileOrder(rows, columns, opens, begins, tiles)
