"""Rules that cut a CSR matrix into pieces of rows whose sum is the matrix: column partitions, folding, buckets.

After the format decomposition of Ye, Lai, Shao, Chen and Ceze, "SparseTIR: Composable Abstractions for Sparse
Compilation in Deep Learning", ASPLOS 2023, section 3. A rule takes pieces and gives pieces; formats lay the last
ones out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.problem import Csr


@dataclass(frozen=True, eq=False)
class Pieces:
    """Runs of consecutive non-zeros, each within one row and one column partition; every non-zero is in exactly one."""

    rows: NDArray[np.int32]
    """(n,) row of each piece, never falling within a partition."""
    starts: NDArray[np.int32]
    """(n,) position of its first non-zero in CSR order."""
    lengths: NDArray[np.int32]
    """(n,) its non-zeros, at least 1."""
    partitions: NDArray[np.int32]
    """(n,) its column partition."""

    def take(self, index: NDArray[Any]) -> Pieces:
        """Give the pieces at ``index``, in that order."""
        return Pieces(self.rows[index], self.starts[index], self.lengths[index], self.partitions[index])


def partition_columns(matrix: Csr, partitions: int = 1) -> Pieces:
    """Cut every row where the column partition changes: ``partitions`` equal ranges of ceil(K / partitions) columns.

    Returns
    -------
    Pieces
        In CSR order; rows without non-zeros have none. O(nnz).

    Raises
    ------
    ValueError
        Fewer than one partition.
    """
    if partitions < 1:
        raise ValueError(f"expected at least one column partition, found {partitions}")
    if partitions == 1:
        rows = np.flatnonzero(matrix.row_lengths).astype(np.int32)
        return Pieces(rows, matrix.indptr[rows], matrix.row_lengths[rows], np.zeros(rows.size, np.int32))
    width = -(-matrix.num_cols // partitions)
    of_entry = matrix.indices // np.int32(width)
    begins = np.ones(matrix.nnz, np.bool_)
    begins[1:] = of_entry[1:] != of_entry[:-1]
    begins[matrix.indptr[:-1][matrix.row_lengths > 0]] = True
    starts = np.flatnonzero(begins).astype(np.int32)
    lengths = np.diff(starts, append=np.int32(matrix.nnz))
    rows = (np.searchsorted(matrix.indptr, starts, side="right") - 1).astype(np.int32)
    return Pieces(rows, starts, lengths, of_entry[starts])


def fold(pieces: Pieces, longest: int) -> Pieces:
    """Cut pieces longer than ``longest`` into consecutive ones of that length and what remains. O(n + pieces made)."""
    counts = -(-pieces.lengths // longest)
    if pieces.lengths.size == 0 or int(counts.max()) == 1:
        return pieces
    index = np.repeat(np.arange(counts.size), counts)
    turn = np.arange(index.size) - np.repeat(np.cumsum(counts) - counts, counts)
    cut = pieces.take(index)
    offset = (turn * longest).astype(np.int32)
    return Pieces(cut.rows, cut.starts + offset, np.minimum(cut.lengths - offset, longest), cut.partitions)


def bucket_widths(lengths: NDArray[np.int32]) -> NDArray[np.int32]:
    """Give the smallest power of two that holds each length."""
    # frexp is exact: length - 1 in [2^(e-1), 2^e) needs 2^e slots.
    widths: NDArray[np.int32] = np.left_shift(1, np.frexp(lengths - 1.0)[1].clip(0)).astype(np.int32)
    return widths
