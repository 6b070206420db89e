"""What the featuriser sees of a matrix: active sites on a grid, down-sampled in one stated way, and a few sizes.

The grid begins with a site for each place of the matrix, or coarser where a side is above `MAX_SIDE`. While more than
`MAX_SITES` sites are active, the longer side's neighbours merge two by two. Sites are therefore equal rectangles of A:
bands, blocks and hubs stay where they were, and the shape of the grid follows that of the matrix. What a rectangle
looks like inside is told by its three features, which a down-sampling to zeros and ones would lose.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.problem import Csr, Problem, openings

MAX_SITES: Final = 1 << 13
MAX_SIDE: Final = 1 << 9
FEATURES: Final = ("density", "run", "neighbours")
"""Features of a site, each in [0, 1].

- ``density``: log2(1 + non-zeros) over log2(1 + places) of the rectangle; 1 where each site is one place.
- ``run``: one minus the rows' pieces in the rectangle over its non-zeros: 0 where each row has one non-zero.
- ``neighbours``: the share of non-zeros whose left neighbour in A is a non-zero, too.
"""
SIZES: Final = ("num_rows", "num_cols", "nnz", "width")
"""Facts that the grid forgets, as log2 of one plus the number."""
STATISTICS: Final = (
    *(*SIZES, "avg_row", "max_row", "std_row", "empty_rows"),
    *("avg_col", "max_col", "std_col", "neighbours"),
)
"""What models without a featuriser know of a matrix: counts as log2 of one plus the number, and two shares."""


@dataclass(frozen=True, eq=False)
class Sites:
    """Active sites of a grid, sorted by row, then by column."""

    grid: tuple[int, int]
    """Rows and columns of the grid."""
    cell: tuple[int, int]
    """Rows and columns of A in a site; powers of two."""
    rows: NDArray[np.int32]
    """(n,) int32."""
    cols: NDArray[np.int32]
    """(n,) int32."""
    features: NDArray[np.float32]
    """(n, 3) float32, in the order of `FEATURES`."""


def down_sample(matrix: Csr, max_sites: int = MAX_SITES, max_side: int = MAX_SIDE) -> Sites:
    """Give the active sites of a matrix; O(nnz + grid).

    Parameters
    ----------
    matrix : Csr
    max_sites : int
        Most active sites. With the number of non-zeros nothing is merged for this reason.
    max_side : int
        Most rows and columns of the grid.
    """
    halvings = [max(0, (side - 1).bit_length() - (max_side - 1).bit_length()) for side in matrix.shape]
    row_of, indices = matrix.rows_of_entries(), matrix.indices
    seen = np.zeros([((side - 1) >> times) + 1 for side, times in zip(matrix.shape, halvings, strict=True)], np.bool_)
    seen[row_of >> halvings[0], indices >> halvings[1]] = True
    while np.count_nonzero(seen) > max_sites:
        longer = 0 if seen.shape[0] >= seen.shape[1] else 1
        halvings[longer] += 1
        seen = np.logical_or.reduceat(seen, np.arange(0, seen.shape[longer], 2), axis=longer)
    rows, cols = np.nonzero(seen)
    places = (np.cumsum(seen) - 1).reshape(seen.shape)
    site = places[row_of >> halvings[0], indices >> halvings[1]]
    counts = np.bincount(site, minlength=rows.size)
    pieces = np.bincount(site[openings(row_of) | openings(site)], minlength=rows.size)
    beside = np.bincount(site[_beside(matrix)], minlength=rows.size)
    density = np.log2(1.0 + counts) / np.log2(1.0 + 2.0 ** sum(halvings))
    features = np.stack([density, 1.0 - pieces / counts, beside / counts], axis=1).astype(np.float32)
    cell = (1 << halvings[0], 1 << halvings[1])
    return Sites((seen.shape[0], seen.shape[1]), cell, rows.astype(np.int32), cols.astype(np.int32), features)


def sizes(problem: Problem) -> NDArray[np.float32]:
    """Give (4,) float32 in the order of `SIZES`."""
    matrix = problem.matrix
    return np.log2(1.0 + np.array([*matrix.shape, matrix.nnz, problem.width])).astype(np.float32)


def statistics(problem: Problem) -> NDArray[np.float32]:
    """Give (12,) float32 in the order of `STATISTICS`. O(I + K + nnz)."""
    matrix = problem.matrix
    by_row = matrix.row_lengths
    by_col = np.bincount(matrix.indices, minlength=matrix.num_cols)
    row, col = (np.log2(1.0 + np.array([by.mean(), by.max(), by.std()])) for by in (by_row, by_col))
    shares = [(by_row == 0).mean()], col, [np.count_nonzero(_beside(matrix)) / max(1, matrix.nnz)]
    return np.concatenate([sizes(problem), row, *shares]).astype(np.float32)


def _beside(matrix: Csr) -> NDArray[np.bool_]:
    """Mark the non-zeros, (nnz,), whose left neighbour in A is a non-zero, too."""
    marks = ~openings(matrix.rows_of_entries())
    marks[1:] &= np.diff(matrix.indices) == 1
    return marks
