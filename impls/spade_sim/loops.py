"""The compiled loops of the simulator: the accesses of all PEs by turns, and the cache behind them.

Importing this module compiles the loops, or reads kept machine code, as `spmark.impls.formats.loops` does. The loops
release Python's lock, so that threads can run them side by side. The caller allocates every buffer.

An access is a column of an array (3, n) int32: the item that is wanted, what kind of access it is, and the PE.
"""

from __future__ import annotations

from typing import Any, Final

from numba import types

from spmark.impls.core.loops import BYTES_IN, IN, LONG, LONGS_IN, compiled

# Kinds of accesses. The first three also number the operands.
SPARSE: Final = 0
"""The stream of A is read."""
ROWS: Final = 1
"""A segment of C or X is loaded: a row of A names it."""
COLUMNS: Final = 2
"""A segment of B or Y is loaded: a column of A names it."""
STORES: Final = 3
"""A segment of C is stored."""
KINDS: Final = 4

# What begins with a non-zero.
OPENS_ROW: Final = 1
"""A row of a tile."""
BEGINS_SUM: Final = 2
"""A row of A."""

_ITEM, _KIND, _PE = 0, 1, 2
_OLDER, _NEWER = 0, 1
_HELD, _DIRTY = 0, 1

_TRACE_IN = types.Array(types.int32, 2, "A", readonly=True)
_OUT, _OUT_2D = types.int32[::1], types.int32[:, ::1]


@compiled(
    LONG,
    *(IN, IN, BYTES_IN, LONGS_IN),
    *(types.UniTuple(LONG, 6), types.boolean),
    *(types.int64[:, ::1], _OUT_2D),
)
def take_turns(  # noqa: PLR0917 (Numba takes no keyword-only arguments)
    rows: Any,
    columns: Any,
    opens: Any,
    begins: Any,
    sizes: Any,
    sums: Any,
    cursors: Any,
    accesses: Any,
) -> Any:
    """Write down what the PEs access, until they have done their work of a stage or ``accesses`` is full.

    The PEs take turns; in a turn a PE does one non-zero for one slice of the dense width. A PE keeps the segment of C
    or X in registers over the non-zeros of a row in a tile. Items are segments: for every slice those of B or Y, then
    those of C or X; those of the stream of A come last. O(accesses + longest work of a PE * PEs).

    Parameters
    ----------
    rows, columns : (nnz,) int32
        Row and column of every non-zero, PE after PE.
    opens : (nnz + 1,) uint8
        What begins with a non-zero: ``OPENS_ROW`` and ``BEGINS_SUM``, added up. A row opens at the end as well.
    begins : (PEs + 1,) int64
        First non-zero of every PE.
    sizes : six int
        I and K; the slice after the last one of the stage; the first item of the stream of A, negative where the stream
        skips the cache and is not written down; bytes of an entry in the stream of A, which belongs to the segment of
        its first byte, and of a segment.
    sums : bool
        Rows of A name rows of C, which are loaded, summed and stored; else rows of X, which are loaded.
    cursors : (2, PEs) int64
        The next non-zero and the slice of every PE; moved on. A PE with the slice ``end_slice`` has no work.
    accesses : (3, n) int32
        Written; n is at least 4 * PEs.

    Returns
    -------
    int
        Accesses that were written; 0 where no PE has work.
    """
    num_rows, num_cols, end_slice, stream, entry_bytes, segment_bytes = sizes
    pes, count, busy = cursors.shape[1], 0, True
    while busy and count + KINDS * pes <= accesses.shape[1]:
        busy = False
        for pe in range(pes):
            at, number = cursors[0, pe], cursors[1, pe]
            if number == end_slice:
                continue
            busy = True
            if stream >= 0:
                item = at * entry_bytes // segment_bytes
                if at == begins[pe] or item != (at - 1) * entry_bytes // segment_bytes:
                    accesses[_ITEM, count], accesses[_KIND, count], accesses[_PE, count] = stream + item, SPARSE, pe
                    count += 1
            first = number * (num_rows + num_cols)
            row_item = first + num_cols + rows[at]
            if opens[at] & OPENS_ROW and not (sums and opens[at] & BEGINS_SUM):  # a sum that begins is not loaded
                accesses[_ITEM, count], accesses[_KIND, count], accesses[_PE, count] = row_item, ROWS, pe
                count += 1
            accesses[_ITEM, count], accesses[_KIND, count], accesses[_PE, count] = first + columns[at], COLUMNS, pe
            count += 1
            if sums and opens[at + 1] & OPENS_ROW:
                accesses[_ITEM, count], accesses[_KIND, count], accesses[_PE, count] = row_item, STORES, pe
                count += 1
            if at + 1 < begins[pe + 1]:
                cursors[0, pe] = at + 1
            else:
                cursors[0, pe], cursors[1, pe] = begins[pe], number + 1
    return count


@compiled(LONG, _TRACE_IN, BYTES_IN, _OUT, _OUT_2D, _OUT_2D, types.int64[:, :, ::1])
def answer(  # noqa: PLR0917 (Numba takes no keyword-only arguments)
    accesses: Any, cached: Any, slot_of: Any, ring: Any, held: Any, counts: Any
) -> Any:
    """Answer accesses out of a fully associative cache that replaces what was used longest ago, or out of DRAM.

    Slots form a ring in the order of their last use, linked both ways, and a table leads from items to slots: an access
    takes O(1) time. A store makes the whole segment anew, so that a store that misses reads nothing.

    Parameters
    ----------
    accesses : (3, n) int32
        In their order.
    cached : (3,) uint8
        1 where the stream of A, the operand of A's rows and the operand of A's columns pass through the cache. Zeros
        where the cache has no slots.
    slot_of : (items,) int32
        Slot of every item, -1 where the item is not in the cache.
    ring : (2, slots + 1) int32
        The next older and the next newer slot of every slot. The last place is the ring's end: the newest slot is its
        next older one, and the oldest slot is its next newer one.
    held : (2, slots) int32
        Item of every slot, -1 in an empty slot, and whether the item must be written to DRAM.
    counts : (PEs, KINDS, 2) int64
        Added to: accesses of every PE by their kind that missed, and that hit.

    Returns
    -------
    int
        Segments that were written to DRAM.
    """
    end, written = ring.shape[1] - 1, 0
    for number in range(accesses.shape[1]):
        item, kind = accesses[_ITEM, number], accesses[_KIND, number]
        operand = ROWS if kind == STORES else kind
        if not cached[operand]:
            counts[accesses[_PE, number], kind, 0] += 1
            written += kind == STORES
            continue

        slot = slot_of[item]
        counts[accesses[_PE, number], kind, 1 if slot >= 0 else 0] += 1
        if slot < 0:
            slot = ring[_NEWER, end]
            leaves = held[_HELD, slot]
            if leaves >= 0:
                slot_of[leaves] = -1
                written += held[_DIRTY, slot]
            held[_HELD, slot], held[_DIRTY, slot], slot_of[item] = item, 0, slot
        if kind == STORES:
            held[_DIRTY, slot] = 1

        older, newer = ring[_OLDER, slot], ring[_NEWER, slot]
        ring[_OLDER, newer], ring[_NEWER, older] = older, newer
        newest = ring[_OLDER, end]
        ring[_OLDER, slot], ring[_NEWER, slot] = newest, end
        ring[_NEWER, newest], ring[_OLDER, end] = slot, slot
    return written
