"""The cost of buckets by the volume of loads and stores, and the counts that this cost needs.

Peng, Thomadakis, Pienaar and Kestor, "LiteForm", HPDC 2025, section 5.3, equations 5 to 7. The lengths of pieces of
rows give the counts for every cap of the bucket widths. A column keeps one bit for each power of two of the pieces that
touch it, so that the distinct columns of merged buckets are a count of bits instead of a union of sets.

The second cost is that of one GPU: the volume that all buckets of one grid move, weighed by measured times. LiteForm's
equations let every bucket read its rows of B anew, as grids of their own would. Where all buckets are one grid they
meet in the L2, so that those rows cost the same under every cap. What differs is padding, how often rows of C are
written, the chain of loads behind the longest row, and the launch that clears rows of C that several ELL rows are added
to.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.problem import Csr
from spmark.impls.formats.hyb import partition_columns, widths_up_to
from spmark.impls.formats.threads import cores, equal_shares, run_all, with_scratch
from spmark.impls.liteform.loops import MAX_POWER, mark_columns

POWERS = MAX_POWER + 1
_SHARE = 1 << 18
"""Least non-zeros of a task."""
CHAIN = 64
"""Slots from which several groups of threads may share a row."""


@dataclass(frozen=True, eq=False)
class BucketCounts:
    """Counts behind the cost of every cap, (partitions, `POWERS`) int64 each, by the power of two of a length."""

    rows: NDArray[np.int64]
    """Pieces of rows whose length needs 2^p slots; pieces longer than 1,024 count in the last column."""
    slots: NDArray[np.int64]
    """Slots of these pieces in buckets where they fit, without pieces longer than 1,024."""
    folded: NDArray[np.int64]
    """ELL rows of the widest bucket where its width is 2^p."""
    longer: NDArray[np.int64]
    """Pieces longer than 2^p."""
    split: NDArray[np.int64]
    """ELL rows of the pieces longer than 2^p, cut into 2^p slots, the rest in the bucket where it fits."""
    split_slots: NDArray[np.int64]
    """Slots of the ELL rows in ``split``."""
    columns: NDArray[np.int64] | None = None
    """Distinct columns of the pieces in ``rows``; None where columns were not counted."""
    columns_above: NDArray[np.int64] | None = None
    """Distinct columns of the pieces of 2^p slots and more; None likewise."""

    @property
    def partitions(self) -> int:
        """Column partitions."""
        return int(self.rows.shape[0])

    @property
    def widest(self) -> NDArray[np.int64]:
        """(partitions,) the highest power with a piece; 0 in an empty partition."""
        present = self.rows > 0
        return np.where(present.any(1), POWERS - 1 - np.argmax(present[:, ::-1], 1), 0)


def count(matrix: Csr, partitions: int, columns: bool = True, thirds: bool = False) -> BucketCounts:
    """Count a matrix cut into equal ranges of columns, on all cores.

    Parameters
    ----------
    matrix : Csr
    partitions : int
        Ranges of ceil(K / partitions) columns.
    columns : bool
        Count distinct columns, which the paper's cost needs and `weighed` does not.
    thirds : bool
        Count slots of buckets of 24, 48, 96, ... between the powers of two, which the paper's cost does not know.

    Returns
    -------
    BucketCounts
        O(I + pieces + K) time; with columns O(nnz + K partitions) on all cores, and 2 K bytes of scratch for each task.
    """
    width, caps = -(-matrix.num_cols // partitions), np.arange(POWERS)
    _, starts, lengths, partition = partition_columns(matrix, partitions).table
    # Pieces of equal length and partition count alike: there are at most K + partitions kinds of them.
    longest = int(lengths.max(initial=0))
    times = np.bincount(partition * np.int64(longest + 1) + lengths)
    kinds = np.flatnonzero(times)
    of, length = kinds // (longest + 1), (kinds % (longest + 1))[:, None]
    power, ladder = _power(length), np.array([0, *widths_up_to(1 << MAX_POWER, thirds)])
    slots = ladder[np.searchsorted(ladder, length.clip(max=1 << MAX_POWER))]
    full, rest, over = length >> caps, length & ((1 << caps) - 1), length > 1 << caps
    ell_rows, kept = full + (rest > 0), power.clip(max=MAX_POWER)
    split_slots = (full << caps) + ladder[np.searchsorted(ladder, rest)]
    each = (kept == caps, slots * (power == caps), ell_rows * (caps <= kept), over, ell_rows * over, split_slots * over)
    counted = np.zeros((len(each), partitions, POWERS), np.int64)
    for total, one in zip(counted, each, strict=True):
        np.add.at(total, of, one * times[kinds, None])
    if not columns:
        return BucketCounts(*counted)
    tasks = with_scratch(min(cores(), matrix.nnz // _SHARE), 2 * matrix.num_cols)
    marks = np.zeros((tasks, matrix.num_cols), np.uint16)
    given = matrix.indices, starts, lengths, (1 << _power(lengths).clip(max=MAX_POWER)).astype(np.uint16)
    shares = pairwise(equal_shares(np.append(starts, matrix.nnz), tasks))
    run_all(mark_columns, ((*given, *share, own) for share, own in zip(shares, marks, strict=False)))
    every = np.pad(np.bitwise_or.reduce(marks, axis=0), (0, partitions * width - matrix.num_cols))
    bits = every.reshape(partitions, width) >> caps[:, None, None].astype(np.uint16)
    return BucketCounts(*counted, *(one.sum(axis=2, dtype=np.int64).T for one in (bits & 1, bits > 0)))


def _power(lengths: NDArray[Any]) -> NDArray[np.int32]:
    """Give the binary logarithm of the least power of two that holds each length."""
    return np.asarray(np.frexp(lengths - 1)[1])


def costs(counts: BucketCounts, width: int) -> NDArray[np.float64]:
    """Give the cost of every partition under every cap of the bucket widths.

    A bucket of I1 ELL rows with W slots each costs 2 I1 W for the columns and values of A, and |columns| J for B. C
    costs I1 J where sums are added atomically: with several partitions, and in the widest bucket. Elsewhere C costs
    I2 J, where I2 is the number of rows of C. I1 is filled up to whole blocks, which have as many elements as a row of
    the widest bucket.

    Parameters
    ----------
    counts : BucketCounts
    width : int
        J.

    Returns
    -------
    (partitions, POWERS) float64
        Loads and stores in elements; infinite for a cap where every piece fits into half of it, zero in an empty
        partition.
    """
    assert counts.columns is not None and counts.columns_above is not None
    caps = np.arange(POWERS)
    fill, rows = 1 << (caps[:, None] - caps).clip(0), counts.rows[:, None, :]
    filled = -(-rows // fill) * fill
    touched = counts.columns[:, None, :] + (filled if counts.partitions > 1 else rows)
    narrower = ((2 * filled << caps) + touched * width) * (caps < caps[:, None])
    widest = (2 * counts.folded << caps) + (counts.columns_above + counts.folded) * width
    return np.where(caps <= counts.widest[:, None], narrower.sum(2) + widest, np.inf)


@dataclass(frozen=True)
class Weights:
    """How much each part of the cost counts on a GPU, in loads and stores of one element.

    `spmark.studies.liteform.schedules` fits the numbers to measured times.
    """

    atomic: float
    """A store that adds to C, over a plain store."""
    slot: float
    """A slot's load of a row of B, padded or not: from a cache, since the first load of a row is under every cap."""
    chain: float
    """A slot of the widest row, up to `CHAIN`."""
    beyond: float
    """A slot of the widest row beyond `CHAIN`."""
    launch: float
    """Clearing the rows that are added up: one more launch."""


