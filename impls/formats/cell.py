"""CELL: column partitions with bucket widths of their own, folded rows, and blocks of equal numbers of elements.

Peng, Thomadakis, Pienaar and Kestor, "LiteForm: Lightweight and Automatic Format Composition for Sparse Matrix-Matrix
Multiplication on GPUs", HPDC 2025, section 4. Its buckets lie in memory as hyb's do, so that one kernel computes both.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.problem import Csr
from spmark.impls.formats.hyb import HybLayout, lay_out, widths_up_to
from spmark.impls.formats.pieces import Pieces, partition_columns


def cell_layout(
    matrix: Csr,
    max_widths: Sequence[int],
    tail_in_last: bool = True,
    order: NDArray[np.int32] | None = None,
    thirds: bool = False,
) -> HybLayout:
    """Lay out CELL without its elements.

    Parameters
    ----------
    matrix : Csr
    max_widths : sequence of int
        For each column partition the width of its widest bucket, a power of two; longer rows are folded.
        Partitions are equal ranges of columns.
    tail_in_last : bool
        Whether the rest of a folded row stays in the widest bucket, as in the paper, or goes where it fits.
    order : (I,) int32, optional
        The rows in the order in which they stand within a bucket; by default A's.
    thirds : bool
        Whether widths of 24, 48, 96, ... stand between the paper's powers of two.

    Raises
    ------
    ValueError
        A width is not a power of two, or ``max_widths`` is empty.
    """
    if not max_widths:
        raise ValueError("expected the width of at least one column partition, found none")
    return lay_pieces(cell_pieces(matrix, len(max_widths), order), max_widths, tail_in_last, thirds)


def cell_pieces(matrix: Csr, partitions: int, order: NDArray[np.int32] | None = None) -> Pieces:
    """Cut rows where the column partition changes, in any order of rows; layouts of one matrix share the pieces.

    O(I + pieces), times the logarithm of the pieces with several partitions and an order.
    """
    if order is None:
        return partition_columns(matrix, partitions)
    if partitions > 1:
        positions = np.empty_like(order)
        positions[order] = np.arange(order.size, dtype=np.int32)
        return partition_columns(matrix, partitions).in_order(positions)
    rows = order[matrix.row_lengths[order] > 0]
    arrays = rows, matrix.indptr[rows], matrix.row_lengths[rows], np.zeros(rows.size, np.int32)
    return Pieces(matrix.shape, matrix.nnz, 1, *arrays)


def lay_pieces(pieces: Pieces, max_widths: Sequence[int], tail_in_last: bool = True, thirds: bool = False) -> HybLayout:
    """Lay out CELL from pieces that `cell_pieces` has cut, with one width for each of their partitions."""
    return lay_out(pieces, [widths_up_to(int(width), thirds) for width in max_widths], tail_in_last)
