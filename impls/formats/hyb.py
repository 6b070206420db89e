"""hyb(c, k) and CELL: column partitions of ELL buckets, long rows folded over several ELL rows.

Ye, Lai, Shao, Chen and Ceze, "SparseTIR: Composable Abstractions for Sparse Compilation in Deep Learning", ASPLOS 2023,
section 4.2.1 and figure 11. In CELL every partition has a widest bucket of its own: Peng, Thomadakis, Pienaar and
Kestor, "LiteForm: Lightweight and Automatic Format Composition for Sparse Matrix-Matrix Multiplication on GPUs", HPDC
2025, section 4. Unlike in both papers, widths of 24, 48, 96, ... may stand between the powers of two: a row of 45
non-zeros then stores 48 slots instead of 64.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import pairwise
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.problem import Csr, grouped, offsets
from spmark.impls.formats.limits import check_stored
from spmark.impls.formats.nearness import RowOrder
from spmark.impls.formats.row_use import RowUse, row_use
from spmark.impls.formats.threads import SHARE, cores, equal_shares, run_all

UNIT = 8
"""Elements that a kernel takes at once. Every bucket holds a multiple of this number, so that loads are aligned."""
MAX_STORED = 2**31 - 1
THIRDS = 24, 24_576
"""Least and greatest width of 3 * 2^k. Others are not whole units, or are too wide for the kernel's arithmetic."""
_LONGEST = np.array([(3 << (step + 1) // 2) // 4 if step % 2 else 1 << step // 2 for step in range(64)])
"""Greatest length of each class of lengths, two for each power of two (`spmark.impls.formats.loops.place_ell_rows`)."""
_FILL_SHARE = 1 << 20
"""Elements that a task fills; several tasks fill a larger bucket."""


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
    table: NDArray[np.int32]
    """(4, n): row, position of the first non-zero in CSR order, non-zeros (at least 1), and partition of each piece."""

    def in_order(self, positions: NDArray[np.int32]) -> Pieces:
        """Sort the pieces by the ``positions`` (I,) of their rows; pieces of one row keep their order. O(n log n)."""
        order, _ = grouped(positions[self.table[0]], self.shape[0])
        return Pieces(self.shape, self.nnz, self.partitions, self.table.take(order, axis=1))


def partition_columns(matrix: Csr, partitions: int = 1) -> Pieces:
    """Cut every row where the column partition changes: ``partitions`` equal ranges of ceil(K / partitions) columns.

    Returns
    -------
    Pieces
        An empty row has no piece. O(I + n log(longest row)) time; memory does not grow with nnz.
    """
    if partitions == 1:
        rows = np.flatnonzero(matrix.row_lengths).astype(np.int32)
        uncut = np.stack([rows, matrix.indptr[rows], matrix.row_lengths[rows], np.zeros_like(rows)])
        return Pieces(matrix.shape, matrix.nnz, 1, uncut)
    from spmark.impls.formats import loops

    shares = list(pairwise(equal_shares(matrix.indptr)))
    given, nowhere = (matrix.indptr, matrix.indices, -(-matrix.num_cols // partitions)), np.empty((4, 0), np.int32)
    places = offsets(np.array(run_all(loops.cut_pieces, ((*given, *share, 0, nowhere) for share in shares))))
    table = np.empty((4, places[-1]), np.int32)
    run_all(loops.cut_pieces, ((*given, *share, at, table) for share, at in zip(shares, places, strict=False)))
    return Pieces(matrix.shape, matrix.nnz, partitions, table)


@dataclass(frozen=True)
class Bucket:
    """ELL rows of one width in one partition."""

    partition: int
    width: int
    """Slots of an ELL row: a power of two, or 24, 48, 96, ..."""
    shared: bool
    """Whether these rows have further pieces elsewhere, so that their sums must be added up."""
    first: int
    """Place of the bucket's first ELL row among all ELL rows."""
    count: int
    """Number of ELL rows, with the empty ones that fill the last unit."""
    base: int
    """Place of the bucket's first element among all elements, a multiple of `UNIT`."""


@dataclass(frozen=True, eq=False)
class HybLayout:
    """The places of rows and elements in ELL buckets of pieces of rows, without the elements themselves.

    ELL rows that only fill a unit have row -1. ``lengths`` says which slots are real; the values do not.
    """

    shape: tuple[int, int]
    """(I, K)."""
    rows: NDArray[np.int32]
    """(r,) row of A of each ELL row, or -1."""
    lengths: NDArray[np.int32]
    """(r,) real slots of each ELL row."""
    starts: NDArray[np.int32]
    """(r,) position of each ELL row's first non-zero in A's CSR order."""
    buckets: tuple[Bucket, ...]
    """In the order stored: partition by partition, wide before narrow."""
    nnz: int

    @property
    def stored(self) -> int:
        """Stored elements, padding included."""
        return sum(bucket.count * bucket.width for bucket in self.buckets)

    @cached_property
    def use(self) -> RowUse:
        """Which rows of C several ELL rows share, and which none writes. O(I + r), once."""
        return row_use(self.shape[0], [self.rows[self.rows >= 0]])


@dataclass(frozen=True, eq=False)
class HybFormat(HybLayout):
    """ELL buckets of pieces of rows.

    A padded slot has value 0 and column -1, by which a kernel knows that there is nothing to load.
    """

    name: ClassVar[str] = "hyb"

    indices: NDArray[np.int32]
    """(stored,) columns: bucket by bucket, each row-major."""
    values: NDArray[np.float32]
    """(stored,) float32, like ``indices``."""

    @classmethod
    def from_csr(
        cls,
        matrix: Csr,
        partitions: int = 1,
        max_width: int = 32,
        tail_in_last: bool = False,
        *,
        thirds: bool = False,
    ) -> HybFormat:
        """Convert a matrix.

        Parameters
        ----------
        matrix : Csr
        partitions : int
            c, column partitions.
        max_width : int
            2^k, width of the last bucket; longer rows are folded.
        tail_in_last : bool
            Whether the rest of a folded row stays in the last bucket, as in the paper. By default the rest goes to the
            bucket where it fits.
        thirds : bool
            Whether widths of 24, 48, 96, ... stand between the powers of two.

        Returns
        -------
        HybFormat
            O(I + nnz + stored) time on all cores; beside the result it allocates 16 bytes for each piece of a row.

        Raises
        ------
        ValueError
            ``max_width`` is not a power of two.
        BuildError
            More than 2^31 - 1 elements would be stored.
        """
        layout = cell_layout(matrix, [max_width] * partitions, tail_in_last, thirds=thirds)
        return cls.from_layout(matrix, layout)

    @classmethod
    def from_layout(cls, matrix: Csr, layout: HybLayout) -> HybFormat:
        """Fill a layout of ``matrix`` with its elements. O(stored), on all cores, no further memory."""
        from spmark.impls.formats import loops

        indices, values = np.empty(layout.stored, np.int32), np.empty(layout.stored, np.float32)
        tasks = []
        for bucket in layout.buckets:
            step = max(1, _FILL_SHARE // bucket.width)
            for first in range(0, bucket.count, step):
                stop = min(first + step, bucket.count)
                rows = slice(bucket.first + first, bucket.first + stop)
                slots = slice(bucket.base + first * bucket.width, bucket.base + stop * bucket.width)
                made = (array[slots].reshape(-1, bucket.width) for array in (indices, values))
                tasks.append((matrix.indices, matrix.values, layout.starts[rows], layout.lengths[rows], *made))
        run_all(loops.fill_ell_rows, tasks)
        places = {field.name: getattr(layout, field.name) for field in fields(HybLayout)}
        return cls(**places, indices=indices, values=values)


def prepare() -> None:
    """Compile the loops behind conversions and orders of rows, or read them from Numba's cache.

    Otherwise the first use of a loop does so. A process compiles or reads once: some seconds the first time on a
    machine, half a second later. A plan counts this time as compiling.
    """
    from spmark.impls.formats import loops  # noqa: F401


def widths_up_to(max_width: int, thirds: bool = False) -> tuple[int, ...]:
    """Give 1, 2, 4, ..., ``max_width``: the widths of hyb's buckets, with ``thirds`` 24, 48, ... 24,576 between.

    Raises
    ------
    ValueError
        ``max_width`` is not a power of two.
    """
    if not 1 <= max_width <= 1 << 30 or max_width & (max_width - 1):
        raise ValueError(f"expected max_width of at most 2^30 to be a power of two, found {max_width}")
    powers = [1 << power for power in range(max_width.bit_length())]
    between = [3 * power // 4 for power in powers if thirds and THIRDS[0] <= 3 * power // 4 <= THIRDS[1]]
    return tuple(sorted(powers + between))


def slots_of(lengths: NDArray[np.int32], ladder: Sequence[int]) -> int:
    """Count the slots that pieces of these lengths take in buckets of a ladder's widths, without filling units."""
    widths = np.array([0, *ladder], np.int64)
    rests = lengths % widths[-1]
    return int(np.sum(lengths - rests, dtype=np.int64) + np.sum(widths[np.searchsorted(widths, rests)]))


def lay_out(pieces: Pieces, max_widths: Sequence[int], tail_in_last: bool = False, thirds: bool = False) -> HybLayout:
    """Give every piece its ELL rows in the narrowest bucket of its partition that is wide enough, or fold the piece.

    Parameters
    ----------
    pieces : Pieces
    max_widths : sequence of int
        For each partition the width of its widest bucket, a power of two, where longer pieces are folded.
    tail_in_last : bool
        Whether the rest of a folded piece stays in the widest bucket, as in CELL's paper.
    thirds : bool
        Whether widths of 24, 48, 96, ... stand between the powers of two.

    Returns
    -------
    HybLayout
        Buckets partition by partition, wide before narrow, shared rows before whole ones; within a bucket rows stand
        in the order of the pieces. O(I + pieces + ELL rows), on all cores.

    Raises
    ------
    ValueError
        A width is not a power of two.
    BuildError
        More than 2^31 - 1 elements would be stored.
    """
    from spmark.impls.formats import loops

    kinds: list[tuple[int, int, bool]] = []
    slots = np.empty((pieces.partitions, _LONGEST.size + 2), np.int32)
    for partition, max_width in enumerate(max_widths):
        widths = widths_up_to(int(max_width), thirds)
        first = len(kinds)
        slots[partition, :-2] = first + 2 * (len(widths) - 1 - np.searchsorted(widths, _LONGEST))
        slots[partition, -2:] = first, first if tail_in_last else -1
        kinds += [(partition, width, shared) for width in reversed(widths) for shared in (True, False)]
    most = np.array(max_widths, np.int32)
    rows, _, lengths, of_partition = pieces.table
    shared = np.bincount(rows, minlength=pieces.shape[0]) > 1
    shared[rows[lengths > most[of_partition]]] = True
    # A task has a counter for every bucket, so that very many buckets allow few tasks.
    tasks = int(np.clip(rows.size // max(SHARE, 8 * len(kinds)), 1, 4 * cores()))
    shares = list(pairwise(np.linspace(0, rows.size, tasks + 1).astype(np.int64)))
    given = pieces.table, shared, np.log2(most).astype(np.int32), slots
    calls = [(*given, *share) for share in shares]
    counts, nowhere = np.zeros((tasks, len(kinds)), np.int64), np.empty((3, 0), np.int32)
    run_all(loops.place_ell_rows, ((*call, own, nowhere) for call, own in zip(calls, counts, strict=True)))
    buckets, table = unfilled(pieces, kinds, counts.sum(axis=0), f"hyb of width {max(max_widths)}", MAX_STORED)
    cursors = np.cumsum(counts, axis=0) - counts
    cursors[:, counts.any(axis=0)] += np.array([bucket.first for bucket in buckets], np.int64)
    run_all(loops.place_ell_rows, ((*call, cursor, table) for call, cursor in zip(calls, cursors, strict=True)))
    return HybLayout(pieces.shape, table[0], table[1], table[2], buckets, pieces.nnz)


def unfilled(
    of: Csr | Pieces, kinds: Iterable[tuple[int, int, bool]], counts: Iterable[int], name: str, most: int
) -> tuple[tuple[Bucket, ...], NDArray[np.int32]]:
    """Give buckets of so many ELL rows, each filled up to whole units.

    Parameters
    ----------
    of : Csr or Pieces
        What is laid out.
    kinds : iterable of (partition, width, shared)
    counts : iterable of int
        ELL rows of each kind; a kind without any has no bucket.
    name, most
        As in `spmark.impls.formats.limits.check_stored`.

    Returns
    -------
    buckets : tuple of Bucket
    table : (3, r) int32
        Row, non-zeros and first non-zero of every ELL row, for those that only fill a unit: -1, 0 and 0.

    Raises
    ------
    BuildError
        More than ``most`` elements would be stored.
    """
    buckets: list[Bucket] = []
    first = base = 0
    for (partition, width, shared), count in zip(kinds, map(int, counts), strict=True):
        if count:
            filled = -(-count * width // UNIT) * UNIT // width if width < UNIT else count
            buckets.append(Bucket(partition, width, shared, first, filled, base))
            first, base = first + filled, base + filled * width
    check_stored(name, of, base, most)
    table = np.zeros((3, first), np.int32)
    table[0] = -1
    return tuple(buckets), table


def cell_layout(
    matrix: Csr,
    max_widths: Sequence[int],
    tail_in_last: bool = True,
    order: RowOrder | None = None,
    thirds: bool = False,
) -> HybLayout:
    """Lay out CELL, whose partitions are equal ranges of columns, as `lay_out` does.

    Parameters
    ----------
    matrix : Csr
    max_widths, tail_in_last, thirds
        As in `lay_out`.
    order : RowOrder, optional
        In which rows stand within a bucket; by default A's.

    Raises
    ------
    ValueError
        A width is not a power of two.
    """
    pieces = partition_columns(matrix, len(max_widths))
    return lay_out(pieces.in_order(order.positions) if order else pieces, max_widths, tail_in_last, thirds)
