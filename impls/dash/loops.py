"""The compiled loops of down-sampling: which site a non-zero lies in, and what a site holds.

Importing this module compiles the loops, or reads their kept machine code (`spmark.impls.core.loops`). The caller
allocates every buffer.
"""

from __future__ import annotations

from typing import Any

from numba import types

from spmark.impls.core.loops import compiled

_LONG = types.int64
_IN = types.Array(types.int32, 1, "C", readonly=True)
_LONGS_IN = types.Array(types.int64, 1, "C", readonly=True)
_LONGS = types.int64[::1]


@compiled(types.void, _IN, _IN, _LONG, _LONG, _LONG, _LONGS)
def locate(  # noqa: PLR0917 (Numba takes no keyword-only arguments)
    indptr: Any, indices: Any, row_halvings: Any, col_halvings: Any, num_cols: Any, keys: Any
) -> None:
    """Give the site of each non-zero.

    Parameters
    ----------
    indptr : (I + 1,) int32
    indices : (nnz,) int32
    row_halvings, col_halvings : int
        log2 of the rows and columns of A in a site.
    num_cols : int
        Columns of the grid.
    keys : (nnz,) int64
        Written: the site's row of the grid times ``num_cols``, plus its column.
    """
    for row in range(indptr.size - 1):
        start = (row >> row_halvings) * num_cols
        for entry in range(indptr[row], indptr[row + 1]):
            keys[entry] = start + (indices[entry] >> col_halvings)


@compiled(types.void, _IN, _IN, _LONGS_IN, _LONGS, _LONGS, _LONGS)
def tally(  # noqa: PLR0917
    indptr: Any, indices: Any, of_entry: Any, counts: Any, pieces: Any, beside: Any
) -> None:
    """Count what each site holds.

    Parameters
    ----------
    indptr : (I + 1,) int32
    indices : (nnz,) int32
    of_entry : (nnz,) int64
        The place of each non-zero's site among the active sites.
    counts : (n,) int64
        Added to: non-zeros.
    pieces : (n,) int64
        Added to: rows of A with a non-zero in the site.
    beside : (n,) int64
        Added to: non-zeros whose left neighbour in A is a non-zero, too.
    """
    for row in range(indptr.size - 1):
        start = indptr[row]
        for entry in range(start, indptr[row + 1]):
            site = of_entry[entry]
            counts[site] += 1
            if entry == start or of_entry[entry - 1] != site:
                pieces[site] += 1
            if entry > start and indices[entry] - indices[entry - 1] == 1:
                beside[site] += 1
