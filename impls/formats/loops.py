"""The compiled loops behind the formats, apart from them since importing Numba takes long.

Importing this module compiles the loops, or reads their machine code from a cache. The loops release Python's lock, so
that `spmark.impls.formats.threads` runs them on several cores. Each call writes only the places of its range; the
caller allocates every buffer. ``indptr`` (I + 1,) and ``indices`` (nnz,), int32, and ``values`` (nnz,), float32, are
A's CSR.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from spmark.impls.core.loops import compiled, inlined

_LONG = types.int64
_IN = types.Array(types.int32, 1, "C", readonly=True)
_TABLE = types.Array(types.int32, 2, "C", readonly=True)
_VALUES_IN = types.Array(types.float32, 1, "C", readonly=True)
_OUT, _COUNTS, _VALUES_OUT = types.int32[::1], types.int64[::1], types.float32[::1]


@inlined
def _end_of_range(indices: Any, at: Any, end: Any, bound: Any) -> Any:
    """Give the first position from ``at`` to ``end`` whose column is at least ``bound``, by bisection."""
    low, high = at, end
    while low < high:
        middle = (low + high) >> 1
        if indices[middle] < bound:
            low = middle + 1
        else:
            high = middle
    return low


@inlined
def _slot_of_rest(slots: Any, partition: Any, full: Any, rest: Any) -> Any:
    """Give the bucket of a piece of ``rest`` non-zeros after ``full`` folds; ``slots`` as in `count_ell_rows`."""
    if full > 0 and slots[partition, 65] >= 0:
        return slots[partition, 65]
    power = 0
    while (1 << power) < rest:
        power += 1
    return slots[partition, 2 * power - 1 if 4 * rest <= 3 << power else 2 * power]


@compiled(_LONG, _IN, _IN, _LONG, _LONG, _LONG)
def count_pieces(indptr: Any, indices: Any, width: Any, first: Any, stop: Any) -> Any:
    """Count the runs of non-zeros in one row and one range of ``width`` columns, in rows ``first:stop``."""
    pieces = 0
    for row in range(first, stop):
        at, end = np.int64(indptr[row]), np.int64(indptr[row + 1])
        while at < end:
            at = _end_of_range(indices, at + 1, end, (indices[at] // width + 1) * width)
            pieces += 1
    return pieces


@compiled(types.void, _IN, _IN, _LONG, _LONG, _LONG, _LONG, _OUT, _OUT, _OUT, _OUT)
def cut_pieces(  # noqa: PLR0917 (numba takes no keyword-only arguments)
    indptr: Any,
    indices: Any,
    width: Any,
    first: Any,
    stop: Any,
    place: Any,
    rows: Any,
    starts: Any,
    lengths: Any,
    partitions: Any,
) -> None:
    """Write the pieces that `count_pieces` counted, from ``place`` on.

    Parameters
    ----------
    rows, starts, lengths, partitions : (pieces,) int32
        Written: row of A, position of the first non-zero, non-zeros, and range of columns of each piece.
    """
    for row in range(first, stop):
        at, end = np.int64(indptr[row]), np.int64(indptr[row + 1])
        while at < end:
            partition = indices[at] // width
            piece_end = _end_of_range(indices, at + 1, end, (partition + 1) * width)
            rows[place] = row
            starts[place] = at
            lengths[place] = piece_end - at
            partitions[place] = partition
            place += 1
            at = piece_end


@compiled(types.void, _IN, _IN, _IN, _IN, _OUT)
def add_uses(rows: Any, lengths: Any, partitions: Any, folds: Any, uses: Any) -> None:
    """Add the ELL rows that each row of A gets: ceil(length / 2^folds of its partition) for every piece.

    Parameters
    ----------
    rows, lengths, partitions : (n,) int32
        Pieces, as `cut_pieces` writes them.
    folds : (c,) int32
        As in `count_ell_rows`.
    uses : (I,) int32
        Added to: the ELL rows of each row of A.
    """
    for i in range(rows.size):
        uses[rows[i]] += ((lengths[i] - 1) >> folds[partitions[i]]) + 1


@compiled(types.void, _IN, _IN, _IN, _IN, _IN, _TABLE, _LONG, _LONG, _COUNTS)
def count_ell_rows(  # noqa: PLR0917
    rows: Any,
    lengths: Any,
    partitions: Any,
    uses: Any,
    folds: Any,
    slots: Any,
    first: Any,
    stop: Any,
    counts: Any,
) -> None:
    """Add up the ELL rows that pieces ``first:stop`` put into each bucket.

    Parameters
    ----------
    rows, lengths, partitions : (n,) int32
        Pieces, as `cut_pieces` writes them.
    uses : (I,) int32
        ELL rows of every row of A, from `add_uses`; several make the row shared.
    folds : (c,) int32
        Binary logarithm of each partition's widest bucket, where longer pieces are folded.
    slots : (c, 66) int32
        Bucket of a shared row by the class of its length: 2 p for lengths up to 2^p, 2 p - 1 for lengths up to
        3/4 2^p. A row in one piece goes to the next bucket. The last two columns are the bucket of full pieces, and
        the bucket of the rest of a folded row (negative: chosen by the rest's length).
    counts : (buckets,) int64
        Added to: ELL rows of each bucket; every call has counts of its own.
    """
    for i in range(first, stop):
        partition = partitions[i]
        whole = 1 if uses[rows[i]] <= 1 else 0
        full = lengths[i] >> folds[partition]
        rest = lengths[i] - (full << folds[partition])
        counts[slots[partition, 64] + whole] += full
        if rest > 0:
            counts[_slot_of_rest(slots, partition, full, rest) + whole] += 1


@compiled(
    types.void,
    _IN,
    _IN,
    _IN,
    _IN,
    _IN,
    _IN,
    _TABLE,
    _LONG,
    _LONG,
    _COUNTS,
    _OUT,
    _OUT,
    _OUT,
)
def place_ell_rows(  # noqa: PLR0917
    rows: Any,
    starts: Any,
    lengths: Any,
    partitions: Any,
    uses: Any,
    folds: Any,
    slots: Any,
    first: Any,
    stop: Any,
    cursor: Any,
    out_rows: Any,
    out_starts: Any,
    out_lengths: Any,
) -> None:
    """Write the ELL rows that `count_ell_rows` counted.

    Parameters
    ----------
    rows, starts, lengths, partitions : (n,) int32
        Pieces, as `cut_pieces` writes them.
    uses, folds, slots
        As in `count_ell_rows`.
    cursor : (buckets,) int64
        Place of each bucket's next ELL row; moved on. Every call has a cursor of its own.
    out_rows, out_starts, out_lengths : (ELL rows,) int32
        Written: row of A, position of the first non-zero, and non-zeros of each ELL row.
    """
    for i in range(first, stop):
        partition = partitions[i]
        whole = 1 if uses[rows[i]] <= 1 else 0
        start, most = starts[i], 1 << folds[partition]
        full = lengths[i] >> folds[partition]
        rest = lengths[i] - (full << folds[partition])
        slot = slots[partition, 64] + whole
        for _ in range(full):
            at = cursor[slot]
            cursor[slot] = at + 1
            out_rows[at] = rows[i]
            out_starts[at] = start
            out_lengths[at] = most
            start += most
        if rest > 0:
            slot = _slot_of_rest(slots, partition, full, rest) + whole
            at = cursor[slot]
            cursor[slot] = at + 1
            out_rows[at] = rows[i]
            out_starts[at] = start
            out_lengths[at] = rest


@compiled(types.void, _IN, _VALUES_IN, _IN, _IN, _LONG, _LONG, _LONG, _LONG, _OUT, _VALUES_OUT)
def fill_ell_rows(  # noqa: PLR0917
    indices: Any,
    values: Any,
    starts: Any,
    lengths: Any,
    width: Any,
    first: Any,
    stop: Any,
    base: Any,
    out_indices: Any,
    out_values: Any,
) -> None:
    """Copy the elements of ELL rows ``first:stop`` of one bucket from CSR; the first goes to ``base``.

    A slot past the row's length gets column -1 and the value 0.

    Parameters
    ----------
    starts, lengths : (ELL rows,) int32
        Position of the first non-zero, and non-zeros, of each ELL row, from `place_ell_rows`.
    out_indices, out_values : (stored,) int32 and float32
        Written: columns and values of the slots, each ELL row ``width`` slots.
    """
    for r in range(first, stop):
        start, length = np.int64(starts[r]), np.int64(lengths[r])
        for s in range(length):
            out_indices[base + s] = indices[start + s]
            out_values[base + s] = values[start + s]
        for s in range(length, width):
            out_indices[base + s] = -1
            out_values[base + s] = 0
        base += width
