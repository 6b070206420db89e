"""A candidate's features for the rank model: the nine of LO-SpMM's table 1, and two of sizes that the paper fixes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.problem import Csr
from spmark.impls.lo_spmm.space import TileSize
from spmark.impls.runtime.target import ceil_div

PAPER: Final = ("row_tiles", "col_tiles", "blocks", "sparsity", "nnc_sum", "nnz_max", "tile_rows", "tile_width", "K")
FEATURES: Final = (*PAPER, "cpt", "tiles_per_block")
"""Names of the features, in the order of `candidate_features`."""


def count_tiles(
    matrix: Csr, dealt: Sequence[NDArray[np.int32]], part_of: NDArray[np.int32] | None = None, parts: int = 1
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count the non-zeros and non-empty columns of each row tile, without laying it out.

    Parameters
    ----------
    matrix : Csr
    dealt : sequence of (m,) int32
        Rows of each tile.
    part_of : (K,) int32, optional
        Part of each column, where tiles are cut (`spmark.impls.lo_spmm.parts.part_of_columns`).
    parts : int
        Number of parts.

    Returns
    -------
    nnz, nnc : (tiles,) or (parts * tiles,) int64
        Non-zeros and non-empty columns, part by part. O(nnz log nnz).
    """
    tile_of = np.full(matrix.num_rows, -1, np.int64)
    for number, rows in enumerate(dealt):
        tile_of[rows] = number
    tiles = tile_of[matrix.rows_of_entries()]
    dealt_entries, count = tiles >= 0, len(dealt) * parts
    if part_of is not None:
        tiles += len(dealt) * part_of[matrix.indices]
    places = np.unique(tiles[dealt_entries] * matrix.num_cols + matrix.indices[dealt_entries])
    nnz = np.bincount(tiles[dealt_entries], minlength=count)
    nnc = np.bincount(places // matrix.num_cols, minlength=count)
    return nnz, nnc


def candidate_features(
    matrix: Csr, width: int, size: TileSize, nnz: NDArray[np.int64], nnc: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Give the features of one candidate.

    Parameters
    ----------
    matrix : Csr
    width : int
        J.
    size : TileSize
    nnz, nnc : (tiles,) int64
        Counts of `count_tiles` for the candidate's M1.

    Returns
    -------
    (11,) float64
        Features in the order of `FEATURES`.
    """
    columns = ceil_div(width, size.tile_width)
    sparsity = 1 - matrix.nnz / (matrix.num_rows * matrix.num_cols)
    counts = (nnz.size, columns, nnz.size * columns)
    contents = (sparsity, nnc.sum(), nnz.max(initial=0))
    tile = (size.tile_rows, size.tile_width, matrix.num_cols, size.cpt, size.tiles_per_block)
    return np.array([*counts, *contents, *tile], np.float64)
