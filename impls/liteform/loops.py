"""The compiled loops of composing: votes of trees, and counts of what each column partition holds.

Importing this module compiles the loops, or reads their compiled code from Numba's cache, as
`spmark.impls.formats.loops` does. The loops release Python's lock, so that threads run them side by side.

The caller allocates every buffer. Buffers that a loop adds to or marks are zeros before the first call.
"""

from __future__ import annotations

from typing import Any, Final

from numba import types

from spmark.impls.core.loops import compiled, inlined

MAX_POWER: Final = 10
"""Binary logarithm of the widest bucket, 1,024: the paper's limit, the threads of a block."""
_LONG = types.int64
_IN = types.Array(types.int32, 1, "C", readonly=True)
_SHORT_IN = types.Array(types.int16, 1, "C", readonly=True)
_REAL_IN = types.Array(types.float64, 1, "C", readonly=True)
_REALS_IN = types.Array(types.float64, 2, "C", readonly=True)
_COUNTS = types.int64[:, ::1]
_MARKS = types.Array(types.uint16, 1, "C", readonly=True)


@inlined
def _bucket_of(length: Any, thirds: Any) -> Any:
    """Give the slots of the narrowest bucket that holds ``length`` non-zeros, none for none."""
    slots = 1 if length > 0 else 0
    while slots < length:
        slots *= 2
    return 3 * slots // 4 if thirds and slots >= 32 and 4 * length <= 3 * slots else slots


@compiled(types.void, _IN, _SHORT_IN, _REAL_IN, _IN, _IN, _REALS_IN, types.float32[::1], types.float64[::1])
def add_votes(  # noqa: PLR0917 (Numba takes no keyword-only arguments)
    roots: Any, feature: Any, threshold: Any, left: Any, right: Any, leaves: Any, sample: Any, votes: Any
) -> None:
    """Add the class shares of the leaf that ``sample`` falls into, tree after tree.

    Parameters
    ----------
    roots : (trees,) int32
        First node of each tree. This and the next five are the arrays of `spmark.impls.liteform.forest.Forest`.
    feature : (nodes,) int16
        Feature that a node looks at, -1 in a leaf.
    threshold : (nodes,) float64
        Samples up to this value go left.
    left, right : (nodes,) int32
        Children of a node; ``left`` of a leaf is its row of ``leaves``.
    leaves : (m, classes) float64
        Share of each class in each leaf.
    sample : (f,) float32
        Standardised features of one matrix.
    votes : (classes,) float64
        Added to: the sum of the shares over the trees.
    """
    for tree in range(roots.size):
        node = roots[tree]
        while feature[node] >= 0:
            node = left[node] if sample[feature[node]] <= threshold[node] else right[node]
        for label in range(votes.size):
            votes[label] += leaves[left[node], label]


@compiled(types.void, _IN, _IN, _LONG, types.boolean, _LONG, _LONG, types.int64[:, :, ::1], types.uint16[::1])
def count_rows(  # noqa: PLR0917
    indptr: Any, indices: Any, width: Any, thirds: Any, first: Any, stop: Any, counts: Any, marks: Any
) -> None:
    """Count the pieces of rows ``first:stop`` by partition and power of two, and mark the columns that they touch.

    A piece is the part of one row in one partition. `spmark.impls.liteform.cost.count` gives each task of rows buffers
    of its own and adds them up.

    Parameters
    ----------
    indptr : (I + 1,) int32
        Where each row of A begins in ``indices``.
    indices : (nnz,) int32
        Columns of A in CSR, increasing within a row.
    width : int
        Columns of a partition.
    first, stop : int
        Rows of this task.
    thirds : bool
        Whether buckets of 24, 48, 96, ... slots stand between the powers of two.
    counts : (6, partitions, MAX_POWER + 1) int64
        Added to, in the order of `spmark.impls.liteform.cost.BucketCounts`:

        - pieces whose length needs 2^power slots; the last power counts longer pieces as well;
        - slots of these pieces; longer pieces are left out;
        - ELL rows of the bucket 2^power where it is the widest, ceil(length / 2^power) for every piece of more than
          2^(power - 1) non-zeros;
        - pieces longer than 2^power, and their ELL rows and slots where the rest of each goes where it fits.
    marks : (K,) or (0,) uint16
        Bit p of a column is set where a piece of power p touches it; with (0,) no column is marked.
    """
    rows, slots, folded, longer, split, split_slots = counts[0], counts[1], counts[2], counts[3], counts[4], counts[5]
    for row in range(first, stop):
        at, end = indptr[row], indptr[row + 1]
        while at < end:
            partition = indices[at] // width
            limit = (partition + 1) * width
            begin = at
            if indices[end - 1] < limit:
                at = end
            else:
                while indices[at] < limit:
                    at += 1
            length = at - begin
            power = 0
            while (1 << power) < length:
                power += 1
            kept = min(power, MAX_POWER)
            rows[partition, kept] += 1
            slots[partition, kept] += _bucket_of(length, thirds) if power == kept else 0
            for cap in range(kept + 1):
                folded[partition, cap] += (length + (1 << cap) - 1) >> cap
            for cap in range(min(power, MAX_POWER + 1)):
                full, rest = length >> cap, length & ((1 << cap) - 1)
                longer[partition, cap] += 1
                split[partition, cap] += full + (1 if rest > 0 else 0)
                split_slots[partition, cap] += (full << cap) + _bucket_of(rest, thirds)
            if marks.size > 0:
                bit = 1 << kept
                for position in range(begin, at):
                    marks[indices[position]] |= bit


@compiled(types.void, _MARKS, _LONG, _COUNTS, _COUNTS)
def count_columns(marks: Any, width: Any, own: Any, above: Any) -> None:
    """Count the distinct columns of each partition by power.

    Parameters
    ----------
    marks : (K,) uint16
        Bits that `count_rows` has set, those of all tasks together.
    width : int
        Columns of a partition.
    own : (partitions, MAX_POWER + 1) int64
        Added to: columns with bit p.
    above : (partitions, MAX_POWER + 1) int64
        Added to: columns with bit p or a higher bit.
    """
    for column in range(marks.size):
        mark = marks[column]
        for power in range(MAX_POWER + 1):
            own[column // width, power] += mark >> power & 1
            above[column // width, power] += mark >> power > 0
