"""An order of rows in which those that share columns stand together, found in two passes over the non-zeros.

The paper keeps A's order. Here rows of a block find rows of B that others of the block have just read: rows with the
same min-hash share a column (Broder, "On the resemblance and containment of documents", 1997), and the least min-hash
among a row's neighbours gathers those groups into larger ones. Groups stand where their rows stand in A on average, so
that what is near in A stays near. C is not permuted.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.problem import Csr
from spmark.impls.formats.threads import equal_shares, run_all

WINDOW: Final = 32
"""Rows side by side, about what a thread block takes."""
_WINDOWS: Final = 256
_SALTS: Final = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)


@dataclass(frozen=True, eq=False)
class RowOrder:
    """A permutation of A's rows."""

    rows: NDArray[np.int32]
    """(I,) row of A at every place."""

    @cached_property
    def positions(self) -> NDArray[np.int32]:
        """(I,) place of every row of A."""
        places = np.empty_like(self.rows)
        places[self.rows] = np.arange(self.rows.size, dtype=np.int32)
        return places


def gathered(matrix: Csr) -> RowOrder:
    """Put rows that share columns together.

    Parameters
    ----------
    matrix : Csr
        Of a square one, row i and column i are taken for one vertex of a graph.

    Returns
    -------
    RowOrder
        The same on every machine. O(nnz + I log I) time, the non-zeros on all cores; 8 bytes a column and about 50 a
        row of scratch.
    """
    from spmark.impls.liteform import loops

    num_rows, num_cols = matrix.shape
    ranks = [_mixed(num_cols, salt) for salt in _SALTS]
    least = np.empty((2, num_rows), np.uint32)
    shares = list(pairwise(equal_shares(matrix.indptr)))
    given = matrix.indptr, matrix.indices
    run_all(loops.least_of_two, ((*given, *ranks, *share, *least) for share in shares))
    around = least[0]
    if num_rows == num_cols:
        around = np.empty_like(least[0])
        run_all(loops.least_of_one, ((*given, least[0], *share, around) for share in shares))
    # Groups that meet in a slot of this table share their place, which only makes the order a little worse.
    slots = around & np.uint32((1 << num_rows.bit_length()) - 1)
    members = np.bincount(slots)
    means = np.bincount(slots, np.arange(num_rows)) / np.maximum(members, 1)
    return RowOrder(_sorted_by([(means[slots] / num_rows * 2**32).astype(np.uint32), *least]))


def distinct_share(matrix: Csr, order: RowOrder | None = None) -> float:
    """Give the share of rows of B that a thread block reads for the first time, from evenly spread windows of rows.

    Parameters
    ----------
    matrix : Csr
    order : RowOrder, optional
        A's own by default.

    Returns
    -------
    float
        Distinct columns over non-zeros, over all windows; 1 where there are no non-zeros. O(windows).
    """
    from spmark.impls.liteform import loops

    rows = np.arange(matrix.num_rows, dtype=np.int32) if order is None else order.rows
    rows = rows[matrix.row_lengths[rows] > 0]
    count = max(1, rows.size // WINDOW)
    begins = np.unique(np.linspace(0, count - 1, min(count, _WINDOWS)).astype(np.int64)) * WINDOW
    seen = np.full(matrix.num_cols, -1, np.int32)
    distinct, total = loops.distinct_columns(matrix.indptr, matrix.indices, rows, begins, WINDOW, seen)
    return distinct / total if total else 1.0


def _mixed(count: int, salt: int) -> NDArray[np.uint32]:
    """Give numbers from 0 on a random rank each, 32 bits of a multiplicative hash."""
    words = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(salt)
    words ^= words >> np.uint64(29)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    return np.asarray(words >> np.uint64(32), np.uint32)


def _sorted_by(keys: list[NDArray[np.uint32]]) -> NDArray[np.int32]:
    """Sort rows by the leading bits of several keys, then by their number: all in one word, which sorts fastest."""
    count = keys[0].size
    of_row = max(1, (count - 1).bit_length())
    share = (64 - of_row) // len(keys)
    words = np.zeros(count, np.uint64)
    for key in keys:
        words = (words << np.uint64(share)) | (key >> np.uint32(32 - min(share, 32))).astype(np.uint64)
    words = (words << np.uint64(of_row)) | np.arange(count, dtype=np.uint64)
    words.sort()
    return (words & np.uint64((1 << of_row) - 1)).astype(np.int32)
