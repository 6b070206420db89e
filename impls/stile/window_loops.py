"""The compiled loops that condense the columns of windows.

Importing this module compiles the loops or reads them from Numba's cache, as `spmark.impls.formats.loops` does.

Loops share these arguments, made by the caller and only read:

indptr, indices : (I + 1,), (nnz,) int32
    The matrix's offsets of rows, and its columns.
owner : (nnz,) int32
    The tile of each non-zero, -1 while it has none.
row_ptr, rows : (W + 1,) int64, (n,) int32
    Rows of each window, as of `spmark.impls.stile.state.Windows`.
"""

from __future__ import annotations

from typing import Any

from numba import types

from spmark.impls.core.loops import compiled, part
from spmark.impls.stile.state import I32, I64, IN, LONG

_LONG_IN = types.Array(types.int64, 1, "C", readonly=True)


@compiled(types.void, IN, IN, I32, _LONG_IN, IN, LONG, LONG, I32, I64, I64)
def count_columns(  # noqa: PLR0917 (Numba takes no keyword-only arguments)
    indptr: Any,
    indices: Any,
    owner: Any,
    row_ptr: Any,
    rows: Any,
    first: Any,
    stop: Any,
    stamp: Any,
    columns: Any,
    nnz: Any,
) -> None:
    """Count the columns and non-zeros without an owner of windows ``first:stop``.

    Parameters
    ----------
    indptr, indices, owner, row_ptr, rows
        As the module says.
    stamp : (K,) int32
        Scratch, which the caller has filled with -1: the last window that named each column.
    columns, nnz : (W,) int64
        Written: distinct columns, and non-zeros.
    """
    for window in range(first, stop):
        distinct, entries = 0, 0
        for r in range(row_ptr[window], row_ptr[window + 1]):
            for at in range(indptr[rows[r]], indptr[rows[r] + 1]):
                if owner[at] < 0:
                    entries += 1
                    if stamp[indices[at]] != window:
                        stamp[indices[at]] = window
                        distinct += 1
        columns[window], nnz[window] = distinct, entries


@part
def _by_count(  # noqa: PLR0917
    indptr: Any,
    indices: Any,
    owner: Any,
    row_ptr: Any,
    rows: Any,
    window: Any,
    counts: Any,
    slots: Any,
    order: Any,
) -> Any:
    """Give the columns of a window slots, those with most non-zeros first, and return how many columns there are.

    ``counts``, ``slots`` and ``order`` are those of `condense`. The loop writes the columns into ``order``, and the
    non-zeros and the slot of each into ``counts`` and ``slots``.
    """
    distinct, most = 0, 0
    for r in range(row_ptr[window], row_ptr[window + 1]):
        for at in range(indptr[rows[r]], indptr[rows[r] + 1]):
            column = indices[at]
            if owner[at] >= 0:
                continue
            if counts[column] == 0:
                order[distinct] = column
                distinct += 1
            counts[column] += 1
            most = max(most, counts[column])
    slot = 0
    for count in range(most, 0, -1):  # at most as many as rows
        for i in range(distinct):
            if counts[order[i]] == count:
                slots[order[i]] = slot
                slot += 1
    return distinct


@compiled(
    types.void,
    IN,
    IN,
    I32,
    _LONG_IN,
    IN,
    LONG,
    LONG,
    LONG,
    LONG,
    _LONG_IN,
    _LONG_IN,
    I32,
    I32,
    I32,
    types.int32[:, ::1],
    I32,
    I64,
    I32,
)
def condense(  # noqa: PLR0917
    indptr: Any,
    indices: Any,
    owner: Any,
    row_ptr: Any,
    rows: Any,
    height: Any,
    width: Any,
    first: Any,
    stop: Any,
    group_ptr: Any,
    nnz_ptr: Any,
    counts: Any,
    slots: Any,
    order: Any,
    group_of: Any,
    members: Any,
    member_ptr: Any,
    left: Any,
) -> None:
    """Order the columns of windows ``first:stop`` by their non-zeros without an owner, most first, and group them.

    Columns of equal count keep the order in which the rows of the window name them, so that the columns of a sparse row
    stand together.

    Parameters
    ----------
    indptr, indices, owner, row_ptr, rows
        As the module says.
    height : int
        Number of the height: the column of ``group_of`` that is written.
    width : int
        Columns of a group.
    group_ptr, nnz_ptr : (W + 1,) int64
        Groups and non-zeros before each window; read.
    counts, slots, order : (K,), (K,), (K,) int32
        Scratch. The caller has filled ``counts`` with zeros, and the loop leaves zeros in it.
    group_of : (nnz, heights) int32
        Written: `Groups.of`.
    members, member_ptr, left : (n,) int32, (G + 1,) int64, (G,) int32
        Written: fields of `Groups`; the caller has filled ``left`` with zeros.
    """
    for window in range(first, stop):
        distinct = _by_count(indptr, indices, owner, row_ptr, rows, window, counts, slots, order)
        base = group_ptr[window]
        for i in range(distinct):
            left[base + slots[order[i]] // width] += counts[order[i]]
            counts[order[i]] = 0
        to = nnz_ptr[window]
        for group in range(base, group_ptr[window + 1]):
            member_ptr[group] = to
            to += left[group]
        for r in range(row_ptr[window], row_ptr[window + 1]):
            for at in range(indptr[rows[r]], indptr[rows[r] + 1]):
                if owner[at] < 0:
                    group = base + slots[indices[at]] // width
                    group_of[at, height] = group
                    members[member_ptr[group]] = at
                    member_ptr[group] += 1
        for group in range(group_ptr[window + 1] - 1, base - 1, -1):  # back from where each ends to where it begins
            member_ptr[group] = nnz_ptr[window] if group == base else member_ptr[group - 1]
