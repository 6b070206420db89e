"""Statistics of a matrix: sizes, row lengths, symmetry and how well blocks fill."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from spmark.impls.core.problem import Csr


@dataclass(frozen=True)
class Statistics:
    """Counts and shapes of one matrix."""

    num_rows: int
    num_cols: int
    nnz: int
    density: float
    """nnz / (I K)."""
    shortest_row: int
    mean_row: float
    median_row: float
    longest_row: int
    std_row: float
    """Standard deviation of row lengths."""
    gini_row: float
    """Gini coefficient of row lengths: 0 where all are equal, towards 1 where few rows hold all."""
    empty_rows: int
    used_cols: int
    bandwidth: int
    """Largest |i - k| of a non-zero."""
    self_loops: int | None
    """Non-zeros on the diagonal; None where the matrix is not square."""
    symmetric: bool
    """The pattern is square and its own transpose."""
    block_fill_8: float
    """nnz over the elements of the 8 x 8 blocks with a non-zero; 0 in a matrix without non-zeros."""
    block_fill_32: float


def statistics(matrix: Csr) -> Statistics:
    """Describe a matrix. O(nnz + I log I) time; the memory is that of a second pattern."""
    lengths = matrix.row_lengths
    rows = np.repeat(np.arange(matrix.num_rows, dtype=np.int32), lengths)
    distance = np.abs(rows - matrix.indices)
    return Statistics(
        num_rows=matrix.num_rows,
        num_cols=matrix.num_cols,
        nnz=matrix.nnz,
        density=matrix.nnz / (matrix.num_rows * matrix.num_cols),
        shortest_row=int(lengths.min()),
        mean_row=matrix.nnz / matrix.num_rows,
        median_row=float(np.median(lengths)),
        longest_row=int(lengths.max()),
        std_row=float(lengths.std()),
        gini_row=_gini(lengths),
        empty_rows=int(np.count_nonzero(lengths == 0)),
        used_cols=matrix.used_cols,
        bandwidth=int(distance.max(initial=0)),
        self_loops=int(np.count_nonzero(distance == 0)) if matrix.num_rows == matrix.num_cols else None,
        symmetric=_symmetric(matrix),
        block_fill_8=_block_fill(matrix, 8),
        block_fill_32=_block_fill(matrix, 32),
    )


def _gini(lengths: NDArray[np.int32]) -> float:
    total = int(lengths.sum(dtype=np.int64))
    if total == 0:
        return 0.0
    ranks = np.arange(1, lengths.size + 1, dtype=np.float64)
    return float(2 * (ranks @ np.sort(lengths)) / (lengths.size * total) - (lengths.size + 1) / lengths.size)


def _symmetric(matrix: Csr) -> bool:
    if matrix.num_rows != matrix.num_cols:
        return False
    ones = np.empty(matrix.nnz, np.int8)
    flipped = sparse.csr_array((ones, matrix.indices, matrix.indptr), shape=matrix.shape).tocsc()
    return np.array_equal(flipped.indptr, matrix.indptr) and np.array_equal(flipped.indices, matrix.indices)


def _block_fill(matrix: Csr, block: int) -> float:
    """Count each block row's distinct blocks: an entry counts if it was the last to write its block's mark."""
    blocks = 0
    mark = np.empty(-(-matrix.num_cols // block), np.int64)
    for start in range(0, matrix.num_rows, block):
        stop = min(start + block, matrix.num_rows)
        part = matrix.indices[matrix.indptr[start] : matrix.indptr[stop]] // block
        mark[part] = order = np.arange(part.size)
        blocks += int(np.count_nonzero(mark[part] == order))
    return matrix.nnz / (blocks * block * block) if blocks else 0.0
