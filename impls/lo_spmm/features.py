"""A candidate's features for the rank model: the nine of LO-SpMM's table 1, and two of sizes that the paper fixes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from spmark.impls.lo_spmm.space import TileSize
from spmark.impls.runtime.target import ceil_div

if TYPE_CHECKING:
    from spmark.impls.lo_spmm.search import TileSpace

FEATURES: Final = (
    *("row_tiles", "col_tiles", "blocks", "sparsity", "nnc_sum", "nnz_max", "tile_rows", "tile_width", "K"),
    *("cpt", "tiles_per_block"),
)
"""Names of the features, in the order of `candidate_features`; the paper's first."""


def candidate_features(space: TileSpace, size: TileSize) -> NDArray[np.float64]:
    """Give the features of one candidate, (11,) float64 in the order of `FEATURES`."""
    matrix, (_, nnz, nnc) = space.problem.matrix, space.dealt(size.tile_rows, size.split)
    columns = ceil_div(space.problem.width, size.tile_width)
    sparsity = 1 - matrix.nnz / (matrix.num_rows * matrix.num_cols)
    counts = (nnz.size, columns, nnz.size * columns)
    contents = (sparsity, nnc.sum(), nnz.max(initial=0))
    tile = (size.tile_rows, size.tile_width, matrix.num_cols, size.cpt, size.tiles_per_block)
    return np.array([*counts, *contents, *tile], np.float64)