def weighed(counts: BucketCounts, width: int, weights: Weights) -> NDArray[np.float64]:
    """Give the cost of every partition under every cap of the bucket widths.

    The rest of a folded row goes where it fits.

    Parameters
    ----------
    counts : BucketCounts
    width : int
        J.
    weights : Weights

    Returns
    -------
    (partitions, POWERS) float64
        Costs like those of `costs`, in the weights' unit. With several partitions every
        store adds to C.
    """
    caps = np.arange(POWERS)
    plain, added = counts.rows.sum(1, keepdims=True) - counts.longer, counts.split
    stored = np.cumsum(counts.slots, 1) + counts.split_slots
    if counts.partitions > 1:
        added, plain = added + plain, 0 * plain
    stores = plain + counts.longer + weights.atomic * added
    widest = np.left_shift(1, caps)
    chain = weights.chain * np.minimum(widest, CHAIN) + weights.beyond * np.maximum(widest - CHAIN, 0)
    total = 2.0 * stored + width * (stores + weights.slot * stored) + chain + weights.launch * (added > 0)
    possible = caps <= counts.widest[:, None]
    total[~possible] = np.inf
    total[counts.rows.sum(1) == 0, 0] = 0.0
    return np.asarray(total, np.float64)


def capped(table: NDArray[np.float64], counts: BucketCounts, power: int) -> float:
    """Give the cost of all partitions, each capped at 2^``power`` or at its own widest bucket.

    Parameters
    ----------
    table : (partitions, POWERS) float64
        Of `costs` or `weighed`.
    counts : BucketCounts
    power : int
    """
    return float(table[np.arange(counts.partitions), counts.widest.clip(max=power)].sum())


def power_of(width: int) -> int:
    """Give the binary logarithm of a bucket width.

    Raises
    ------
    ValueError
        The width is not a power of two, or is beyond 1,024.
    """
    if not 1 <= width <= 1 << MAX_POWER or width & (width - 1):
        raise ValueError(f"expected a bucket width out of 1, 2, 4, ... {1 << MAX_POWER}, found {width}")
    return width.bit_length() - 1
