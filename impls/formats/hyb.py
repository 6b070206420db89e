"""hyb(c, k): column partitions of ELL buckets whose widths are powers of two, long rows folded over several ELL rows.

Ye, Lai, Shao, Chen and Ceze, "SparseTIR", ASPLOS 2023, section 4.2.1 and figure 11.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.problem import Csr
from spmark.impls.formats.decompose import Pieces, bucket_widths, fold, partition_columns
from spmark.impls.formats.limits import check_stored

UNIT = 8
"""Elements that a kernel takes at once: every bucket holds a multiple of them, so that loads are aligned."""
MAX_STORED = 2**31 - 1
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Bucket:
    """ELL rows of one width in one partition."""

    partition: int
    width: int
    """Slots of an ELL row, a power of two."""
    shared: bool
    """Whether these rows have further pieces elsewhere, so that their sums must be added up."""
    first: int
    """Its first ELL row among all."""
    count: int
    """Its ELL rows, filled up with empty ones to a whole number of units."""
    base: int
    """Its first element among all, a multiple of `UNIT`."""


@dataclass(frozen=True, eq=False)
class HybFormat:
    """ELL buckets of pieces of rows.

    A padded slot has value 0 and the last column of its piece, whose row of B a kernel has just read; ELL rows that
    only fill a unit have row -1. Real slots are known by ``lengths``, never by value.
    """

    name: ClassVar[str] = "hyb"

    shape: tuple[int, int]
    """(I, K)."""
    rows: NDArray[np.int32]
    """(r,) row of A of each ELL row, or -1."""
    indices: NDArray[np.int32]
    """(stored,) columns: bucket by bucket, each row-major."""
    values: NDArray[np.float32]
    """(stored,) float32, like ``indices``."""
    lengths: NDArray[np.int32]
    """(r,) real slots of each ELL row."""
    starts: NDArray[np.int32]
    """(r,) position of each ELL row's first non-zero in A's CSR order."""
    buckets: tuple[Bucket, ...]
    """In the order stored: partition by partition, wide before narrow."""
    nnz: int

    @classmethod
    def from_csr(cls, matrix: Csr, partitions: int = 1, max_width: int = 32, tail_in_last: bool = False) -> HybFormat:
        """Convert.

        Parameters
        ----------
        matrix : Csr
        partitions : int
            c, column partitions.
        max_width : int
            2^k, width of the last bucket; longer rows are folded.
        tail_in_last : bool
            The paper leaves the rest of a folded row in the last bucket; by default it goes where it fits.

        Returns
        -------
        HybFormat
            O(nnz + stored) time; scratch beside the result is bounded.

        Raises
        ------
        ValueError
            ``max_width`` is no power of two.
        BuildError
            More than 2^31 - 1 elements would be stored.
        """
        if max_width < 1 or max_width & (max_width - 1):
            raise ValueError(f"expected max_width to be a power of two, found {max_width}")
        whole = partition_columns(matrix, partitions)
        pieces = fold(whole, max_width)
        widths = bucket_widths(pieces.lengths)
        if tail_in_last:
            _widen_tails(whole, pieces, widths, max_width)
        shared = np.bincount(pieces.rows, minlength=matrix.num_rows)[pieces.rows] > 1
        return _lay_out(matrix, pieces, widths, shared)

    @property
    def stored(self) -> int:
        """Elements held, padding included."""
        return int(self.indices.size)

    @property
    def padding(self) -> float:
        """Padded elements over stored elements, the paper's %padding."""
        return 1 - self.nnz / self.stored if self.stored else 0.0

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Give ``rows``, ``indices`` and ``values``."""
        return {"rows": self.rows, "indices": self.indices, "values": self.values}

    def to_csr(self) -> Csr:
        """Give the matrix back; O(stored)."""
        indices, values = np.empty(self.nnz, np.int32), np.empty(self.nnz, np.float32)
        row_lengths = np.zeros(self.shape[0], np.int64)
        for bucket in self.buckets:
            span = slice(bucket.first, bucket.first + bucket.count)
            slots = np.arange(bucket.width)
            real = slots < self.lengths[span, None]
            target = (self.starts[span, None] + slots)[real]
            elements = slice(bucket.base, bucket.base + bucket.count * bucket.width)
            indices[target] = self.indices[elements].reshape(bucket.count, bucket.width)[real]
            values[target] = self.values[elements].reshape(bucket.count, bucket.width)[real]
            used = self.lengths[span] > 0
            np.add.at(row_lengths, self.rows[span][used], self.lengths[span][used])
        indptr = np.concatenate([[0], np.cumsum(row_lengths)]).astype(np.int32)
        return Csr(self.shape, indptr, indices, values)


def _widen_tails(whole: Pieces, pieces: Pieces, widths: NDArray[np.int32], max_width: int) -> None:
    long = whole.lengths > max_width
    ends = whole.starts[long].astype(np.int64) + whole.lengths[long]
    of_long = np.isin(pieces.starts.astype(np.int64) + pieces.lengths, ends) & (pieces.lengths < max_width)
    widths[of_long] = max_width


def _lay_out(matrix: Csr, pieces: Pieces, widths: NDArray[np.int32], shared: NDArray[np.bool_]) -> HybFormat:
    # One small key sorts by partition, then wide before narrow (long work starts first), shared before whole rows.
    log_width = np.frexp(widths.astype(np.float64))[1] - 1
    key = (pieces.partitions.astype(np.int32) * 32 + (31 - log_width)) * 2 + ~shared
    order = np.argsort(key.astype(np.int16) if key.size and int(key.max()) < 2**15 else key, kind="stable")
    keys, firsts, counts = np.unique(key[order], return_index=True, return_counts=True)
    buckets: list[Bucket] = []
    slots = base = 0
    for one, count in zip(keys, counts, strict=True):
        width = 1 << (31 - int(one) // 2 % 32)
        filled = -(-int(count) * width // UNIT) * UNIT // width if width < UNIT else int(count)
        buckets.append(Bucket(int(one) // 64, width, not one % 2, slots, filled, base))
        slots += filled
        base += filled * width
    check_stored(f"hyb of width {int(widths.max(initial=1))}", matrix, base, MAX_STORED)
    rows, lengths = np.full(slots, -1, np.int32), np.zeros(slots, np.int32)
    starts = np.zeros(slots, np.int32)
    indices, values = np.zeros(base, np.int32), np.zeros(base, np.float32)
    for bucket, first, count in zip(buckets, firsts, counts, strict=True):
        mine = pieces.take(order[first : first + count])
        span = slice(bucket.first, bucket.first + int(count))
        rows[span], lengths[span], starts[span] = mine.rows, mine.lengths, mine.starts
        _fill(matrix, mine, bucket, indices, values)
    return HybFormat(matrix.shape, rows, indices, values, lengths, starts, tuple(buckets), matrix.nnz)


def _fill(matrix: Csr, pieces: Pieces, bucket: Bucket, indices: NDArray[np.int32], values: NDArray[np.float32]) -> None:
    """Copy the pieces of one bucket, a bounded number of slots at a time."""
    slots = np.arange(bucket.width, dtype=np.int32)
    step = max(1, _CHUNK // bucket.width)
    for begin in range(0, pieces.rows.size, step):
        starts, lengths = pieces.starts[begin : begin + step, None], pieces.lengths[begin : begin + step, None]
        source = starts + np.minimum(slots, lengths - 1)
        elements = slice(bucket.base + begin * bucket.width, bucket.base + begin * bucket.width + source.size)
        np.take(matrix.indices, source.reshape(-1), out=indices[elements], mode="clip")
        np.take(matrix.values, source.reshape(-1), out=values[elements], mode="clip")
        values[elements].reshape(source.shape)[slots >= lengths] = 0
