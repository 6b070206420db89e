"""hyb(c, k): column partitions of ELL buckets whose widths are powers of two, long rows folded over several ELL rows.

Ye, Lai, Shao, Chen and Ceze, "SparseTIR", ASPLOS 2023, section 4.2.1 and figure 11. A partition may have widths of its
own, as in CELL (Peng et al., "LiteForm", HPDC 2025). Unlike in both papers, widths of 24, 48, 96, ... may stand between
the powers of two: a row of 45 non-zeros then stores 48 slots instead of 64.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.problem import Csr
from spmark.impls.core.spans import offsets
from spmark.impls.formats.limits import check_stored
from spmark.impls.formats.pieces import Pieces, partition_columns
from spmark.impls.formats.threads import SHARE, cores, run_all

UNIT = 8
"""Elements that a kernel takes at once. Every bucket holds a multiple of this number, so that loads are aligned."""
MAX_STORED = 2**31 - 1
THIRDS = 24, 24_576
"""Least and greatest width of 3 * 2^k. Others are not whole units, or are too wide for the kernel's arithmetic."""
_CLASSES = 64
"""Classes of lengths, two for each power of two, see `spmark.impls.formats.loops.count_ell_rows`."""
_FILL_SHARE = 1 << 20
"""Elements that a task fills; several tasks fill a larger bucket."""


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
        if not self.buckets:
            return 0
        last = self.buckets[-1]
        return last.base + last.count * last.width

    @property
    def padding(self) -> float:
        """Padded elements over stored elements, the paper's %padding."""
        return 1 - self.nnz / self.stored if self.stored else 0.0


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
        ladders = [widths_up_to(max_width, thirds)] * partitions
        return cls.from_layout(matrix, lay_out(partition_columns(matrix, partitions), ladders, tail_in_last))

    @classmethod
    def from_layout(cls, matrix: Csr, layout: HybLayout) -> HybFormat:
        """Fill a layout of ``matrix`` with its elements. O(stored), on all cores, no further memory."""
        from spmark.impls.formats import loops

        indices, values = np.empty(layout.stored, np.int32), np.empty(layout.stored, np.float32)
        tasks = []
        for bucket in layout.buckets:
            step = max(1, _FILL_SHARE // bucket.width)
            for first in range(bucket.first, bucket.first + bucket.count, step):
                stop = min(first + step, bucket.first + bucket.count)
                base = bucket.base + (first - bucket.first) * bucket.width
                tasks.append((bucket.width, first, stop, base, indices, values))
        given = matrix.indices, matrix.values, layout.starts, layout.lengths
        run_all(loops.fill_ell_rows, ((*given, *task) for task in tasks))
        places = {field.name: getattr(layout, field.name) for field in fields(HybLayout)}
        return cls(**places, indices=indices, values=values)

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Give ``rows``, ``indices`` and ``values``."""
        return {"rows": self.rows, "indices": self.indices, "values": self.values}

    def to_csr(self) -> Csr:
        """Give the matrix back; O(stored)."""
        indices, values = np.empty(self.nnz, np.int32), np.empty(self.nnz, np.float32)
        row_lengths = np.zeros(self.shape[0], np.int64)
        for bucket in self.buckets:
            span = slice(bucket.first, bucket.first + bucket.count)
            slots = np.arange(bucket.width)
            real = slots < self.lengths[span, None]
            target = (self.starts[span, None] + slots)[real]
            elements = slice(bucket.base, bucket.base + bucket.count * bucket.width)
            indices[target] = self.indices[elements].reshape(bucket.count, bucket.width)[real]
            values[target] = self.values[elements].reshape(bucket.count, bucket.width)[real]
            used = self.lengths[span] > 0
            np.add.at(row_lengths, self.rows[span][used], self.lengths[span][used])
        return Csr(self.shape, offsets(row_lengths, np.int32), indices, values)


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
    if max_width < 1 or max_width & (max_width - 1):
        raise ValueError(f"expected max_width to be a power of two, found {max_width}")
    powers = [1 << power for power in range(max_width.bit_length())]
    between = [3 * power // 4 for power in powers if thirds and THIRDS[0] <= 3 * power // 4 <= THIRDS[1]]
    return tuple(sorted(powers + between))


def slots_of(lengths: NDArray[np.int32], ladder: Sequence[int]) -> int:
    """Count the slots that pieces of these lengths take in buckets of a ladder's widths, without filling units."""
    widths = np.array([0, *ladder], np.int64)
    rests = lengths % widths[-1]
    return int(np.sum(lengths - rests, dtype=np.int64) + np.sum(widths[np.searchsorted(widths, rests)]))


def lay_out(pieces: Pieces, ladders: Sequence[Sequence[int]], tail_in_last: bool = False) -> HybLayout:
    """Give every piece its ELL rows in the narrowest bucket of its partition that is wide enough, or fold the piece.

    Parameters
    ----------
    pieces : Pieces
    ladders : sequence of sequences of int
        For each partition the widths of its buckets, rising: powers of two, and 24, 48, 96, ... The last one is a power
        of two, where longer pieces are folded.
    tail_in_last : bool
        Whether the rest of a folded piece stays in the last bucket.

    Returns
    -------
    HybLayout
        Buckets partition by partition, wide before narrow, shared rows before whole ones; within a bucket rows stand
        in their original order. O(I + pieces + ELL rows), on all cores.

    Raises
    ------
    ValueError
        Not every partition has a ladder, or a ladder has other widths.
    BuildError
        More than 2^31 - 1 elements would be stored.
    """
    from spmark.impls.formats import loops

    _check_ladders(ladders, pieces.partitions)
    slots, kinds = _slots(ladders, tail_in_last)
    folds = np.array([ladder[-1].bit_length() - 1 for ladder in ladders], np.int32)
    uses = np.zeros(pieces.shape[0], np.int32)
    loops.add_uses(pieces.rows, pieces.lengths, pieces.of_partition, folds, uses)

    shares = list(pairwise(_piece_shares(pieces.rows.size, len(kinds))))
    counts = np.zeros((len(shares), len(kinds)), np.int64)
    sorted_by = pieces.lengths, pieces.of_partition, uses, folds, slots
    run_all(
        loops.count_ell_rows,
        ((pieces.rows, *sorted_by, *share, mine) for share, mine in zip(shares, counts, strict=True)),
    )
    totals = counts.sum(axis=0)
    buckets, count, stored = _buckets(kinds, totals)
    check_stored(f"hyb of width {1 << int(folds.max())}", pieces, stored, MAX_STORED)
    rows, starts, lengths = (np.empty(count, np.int32) for _ in range(3))
    firsts = np.zeros(len(kinds), np.int64)
    for (at, total), bucket in zip(((i, int(n)) for i, n in enumerate(totals) if n), buckets, strict=True):
        firsts[at] = bucket.first
        fill = slice(bucket.first + total, bucket.first + bucket.count)
        rows[fill], starts[fill], lengths[fill] = -1, 0, 0
    cursors = firsts + np.cumsum(counts, axis=0) - counts
    run_all(
        loops.place_ell_rows,
        (
            (pieces.rows, pieces.starts, *sorted_by, *share, cursor, rows, starts, lengths)
            for share, cursor in zip(shares, cursors, strict=True)
        ),
    )
    return HybLayout(pieces.shape, rows, lengths, starts, buckets, pieces.nnz)


def _check_ladders(ladders: Sequence[Sequence[int]], partitions: int) -> None:
    if len(ladders) != partitions:
        raise ValueError(f"expected widths for each of {partitions} column partitions, found {len(ladders)}")
    for partition, ladder in enumerate(ladders):
        legal = set(ladder) <= set(widths_up_to(1 << 30, thirds=True)) and all(a < b for a, b in pairwise(ladder))
        if not ladder or not legal or ladder[-1] & (ladder[-1] - 1):
            raise ValueError(
                "expected bucket widths to be rising powers of two, with or without 24, 48, 96, ... between them, "
                f"found {ladder} (partition {partition})"
            )


def _slots(ladders: Sequence[Sequence[int]], tail_in_last: bool) -> tuple[NDArray[np.int32], list[tuple[int, int]]]:
    """Give a number to every possible bucket, in a table that the loops read by the class of a length.

    Returns
    -------
    slots : (c, 66) int32
        See `spmark.impls.formats.loops.count_ell_rows`.
    kinds : list of (partition, width)
        Of each bucket: of shared rows at even numbers, of whole rows at odd ones.
    """
    slots = np.full((len(ladders), _CLASSES + 2), -1, np.int32)
    kinds: list[tuple[int, int]] = []
    for partition, ladder in enumerate(ladders):
        numbers = {}
        for width in reversed(ladder):
            numbers[width] = len(kinds)
            kinds += [(partition, width)] * 2
        for power in range(ladder[-1].bit_length()):
            for step, longest in ((2 * power - 1, 3 * 2**power // 4), (2 * power, 2**power)):
                slots[partition, max(step, 0)] = numbers[next(width for width in ladder if width >= longest)]
        slots[partition, _CLASSES] = numbers[ladder[-1]]
        if tail_in_last:
            slots[partition, _CLASSES + 1] = numbers[ladder[-1]]
    return slots, kinds


def _piece_shares(count: int, kinds: int) -> NDArray[np.int64]:
    # A task has a counter for every bucket, so that very many buckets allow few tasks.
    tasks = int(np.clip(count // max(SHARE, 8 * kinds), 1, 4 * cores()))
    return np.linspace(0, count, tasks + 1).astype(np.int64)


def _buckets(kinds: Sequence[tuple[int, int]], totals: NDArray[np.int64]) -> tuple[tuple[Bucket, ...], int, int]:
    """Give the buckets that have rows, and how many ELL rows and elements they take."""
    buckets: list[Bucket] = []
    first = base = 0
    for number in map(int, np.flatnonzero(totals)):
        partition, width = kinds[number]
        count = int(totals[number])
        filled = -(-count * width // UNIT) * UNIT // width if width < UNIT else count
        buckets.append(Bucket(partition, width, number % 2 == 0, first, filled, base))
        first += filled
        base += filled * width
    return tuple(buckets), first, base
