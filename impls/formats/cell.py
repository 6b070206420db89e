"""CELL: column partitions with bucket widths of their own, folded rows, and blocks of equal numbers of elements.

Peng, Thomadakis, Pienaar and Kestor, "LiteForm: Lightweight and Automatic Format Composition for Sparse Matrix-Matrix
Multiplication on GPUs", HPDC 2025, section 4. Its buckets lie in memory as hyb's do, so that one kernel computes both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.problem import Csr
from spmark.impls.formats.hyb import Bucket, HybFormat, HybLayout, lay_out, powers_up_to
from spmark.impls.formats.pieces import Pieces, partition_columns


@dataclass(frozen=True, eq=False)
class CellFormat:
    """Partitions of columns, each cut into buckets of ELL rows, each cut into blocks."""

    name: ClassVar[str] = "cell"

    held: HybFormat
    """Buckets and elements."""
    partitions: int
    """Column partitions, empty ones counted."""
    block_power: int | None = None
    """k: blocks of 2^k elements in every partition; by default of its widest bucket's width."""

    @classmethod
    def from_csr(
        cls,
        matrix: Csr,
        max_widths: Sequence[int] = (32,),
        block_power: int | None = None,
        tail_in_last: bool = True,
    ) -> Self:
        """Convert.

        Parameters
        ----------
        matrix : Csr
        max_widths : sequence of int
            For each column partition the width of its widest bucket, a power of two; longer rows are folded. There are
            as many partitions, of equal ranges of columns.
        block_power : int, optional
            k. A block is never smaller than a row of its partition's widest bucket.
        tail_in_last : bool
            Whether the rest of a folded row stays in the widest bucket, as in the paper, or goes where it fits.

        Returns
        -------
        CellFormat
            O(I + nnz + stored) time on all cores.

        Raises
        ------
        ValueError
            A width is no power of two, there is no partition, or k is negative.
        BuildError
            More than 2^31 - 1 elements would be stored.
        """
        if block_power is not None and block_power < 0:
            raise ValueError(f"expected blocks of 2^k elements with k of at least 0, found k = {block_power}")
        layout = cell_layout(matrix, max_widths, tail_in_last)
        return cls(HybFormat.from_layout(matrix, layout), len(max_widths), block_power)

    @property
    def shape(self) -> tuple[int, int]:
        """(I, K)."""
        return self.held.shape

    @property
    def stored(self) -> int:
        """Elements held, padding included."""
        return self.held.stored

    @property
    def widths(self) -> tuple[tuple[int, ...], ...]:
        """For each partition the widths of the buckets that it has, rising; none in an empty partition."""
        found: list[set[int]] = [set() for _ in range(self.partitions)]
        for bucket in self.held.buckets:
            found[bucket.partition].add(bucket.width)
        return tuple(tuple(sorted(widths)) for widths in found)

    @property
    def block_elements(self) -> tuple[int, ...]:
        """For each partition the elements of a block; 0 in an empty one."""
        least = 1 if self.block_power is None else 1 << self.block_power
        return tuple(max(widths[-1], least) if widths else 0 for widths in self.widths)

    def block_rows(self, bucket: Bucket) -> int:
        """Give the ELL rows of a block of one bucket."""
        return self.block_elements[bucket.partition] // bucket.width

    def added_in_paper(self, bucket: Bucket) -> bool:
        """Tell whether the paper adds the sums of a bucket atomically: of all with several partitions, and the widest.

        ``bucket.shared`` says where it is needed, which is where a row of A has several ELL rows.
        """
        return self.partitions > 1 or bucket.width == self.widths[bucket.partition][-1]

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Give ``rows``, ``indices`` and ``values``."""
        return self.held.arrays()

    def to_csr(self) -> Csr:
        """Give the matrix back; O(stored)."""
        return self.held.to_csr()


def cell_layout(
    matrix: Csr, max_widths: Sequence[int], tail_in_last: bool = True, order: NDArray[np.int32] | None = None
) -> HybLayout:
    """Lay CELL out without its elements; arguments and errors as for `CellFormat.from_csr`.

    Parameters
    ----------
    order : (I,) int32, optional
        The rows in the order in which they stand within a bucket; by default A's.
    """
    if not max_widths:
        raise ValueError("expected the width of at least one column partition, found none")
    return lay_pieces(cell_pieces(matrix, len(max_widths), order), max_widths, tail_in_last)


def cell_pieces(matrix: Csr, partitions: int, order: NDArray[np.int32] | None = None) -> Pieces:
    """Cut rows where the column partition changes, in any order of rows: what layouts of one matrix share.

    O(I + pieces), times the logarithm of the pieces with several partitions and an order.
    """
    if order is None:
        return partition_columns(matrix, partitions)
    if partitions > 1:
        positions = np.empty_like(order)
        positions[order] = np.arange(order.size, dtype=np.int32)
        return partition_columns(matrix, partitions).in_order(positions)
    rows = order[matrix.row_lengths[order] > 0]
    found = rows, matrix.indptr[rows], matrix.row_lengths[rows], np.zeros(rows.size, np.int32)
    return Pieces(matrix.shape, matrix.nnz, 1, *found)


def lay_pieces(pieces: Pieces, max_widths: Sequence[int], tail_in_last: bool = True) -> HybLayout:
    """Lay CELL out from pieces that were cut before, one width for each of their partitions."""
    return lay_out(pieces, [powers_up_to(int(width)) for width in max_widths], tail_in_last)
