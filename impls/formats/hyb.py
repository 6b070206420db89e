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
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.problem import Csr, grouped
from spmark.impls.formats.limits import check_stored
from spmark.impls.formats.nearness import RowOrder
from spmark.impls.formats.row_use import RowUse, row_use
from spmark.impls.formats.threads import cores, equal_shares, run_all

UNIT = 8
"""Elements that a kernel takes at once. Every bucket holds a multiple of this number, so that loads are aligned."""
MAX_STORED = 2**31 - 1
THIRDS = 24, 24_576
"""Least and greatest width of 3 * 2^k. Others are not whole units, or are too wide for the kernel's arithmetic."""
_LONGEST = np.array([(3 << (step + 1) // 2) // 4 if step % 2 else 1 << step // 2 for step in range(64)])
"""Greatest length of each class of lengths, two for each power of two: 2^p is that of class 2 p, and 3/4 2^p of the one
before. A length is in the first class that has room for it."""
_FEW_BUCKETS = 1 << 15
"""Buckets whose numbers, and the next one, have 16 bits, by which NumPy sorts in linear time."""
_PLACE_SHARE = 1 << 16
"""Pieces that a task places at least: with fewer, threads wait for each other longer than they gain."""
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

    @cached_property
    def classes(self) -> NDArray[np.uint8]:
        """(n,) class of each piece's length among `_LONGEST`. O(n), once."""
        return np.asarray(np.searchsorted(_LONGEST, self.table[2]), np.uint8)

    def in_order(self, positions: NDArray[np.int32]) -> Pieces:
        """Sort the pieces by the ``positions`` (I,) of their rows; pieces of one row keep their order. O(n log n)."""
        order, _ = grouped(positions[self.table[0]], self.shape[0])
        return Pieces(self.shape, self.nnz, self.partitions, self.table.take(order, axis=1))


def partition_columns(matrix: Csr, partitions: int = 1) -> Pieces:
    """Cut every row where the column partition changes: ``partitions`` equal ranges of ceil(K / partitions) columns.

    Returns
    -------
    Pieces
        An empty row has no piece. O(I + nnz) time on all cores, or O(I) of one partition, as scratch memory.
    """
    if partitions == 1:
        rows = np.flatnonzero(matrix.row_lengths).astype(np.int32)
        uncut = np.stack([rows, matrix.indptr[rows], matrix.row_lengths[rows], np.zeros_like(rows)])
        return Pieces(matrix.shape, matrix.nnz, 1, uncut)
    width = -(-matrix.num_cols // partitions)
    cut = run_all(_cut, ((matrix, width, *share) for share in pairwise(equal_shares(matrix.indptr))))
    return Pieces(matrix.shape, matrix.nnz, partitions, np.concatenate(cut, axis=1))


def _cut(matrix: Csr, width: int, first: int, stop: int) -> NDArray[np.int32]:
    """Give the pieces of rows ``first:stop``, cut where the range of ``width`` columns changes, as `Pieces.table`."""
    begin, end = matrix.indptr[first], matrix.indptr[stop]
    partition = matrix.indices[begin:end] // width
    row = np.repeat(np.arange(first, stop, dtype=np.int32), matrix.row_lengths[first:stop])
    begins = np.ones(row.size, bool)
    begins[1:] = (partition[1:] != partition[:-1]) | (row[1:] != row[:-1])
    at = np.flatnonzero(begins)
    return np.stack([row[at], begin + at, np.diff(at, append=row.size), partition[at]]).astype(np.int32)


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
            O(I + nnz + stored) time on all cores; beside the result it allocates some
            60 bytes for each piece of a row.

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
    kinds: list[tuple[int, int, bool]] = []
    slots = np.empty((pieces.partitions, _LONGEST.size), np.int32)
    for partition, max_width in enumerate(max_widths):
        widths = widths_up_to(int(max_width), thirds)
        slots[partition] = len(kinds) + 2 * (len(widths) - 1 - np.searchsorted(widths, _LONGEST))
        kinds += [(partition, width, shared) for width in reversed(widths) for shared in (True, False)]
    most = np.array(max_widths, np.int32)
    rows, _, lengths, of_partition = pieces.table
    whole = pieces.partitions == 1  # rows are whole, and all have one limit
    folded = lengths > (most[0] if whole else most[of_partition])
    shared = np.zeros(pieces.shape[0], bool) if whole else np.bincount(rows, minlength=pieces.shape[0]) > 1
    shared[rows[folded]] = True
    tasks = int(np.clip(rows.size // max(_PLACE_SHARE, 8 * len(kinds)), 1, 4 * cores()))
    shares = list(pairwise(np.linspace(0, rows.size, tasks + 1).astype(np.int64)))
    how: dict[str, Any] = {"classes": pieces.classes, "folds": folded, "shared": shared, "most": most, "slots": slots}
    made = run_all(partial(_placed, pieces.table, tail_in_last=tail_in_last, **how), shares)
    counts = np.array([np.bincount(slot, minlength=len(kinds)) for _, slot in made])
    buckets, table = unfilled(pieces, kinds, counts.sum(axis=0), f"hyb of width {max(max_widths)}", MAX_STORED)
    cursors = np.cumsum(counts, axis=0) - counts
    cursors[:, counts.any(axis=0)] += np.array([bucket.first for bucket in buckets], np.int64)
    run_all(_copy, ((part, count, at, table) for (part, _), count, at in zip(made, counts, cursors, strict=True)))
    return HybLayout(pieces.shape, table[0], table[1], table[2], buckets, pieces.nnz)


def _placed(
    pieces: NDArray[np.int32],
    first: int,
    stop: int,
    *,
    classes: NDArray[np.uint8],
    folds: NDArray[np.bool_],
    shared: NDArray[np.bool_],
    most: NDArray[np.int32],
    slots: NDArray[np.int32],
    tail_in_last: bool,
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Give the ELL rows of pieces ``first:stop``, sorted by bucket, and the bucket of each.

    Parameters
    ----------
    pieces, classes : (4, n) int32, (n,) uint8
        `Pieces.table` and `Pieces.classes`.
    folds : (n,) bool
        Whether a piece is longer than its partition's widest bucket.
    shared : (I,) bool
        Whether a row of A has several ELL rows.
    most : (c,) int32
        Width of each partition's widest bucket, where longer pieces are folded.
    slots : (c, classes) int32
        Bucket of a shared row by the class of its length; a row in one piece goes to the next bucket.
    tail_in_last : bool
        Whether the rest of a folded piece stays in the widest bucket.

    Returns
    -------
    table : (3, r) int32
        Row of A, non-zeros, and position of the first non-zero of each ELL row.
    slot : (r,) int32
        Not sorted.
    """
    rows, starts, lengths, partition = pieces[:, first:stop]
    slot = slots.take(partition * slots.shape[1] + classes[first:stop]) + ~shared[rows]
    folded = folds[first:stop]
    if folded.any():
        width = most[partition[folded]]
        full, rest = np.divmod(lengths[folded], width)
        of_wide, of_rest = (
            slots[partition[folded], np.searchsorted(_LONGEST, widths)]
            for widths in (width, width if tail_in_last else rest)
        )
        copies = np.ones(rows.size, np.int64)
        copies[folded] = of_each = full + (rest > 0)
        source = np.repeat(np.arange(rows.size, dtype=np.int32), copies)
        rows, starts, lengths, slot = (array[source] for array in (rows, starts, lengths, slot))
        # From here on, of the ELL rows of folded pieces alone: the place, the piece, and the number within the piece.
        at, of = np.flatnonzero(folded[source]), np.repeat(np.arange(full.size, dtype=np.int32), of_each)
        number = np.arange(of.size, dtype=np.int32) - (np.cumsum(of_each, dtype=np.int32) - of_each)[of]
        is_full = number < full[of]
        lengths[at] = np.where(is_full, width[of], rest[of])
        starts[at] += number * width[of]
        slot[at] = np.where(is_full, of_wide[of], of_rest[of])
    order = np.argsort(slot.astype(np.uint16 if slots.max() < _FEW_BUCKETS else np.uint32), kind="stable")
    return np.stack([array[order] for array in (rows, lengths, starts)]), slot


def _copy(
    part: NDArray[np.int32], counts: NDArray[np.int64], cursor: NDArray[np.int64], table: NDArray[np.int32]
) -> None:
    """Copy the ELL rows of each bucket to their place among all."""
    at = 0
    for slot in np.flatnonzero(counts):
        table[:, cursor[slot] : cursor[slot] + counts[slot]] = part[:, at : at + counts[slot]]
        at += counts[slot]


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
    check_stored(name, of.shape, of.nnz, base, most)
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
