"""Which rows of C several pieces of a matrix share, and which no piece writes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class RowUse:
    """Which rows of C must be cleared before the kernels run, and which are added into."""

    num_rows: int
    shared: NDArray[np.int32]
    """(s,) rows that are the sum of several pieces, rising: cleared, then added into atomically."""
    empty: NDArray[np.int32]
    """(e,) rows without a piece, rising: cleared."""

    def targets(self, rows: NDArray[np.int32], numbered: bool) -> NDArray[np.int32]:
        """Say where each piece's sums go.

        Parameters
        ----------
        rows : (n,) int32
            Row of A of each piece.
        numbered : bool
            Shared rows are added up in a workspace with one row for each of `shared`, as float16 needs, instead of in
            C.

        Returns
        -------
        (n,) int32
            r where row r of C is written whole; -1 - r where the sums are added into row r of C, or of the workspace.
        """
        into = np.arange(self.num_rows, dtype=np.int32, like=rows)
        number = np.arange(self.shared.size, dtype=np.int32, like=rows) if numbered else self.shared
        into[self.shared] = -1 - number
        return into[rows]


def row_use(num_rows: int, pieces: Iterable[NDArray[np.int32]]) -> RowUse:
    """Find the rows that are shared between pieces, of one format or several, and those that are empty.

    Parameters
    ----------
    num_rows : int
    pieces : iterable of (n,) int32
        Row of A of every piece that is summed by itself, for each of at least one format that holds pieces. Arrays of
        CuPy make a result of such, and what follows from it.

    Returns
    -------
    RowUse
        O(I + pieces).
    """
    uses: Any = sum(np.bincount(rows, minlength=num_rows) for rows in pieces)
    shared, empty = (np.flatnonzero(which).astype(np.int32) for which in (uses > 1, uses == 0))
    return RowUse(num_rows, shared, empty)
