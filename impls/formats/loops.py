"""The compiled loops behind the formats, apart from them since importing Numba takes long.

Importing this module compiles the loops, or reads their machine code from a cache. The loops release Python's lock, so
that `spmark.impls.formats.threads` runs them on several cores. Each call writes only the places of its range.
``indptr`` (I + 1,) and ``indices`` (nnz,), int32, and ``values`` (nnz,), float32, are A's CSR.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from spmark.impls.core.loops import compiled, inlined

_LONG = types.int64
_IN = types.Array(types.int32, 1, "C", readonly=True)
_LONGS_IN = types.Array(types.int64, 1, "C", readonly=True)
_WORDS_IN = types.Array(types.uint32, 1, "C", readonly=True)
_TABLE = types.Array(types.int32, 2, "C", readonly=True)
_MARKS = types.Array(types.boolean, 1, "C", readonly=True)
_VALUES_IN = types.Array(types.float32, 1, "C", readonly=True)
_OUT, _OUT_TABLE = types.int32[::1], types.int32[:, ::1]
_COUNTS, _VALUES_OUT = types.int64[::1], types.float32[:, ::1]


# ---- pieces and ELL rows of buckets (hyb.py) ----


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


@compiled(_LONG, _IN, _IN, _LONG, _LONG, _LONG, _LONG, _OUT_TABLE)
def cut_pieces(  # noqa: PLR0917 (numba takes no keyword-only arguments)
    indptr: Any, indices: Any, width: Any, first: Any, stop: Any, place: Any, pieces: Any
) -> Any:
    """Cut rows ``first:stop`` into runs of non-zeros in one range of ``width`` columns; give the place after the last.

    Parameters
    ----------
    place : int
        Where the first piece stands.
    pieces : (4, n) int32
        Written: row of A, position of the first non-zero, non-zeros, and range of columns of each piece. Without any
        columns the pieces are only counted.
    """
    for row in range(first, stop):
        at, end = np.int64(indptr[row]), np.int64(indptr[row + 1])
        while at < end:
            partition = indices[at] // width
            piece_end = _end_of_range(indices, at + 1, end, (partition + 1) * width)
            if pieces.shape[1]:
                pieces[0, place] = row
                pieces[1, place] = at
                pieces[2, place] = piece_end - at
                pieces[3, place] = partition
            place += 1
            at = piece_end
    return place


@inlined
def _slot_of_rest(slots: Any, partition: Any, full: Any, rest: Any) -> Any:
    """Give the bucket of a piece of ``rest`` non-zeros after ``full`` folds; ``slots`` as in `place_ell_rows`."""
    if full > 0 and slots[partition, 65] >= 0:
        return slots[partition, 65]
    power = 0
    while (1 << power) < rest:
        power += 1
    return slots[partition, 2 * power - 1 if 4 * rest <= 3 << power else 2 * power]


@compiled(types.void, _TABLE, _MARKS, _IN, _TABLE, _LONG, _LONG, _COUNTS, _OUT_TABLE)
def place_ell_rows(  # noqa: PLR0917
    pieces: Any, shared: Any, folds: Any, slots: Any, first: Any, stop: Any, cursor: Any, ell_rows: Any
) -> None:
    """Put the ELL rows of pieces ``first:stop`` into buckets.

    Parameters
    ----------
    pieces : (4, n) int32
        As `cut_pieces` writes them.
    shared : (I,) bool
        Whether a row of A has several ELL rows.
    folds : (c,) int32
        Binary logarithm of each partition's widest bucket, where longer pieces are folded.
    slots : (c, 66) int32
        Bucket of a shared row by the class of its length: 2 p for lengths up to 2^p, 2 p - 1 for lengths up to
        3/4 2^p. A row in one piece goes to the next bucket. The last two columns are the bucket of full pieces, and
        the bucket of the rest of a folded row (negative: chosen by the rest's length).
    cursor : (buckets,) int64
        Place of each bucket's next ELL row; moved on. Every call has a cursor of its own.
    ell_rows : (3, r) int32
        Written: row of A, non-zeros, and position of the first non-zero of each ELL row. Without any columns the ELL
        rows are only counted, in ``cursor``.
    """
    for i in range(first, stop):
        row, start, partition = pieces[0, i], pieces[1, i], pieces[3, i]
        whole = 0 if shared[row] else 1
        most = 1 << folds[partition]
        full = pieces[2, i] >> folds[partition]
        rest = pieces[2, i] - full * most
        for number in range(full + (1 if rest > 0 else 0)):
            slot = whole + (slots[partition, 64] if number < full else _slot_of_rest(slots, partition, full, rest))
            at = cursor[slot]
            cursor[slot] = at + 1
            if ell_rows.shape[1]:
                ell_rows[0, at] = row
                ell_rows[1, at] = most if number < full else rest
                ell_rows[2, at] = start + number * most


@compiled(types.void, _IN, _VALUES_IN, _IN, _IN, _OUT_TABLE, _VALUES_OUT)
def fill_ell_rows(  # noqa: PLR0917
    indices: Any, values: Any, starts: Any, lengths: Any, out_indices: Any, out_values: Any
) -> None:
    """Copy the elements of some ELL rows of one bucket from CSR.

    A slot past the row's length gets column -1 and the value 0.

    Parameters
    ----------
    starts, lengths : (n,) int32
        Position of the first non-zero, and non-zeros, of each ELL row, from `place_ell_rows`.
    out_indices, out_values : (n, width) int32 and float32
        Written: columns and values of the slots.
    """
    for r in range(starts.size):
        start, length = np.int64(starts[r]), np.int64(lengths[r])
        for s in range(length):
            out_indices[r, s] = indices[start + s]
            out_values[r, s] = values[start + s]
        for s in range(length, out_indices.shape[1]):
            out_indices[r, s] = -1
            out_values[r, s] = 0


# ---- orders of rows: which rows share columns, and what blocks of rows read (nearness.py) ----


@compiled(types.void, _IN, _IN, _WORDS_IN, _LONG, _LONG, _OUT)
def lead(indptr: Any, indices: Any, ranks: Any, first: Any, stop: Any, leaders: Any) -> None:  # noqa: PLR0917 (Numba)
    """Find the column of least rank in each of rows ``first:stop``, the first of several; -1 in an empty row.

    Parameters
    ----------
    indptr, indices : (I + 1,), (nnz,) int32
        A in CSR.
    ranks : (K,) uint32
        Rank of each column.
    first, stop : int
    leaders : (I,) int32
        Column of each row; entries ``first:stop`` are written.
    """
    for row in range(first, stop):
        leader, least = types.int32(-1), types.uint32(0xFFFFFFFF)
        for at in range(indptr[row], indptr[row + 1]):
            column = indices[at]
            if leader < 0 or ranks[column] < least:
                leader, least = column, ranks[column]
        leaders[row] = leader


@compiled(types.void, _IN, _IN, _IN, _LONG, _LONG, _OUT, _OUT)
def vote(  # noqa: PLR0917 (Numba takes no keyword-only arguments)
    indptr: Any, indices: Any, labels: Any, first: Any, stop: Any, counts: Any, chosen: Any
) -> None:
    """Give vertices ``first:stop`` the label that most of their neighbours have, the lowest of several.

    A vertex without neighbours keeps its label.

    Parameters
    ----------
    indptr, indices : (I + 1,), (nnz,) int32
        A graph in CSR.
    labels : (I,) int32
        Label of each vertex, a place in ``counts``.
    first, stop : int
    counts : (labels,) int32
        Scratch for one count a label: zeros before the call, and zeros again afterwards.
    chosen : (I,) int32
        New label of each vertex; entries ``first:stop`` are written. May be ``labels``: then each vertex sees the new
        labels of the vertices before it.
    """
    for vertex in range(first, stop):
        best, most = labels[vertex], types.int32(0)
        for at in range(indptr[vertex], indptr[vertex + 1]):
            label = labels[indices[at]]
            counts[label] += 1
            if counts[label] > most or (counts[label] == most and label < best):
                best, most = label, counts[label]
        for at in range(indptr[vertex], indptr[vertex + 1]):
            counts[labels[indices[at]]] = 0
        chosen[vertex] = best


@compiled(types.void, _IN, _IN, _IN, _LONGS_IN, _IN, _LONG, _LONG, _OUT, _COUNTS, _COUNTS)
def count_columns(  # noqa: PLR0917 (Numba takes no keyword-only arguments)
    indptr: Any, indices: Any, owner: Any, row_ptr: Any, rows: Any, first: Any, stop: Any, stamp: Any, columns: Any,
    nnz: Any,
) -> None:  # fmt: skip
    """Count the distinct columns and the non-zeros of windows ``first:stop`` of rows.

    Parameters
    ----------
    owner : (nnz,) or (0,) int32
        Non-zeros with an owner, 0 or more, are left out.
    row_ptr, rows : (W + 1,) int64, (n,) int32
        Rows of each window.
    stamp : (K,) int32
        Scratch, which the caller has filled with -1: the last window that named each column.
    columns, nnz : (W,) int64
        Written.
    """
    for window in range(first, stop):
        distinct, entries = 0, 0
        for r in range(row_ptr[window], row_ptr[window + 1]):
            for at in range(indptr[rows[r]], indptr[rows[r] + 1]):
                if owner.size == 0 or owner[at] < 0:
                    entries += 1
                    if stamp[indices[at]] != window:
                        stamp[indices[at]] = window
                        distinct += 1
        columns[window], nnz[window] = distinct, entries


# ---- ELL rows of relations (relational_hyb.py) ----


@compiled(types.void, _IN, _IN, _LONG, _LONG, _COUNTS, _COUNTS, _OUT, _OUT, _OUT)
def ell_rows_of_relations(  # noqa: PLR0917
    indptr: Any,
    indices: Any,
    num_cols: Any,
    widest: Any,
    row_at: Any,
    slot_at: Any,
    rows: Any,
    columns: Any,
    positions: Any,
) -> None:
    """Cut the edges of each row and relation into ELL rows of up to ``widest`` slots, and place these in buckets.

    All ELL rows of more than ``widest`` edges are that wide, also the last one.

    Parameters
    ----------
    indptr, indices : (I + 1,), (nnz,) int32
        The wide CSR of all relations, of ``num_cols`` columns each.
    row_at, slot_at : (5 R,) int64
        Where the next ELL row and the next slot of each bucket stand, of relation r and width 2^p at 5 r + p. All are
        moved on: from zeros on, they count.
    rows : (n,) int32
        Written: row of A of each ELL row. Without any the ELL rows are only counted.
    columns, positions : (slots,) int32
        Written: column of each edge, and its position in ``indices``.
    """
    for row in range(indptr.size - 1):
        at, end = np.int64(indptr[row]), np.int64(indptr[row + 1])
        while at < end:
            relation, power = np.int64(indices[at]) // num_cols, 0
            stop = _end_of_range(indices, at + 1, end, (relation + 1) * num_cols)
            while (1 << power) < min(stop - at, widest):
                power += 1
            bucket = 5 * relation + power
            while at < stop:
                first, at = at, min(at + widest, stop)
                if rows.size:
                    rows[row_at[bucket]] = row
                    for edge in range(first, at):
                        columns[slot_at[bucket] + edge - first] = indices[edge] - relation * num_cols
                        positions[slot_at[bucket] + edge - first] = edge
                row_at[bucket] += 1
                slot_at[bucket] += 1 << power


# ---- tiles (tiles.py) ----


@compiled(types.void, _IN, _IN, _IN, _TABLE, _LONG, _LONG, _OUT, _OUT_TABLE, types.boolean[:, ::1])
def condense_panels(  # noqa: PLR0917 (numba takes no keyword-only arguments)
    row_of: Any, indices: Any, ptr: Any, rows: Any, num_rows: Any, num_cols: Any, counts: Any, places: Any, used: Any
) -> None:
    """Find where each non-zero of some panels stands: its row, and its column among all that the panel has.

    Parameters
    ----------
    row_of, indices : (n,) int32
        Row and column of each non-zero, panel by panel.
    ptr : (p + 1,) int32
        Panel p has the non-zeros ``ptr[p]:ptr[p + 1]``.
    rows : (p, R) int32
        Rows of each panel, -1 where it has fewer.
    num_rows, num_cols : int
        I and K; the loop takes 4 I + 8 K bytes.
    counts : (p,) int32
        Written: distinct columns of each panel.
    places : (2, n) int32
        Written: the place of each non-zero among its panel's rows, and among its panel's columns in rising order.
    used : (p, R) bool
        Written: whether each row of a panel has a non-zero; False before the call.
    """
    column_places, row_places = np.full(num_cols, -1, np.int32), np.full(num_rows, -1, np.int32)
    columns = np.empty(num_cols, np.int32)
    for panel in range(rows.shape[0]):
        for r in range(rows.shape[1]):
            if rows[panel, r] >= 0:
                row_places[rows[panel, r]] = r
        count = 0
        for i in range(ptr[panel], ptr[panel + 1]):
            if column_places[indices[i]] < 0:
                column_places[indices[i]] = 0
                columns[count] = indices[i]
                count += 1
        columns[:count].sort()
        for s in range(count):
            column_places[columns[s]] = s
        for i in range(ptr[panel], ptr[panel + 1]):
            places[0, i] = row_places[row_of[i]]
            places[1, i] = column_places[indices[i]]
            used[panel, places[0, i]] = True
        for s in range(count):
            column_places[columns[s]] = -1
        for r in range(rows.shape[1]):
            if rows[panel, r] >= 0:
                row_places[rows[panel, r]] = -1
        counts[panel] = count
