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


@compiled(types.void, _IN, _IN, _LONG, _LONG, types.boolean[:, ::1])
def mark(indptr: Any, indices: Any, row_halvings: Any, col_halvings: Any, seen: Any) -> None:
    """Mark the sites with a non-zero.

    Parameters
    ----------
    indptr : (I + 1,) int32
    indices : (nnz,) int32
    row_halvings, col_halvings : int
        log2 of the rows and columns of A in a site.
    seen : grid of bool
        Set where a site has a non-zero.
    """
    for row in range(indptr.size - 1):
        line = seen[row >> row_halvings]
        for entry in range(indptr[row], indptr[row + 1]):
            line[indices[entry] >> col_halvings] = True


@compiled(types.void, _IN, _IN, _LONG, _LONG, types.int64[:, ::1], types.int64[:, ::1])
def tally(  # noqa: PLR0917 (Numba takes no keyword-only arguments)
    indptr: Any, indices: Any, row_halvings: Any, col_halvings: Any, places: Any, held: Any
) -> None:
    """Count what each site holds.

    Parameters
    ----------
    indptr : (I + 1,) int32
    indices : (nnz,) int32
    row_halvings, col_halvings : int
        As in `mark`.
    places : grid of int64
        The place of each site among the active sites.
    held : (3, n) int64
        Added to, by active site: non-zeros, rows of A with a non-zero in the site, and non-zeros whose left neighbour
        in A is a non-zero, too.
    """
    for row in range(indptr.size - 1):
        start, line, before = indptr[row], places[row >> row_halvings], -1
        for entry in range(start, indptr[row + 1]):
            site = line[indices[entry] >> col_halvings]
            held[0, site] += 1
            if site != before:
                held[1, site] += 1
                before = site
            if entry > start and indices[entry] - indices[entry - 1] == 1:
                held[2, site] += 1
