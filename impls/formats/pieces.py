"""Pieces of rows, one for each row and column partition: formats of padded rows are laid out from them.

After the column partition of hyb(c, k): Ye, Lai, Shao, Chen and Ceze, "SparseTIR: Composable Abstractions for Sparse
Compilation in Deep Learning", ASPLOS 2023, section 4.2.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.problem import Csr
from spmark.impls.formats.threads import equal_shares, run_all


@dataclass(frozen=True, eq=False)
class Pieces:
    """Runs of consecutive non-zeros, each within one row and one column partition; every non-zero is in exactly one.

    Pieces are in CSR order, rows never falling and starts rising, unless another order is asked for (`in_order`).
    """

    shape: tuple[int, int]
    """(I, K) of the matrix."""
    nnz: int
    """Non-zeros of the matrix, and of all pieces together."""
    partitions: int
    """c, column partitions, empty ones counted."""
    rows: NDArray[np.int32]
    """(n,) row of each piece."""
    starts: NDArray[np.int32]
    """(n,) position of each piece's first non-zero in CSR order."""
    lengths: NDArray[np.int32]
    """(n,) non-zeros of each piece, at least 1."""
    of_partition: NDArray[np.int32]
    """(n,) column partition of each piece."""

    def in_order(self, positions: NDArray[np.int32]) -> Pieces:
        """Sort the pieces by the ``positions`` (I,) of their rows; pieces of one row keep their order. O(n log n)."""
        order = np.argsort(positions[self.rows], kind="stable")
        moved = (array[order] for array in (self.rows, self.starts, self.lengths, self.of_partition))
        return Pieces(self.shape, self.nnz, self.partitions, *moved)


def partition_columns(matrix: Csr, partitions: int = 1) -> Pieces:
    """Cut every row where the column partition changes: ``partitions`` equal ranges of ceil(K / partitions) columns.

    Returns
    -------
    Pieces
        An empty row has no piece. O(I + n log(longest row)) time; memory does not grow with nnz.

    Raises
    ------
    ValueError
        Fewer than one partition.
    """
    if partitions < 1:
        raise ValueError(f"expected at least one column partition, found {partitions}")
    if partitions == 1:
        rows = np.flatnonzero(matrix.row_lengths).astype(np.int32)
        uncut = rows, matrix.indptr[rows], matrix.row_lengths[rows], np.zeros(rows.size, np.int32)
        return Pieces(matrix.shape, matrix.nnz, 1, *uncut)
    from spmark.impls.formats import loops

    width = -(-matrix.num_cols // partitions)
    shares = list(pairwise(equal_shares(matrix.indptr)))
    given = matrix.indptr, matrix.indices, width
    counts = run_all(loops.count_pieces, ((*given, *share) for share in shares))
    places = np.cumsum([0, *counts])
    made = [np.empty(int(places[-1]), np.int32) for _ in range(4)]
    run_all(
        loops.cut_pieces, ((*given, *share, place, *made) for share, place in zip(shares, places[:-1], strict=True))
    )
    return Pieces(matrix.shape, matrix.nnz, partitions, *made)
