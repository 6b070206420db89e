"""The compiled loops behind the formats, apart from them since importing Numba takes long.

Importing this module compiles the loops, or reads their machine code from a cache. The loops release Python's lock, so
that `spmark.impls.formats.threads` runs them on several cores. Each call writes only the places of its range.
``indptr`` (I + 1,) and ``indices`` (nnz,), int32, and ``values`` (nnz,), float32, are A's CSR.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from spmark.impls.core.loops import IN, LONG, LONGS_IN, compiled

_TABLE = types.Array(types.int32, 2, "C", readonly=True)
_VALUES_IN = types.Array(types.float32, 1, "C", readonly=True)
_OUT, _OUT_TABLE = types.int32[::1], types.int32[:, ::1]
_COUNTS, _VALUES_OUT = types.int64[::1], types.float32[:, ::1]


# ---- ELL rows of buckets (hyb.py) ----


@compiled(types.void, IN, _VALUES_IN, IN, IN, _OUT_TABLE, _VALUES_OUT)
def fill_ell_rows(  # noqa: PLR0917
    indices: Any, values: Any, starts: Any, lengths: Any, out_indices: Any, out_values: Any
) -> None:
    """Copy the elements of some ELL rows of one bucket from CSR.

    A slot past the row's length gets column -1 and the value 0.

    Parameters
    ----------
    starts, lengths : (n,) int32
        Position of the first non-zero, and non-zeros, of each ELL row, from `lay_out`.
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


@compiled(types.void, IN, IN, IN, LONGS_IN, IN, LONG, LONG, _OUT, _COUNTS, _COUNTS)
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


# ---- tiles (tiles.py) ----


@compiled(types.void, IN, IN, IN, _TABLE, LONG, LONG, _OUT, _OUT_TABLE, types.boolean[:, ::1])
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
