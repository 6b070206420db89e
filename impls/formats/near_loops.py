"""The compiled loops behind `spmark.impls.formats.nearness`: which rows share columns, and what blocks of rows read.

Importing this module compiles the loops, or reads kept machine code, as `spmark.impls.formats.loops` does. The loops
release Python's lock, so that threads can run them side by side on ranges of rows. The caller allocates every buffer.
"""

from __future__ import annotations

from typing import Any

from numba import types

from spmark.impls.core.loops import compiled

_LONG = types.int64
_IN, _OUT = types.Array(types.int32, 1, "C", readonly=True), types.int32[::1]
_WORDS_IN = types.Array(types.uint32, 1, "C", readonly=True)


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


@compiled(types.UniTuple(_LONG, 2), _IN, _IN, _IN, types.int64[::1], _LONG, _OUT)
def distinct_columns(indptr: Any, indices: Any, rows: Any, begins: Any, window: Any, seen: Any) -> Any:  # noqa: PLR0917
    """Count the distinct columns of windows of rows, and the non-zeros in these windows.

    Parameters
    ----------
    indptr, indices : (I + 1,), (nnz,) int32
        A in CSR.
    rows : (n,) int32
        Rows of A in the order to be judged.
    begins : (windows,) int64
        First place of each window.
    window : int
        Rows of a window.
    seen : (K,) int32
        Scratch: all -1 before the call, afterwards the last window that has touched each column.

    Returns
    -------
    distinct, total : int
        Distinct columns and non-zeros, each summed over all windows.
    """
    distinct = total = 0
    for number in range(begins.size):
        for place in range(begins[number], min(begins[number] + window, rows.size)):
            row = rows[place]
            total += indptr[row + 1] - indptr[row]
            for at in range(indptr[row], indptr[row + 1]):
                if seen[indices[at]] != number:
                    seen[indices[at]] = number
                    distinct += 1
    return distinct, total
