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

from spmark.impls.core.problem import Csr, Problem
from spmark.impls.dash.loops import locate, tally

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
    *SIZES,
    "avg_row",
    "max_row",
    "std_row",
    "empty_rows",
    "avg_col",
    "max_col",
    "std_col",
    "neighbours",
)
"""What models without a featuriser know of a matrix: counts as log2 of one plus the number, and two shares."""
_DENSE: Final = 1 << 24
"""Most sites of a grid that is counted in an array of the whole grid."""


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
    """Give the active sites of a matrix; O(nnz), and O(nnz log nnz) for grids of more than 2^24 sites.

    Parameters
    ----------
    matrix : Csr
    max_sites : int
        Most active sites. With the number of non-zeros nothing is merged for this reason.
    max_side : int
        Most rows and columns of the grid.
    """
    halvings = [max(0, (side - 1).bit_length() - (max_side - 1).bit_length()) for side in matrix.shape]
    grid = _grid(matrix, halvings)
    active = _active(_located(matrix, halvings), grid)
    while active.size > max_sites:
        at_row, at_col = np.divmod(active, grid[1])
        longer = 0 if grid[0] >= grid[1] else 1
        halvings[longer] += 1
        grid = _grid(matrix, halvings)
        active = _active((at_row >> (longer == 0)) * grid[1] + (at_col >> (longer == 1)), grid)
    at_row, at_col = np.divmod(active, grid[1])
    return Sites(
        grid,
        (1 << halvings[0], 1 << halvings[1]),
        at_row.astype(np.int32),
        at_col.astype(np.int32),
        _features(matrix, _places(_located(matrix, halvings), active, grid), active.size, sum(halvings)),
    )


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
    shares = [float((by_row == 0).mean())], [float(_beside(matrix).mean()) if matrix.nnz else 0.0]
    return np.concatenate([sizes(problem), row, shares[0], col, shares[1]]).astype(np.float32)


def _grid(matrix: Csr, halvings: list[int]) -> tuple[int, int]:
    rows, cols = (((side - 1) >> times) + 1 for side, times in zip(matrix.shape, halvings, strict=True))
    return rows, cols


def _located(matrix: Csr, halvings: list[int]) -> NDArray[np.int64]:
    """Give the site of each non-zero: its row of the grid times the grid's columns, plus its column."""
    keys = np.empty(matrix.nnz, np.int64)
    locate(matrix.indptr, matrix.indices, *halvings, _grid(matrix, halvings)[1], keys)
    return keys


def _active(located: NDArray[np.int64], grid: tuple[int, int]) -> NDArray[np.int64]:
    """Give the sites with a non-zero in rising order."""
    if grid[0] * grid[1] > _DENSE:
        return np.unique(located)
    seen = np.zeros(grid[0] * grid[1], np.bool_)
    seen[located] = True
    return np.flatnonzero(seen)


def _places(located: NDArray[np.int64], active: NDArray[np.int64], grid: tuple[int, int]) -> NDArray[np.int64]:
    """Give the place of each non-zero's site among the active sites."""
    if grid[0] * grid[1] > _DENSE:
        return np.searchsorted(active, located)
    places = np.zeros(grid[0] * grid[1], np.int64)
    places[active] = np.arange(active.size)
    return places[located]


def _features(matrix: Csr, of_entry: NDArray[np.int64], size: int, halved: int) -> NDArray[np.float32]:
    counts, pieces, beside = np.zeros((3, size), np.int64)
    tally(matrix.indptr, matrix.indices, of_entry, counts, pieces, beside)
    density = np.log2(1.0 + counts) / np.log2(1.0 + 2.0**halved)
    return np.stack([density, 1.0 - pieces / counts, beside / counts], axis=1).astype(np.float32)


def _beside(matrix: Csr) -> NDArray[np.bool_]:
    """Say of each non-zero whether the place to its left is a non-zero, too, (nnz,) bool."""
    found = np.zeros(matrix.nnz, np.bool_)
    found[1:] = matrix.indices[1:] - matrix.indices[:-1] == 1
    starts = matrix.indptr[:-1]
    found[starts[starts < matrix.nnz]] = False
    return found
