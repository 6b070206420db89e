"""An order in which rows that share columns stand together, so that the rows of B that they read meet in a cache.

Rows with the same min-hash share a column (Broder, "On the resemblance and containment of documents", SEQUENCES 1997).
In a graph each row then takes over the label of most of its neighbours (Raghavan, Albert and Kumara, "Near linear time
algorithm to detect community structures in large-scale networks", Physical Review E, 2007). A min-hash of groups
gathers neighbouring groups. A gathering stands where its rows stand in A on average, so that rows that are near in A
stay near.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.problem import Csr
from spmark.impls.formats.threads import equal_shares, run_all

WINDOW: Final = 32
"""Rows side by side, about what a thread block takes."""
_WINDOWS: Final = 256
_SALTS: Final = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)
_GREATEST: Final = np.uint32(0xFFFFFFFF)
_VOTES: Final = 2
"""Rounds of votes after a min-hash."""
_FEW: Final = 1 << 18
"""Non-zeros beyond which the second round after a min-hash costs more than it gains."""


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


def near_order(matrix: Csr) -> RowOrder:
    """Put rows that share columns together.

    Parameters
    ----------
    matrix : Csr
        In a square matrix row i and column i count as one vertex of a graph.

    Returns
    -------
    RowOrder
        The same on every machine. O(nnz + I log I) time, the non-zeros on all cores. Scratch memory is 8 bytes a
        column, about 60 a row and 12 a non-zero.
    """
    num_rows, num_cols = matrix.shape
    ranks, others = (_mixed(num_cols, salt) for salt in _SALTS)
    own = _leaders(matrix, ranks)
    places = np.arange(num_rows, dtype=np.int32)
    if num_rows != num_cols:
        means = _mean_places(np.where(own < 0, num_cols, own), places)
        return RowOrder(_sorted_by([means, _least(ranks, own), _least(others, _leaders(matrix, others))]))
    followed = _voted(matrix, np.where(own < 0, places, own), _VOTES if matrix.nnz <= _FEW else 1)
    # The least rank among the labels next to a group gathers groups that are neighbours.
    known = others[followed]
    of_group = np.full(num_rows, _GREATEST)
    np.minimum.at(of_group, followed, _least(known, _leaders(matrix, known)))
    # Gatherings that meet in a slot share their place, which only makes the order a little worse.
    slots = of_group[followed] & np.uint32((1 << num_rows.bit_length()) - 1)
    return RowOrder(_sorted_by([_mean_places(slots, places), ranks[followed], _least(ranks, own)]))


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
    rows = np.arange(matrix.num_rows, dtype=np.int32) if order is None else order.rows
    rows = rows[matrix.row_lengths[rows] > 0]
    count = max(1, rows.size // WINDOW)
    begins = np.unique(np.linspace(0, count - 1, min(count, _WINDOWS)).astype(np.int64)) * WINDOW
    place, distinct, total = np.empty(matrix.num_cols, np.int64), 0, 0
    for begin in begins:
        columns = matrix.indices[matrix.entries_of(rows[begin : begin + WINDOW])[1]]
        own = np.arange(columns.size)
        place[columns] = own
        distinct, total = distinct + int(np.count_nonzero(place[columns] == own)), total + columns.size
    return distinct / total if total else 1.0


def _leaders(matrix: Csr, ranks: NDArray[np.uint32]) -> NDArray[np.int32]:
    """Give every row's column of least rank, (I,), on all cores; -1 for an empty row."""
    shares = pairwise(equal_shares(matrix.indptr))
    return np.concatenate(run_all(_leaders_of, ((matrix, ranks, *share) for share in shares)))


def _leaders_of(matrix: Csr, ranks: NDArray[np.uint32], first: int, stop: int) -> NDArray[np.int32]:
    """Give the column of least rank of each of rows ``first:stop``, the first of several."""
    begin, end = matrix.indptr[first], matrix.indptr[stop]
    columns, filled = matrix.indices[begin:end], np.flatnonzero(matrix.row_lengths[first:stop])
    leaders = np.full(stop - first, -1, np.int32)
    if filled.size:
        words = _words(ranks[columns], columns)
        leaders[filled] = _low(np.minimum.reduceat(words, matrix.indptr[first + filled] - begin))
    return leaders


def _words(high: NDArray[Any], low: NDArray[Any]) -> NDArray[np.uint64]:
    """Pack pairs of numbers of 32 bits, which are then compared by the first, and by the second where that is equal."""
    return high.astype(np.uint64) << np.uint64(32) | low.astype(np.uint32)


def _low(words: NDArray[np.uint64]) -> NDArray[np.int32]:
    """Give the second numbers of `_words`."""
    return words.astype(np.uint32).astype(np.int32)


def _least(ranks: NDArray[np.uint32], leaders: NDArray[np.int32]) -> NDArray[np.uint32]:
    return np.where(leaders < 0, _GREATEST, ranks[leaders])


def _voted(matrix: Csr, labels: NDArray[np.int32], rounds: int) -> NDArray[np.int32]:
    """Let every row take over the label that most of its neighbours had a round before, on all cores."""
    shares = list(pairwise(equal_shares(matrix.indptr)))
    for _ in range(rounds):
        labels = np.concatenate(run_all(_voted_of, ((matrix, labels, *share) for share in shares)))
    return labels


def _voted_of(matrix: Csr, labels: NDArray[np.int32], first: int, stop: int) -> NDArray[np.int32]:
    """Give rows ``first:stop`` the label that most of their neighbours have, the lowest of several."""
    chosen = labels[first:stop].copy()  # which a row without neighbours keeps
    begin, end = matrix.indptr[first], matrix.indptr[stop]
    if begin < end:
        row = np.repeat(np.arange(stop - first), matrix.row_lengths[first:stop])
        ballots = _words(row, labels[matrix.indices[begin:end]])
        ballots.sort()
        at = np.flatnonzero(np.append(True, ballots[1:] != ballots[:-1]))
        count, row, label = np.diff(at, append=ballots.size), row[at], _low(ballots[at])
        begins = np.flatnonzero(np.append(True, row[1:] != row[:-1]))
        chosen[row[begins]] = ~_low(np.maximum.reduceat(_words(count, ~label), begins))
    return chosen


def _mean_places(labels: NDArray[Any], places: NDArray[Any]) -> NDArray[np.uint32]:
    """Give every row the mean place of the rows with its label, over all rows, in 32 bits."""
    means = np.bincount(labels, places) / np.maximum(np.bincount(labels), 1)
    return np.asarray(means[labels] / max(places.size, 1) * 2**32, np.uint32)


def _mixed(count: int, salt: int) -> NDArray[np.uint32]:
    """Give each number from 0 to ``count`` - 1 a random rank, 32 bits of a multiplicative hash."""
    words = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(salt)
    words ^= words >> np.uint64(29)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    return np.asarray(words >> np.uint64(32), np.uint32)


def _sorted_by(keys: Sequence[NDArray[np.uint32]]) -> NDArray[np.int32]:
    """Sort rows by the leading bits of several keys, then by number, packed into one word, which sorts fastest."""
    count = keys[0].size
    of_row = max(1, (count - 1).bit_length())
    share = min(32, (64 - of_row) // len(keys))
    words = np.zeros(count, np.uint64)
    for key in keys:
        words = (words << np.uint64(share)) | (key >> np.uint32(32 - share)).astype(np.uint64)
    words = (words << np.uint64(of_row)) | np.arange(count, dtype=np.uint64)
    words.sort()
    return (words & np.uint64((1 << of_row) - 1)).astype(np.int32)
