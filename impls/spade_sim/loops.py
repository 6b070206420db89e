"""The compiled loop of the simulator: the accesses of all PEs by turns, and the cache behind them.

Importing this module compiles the loop, or reads kept machine code, as `spmark.impls.formats.loops` does. The loop
releases Python's lock, so that threads can run it side by side. The caller allocates every buffer.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import types

from spmark.impls.core.loops import BYTES_IN, IN, LONG, LONGS_IN, compiled

# Kinds of accesses, in the order in which a non-zero makes them. The first three also number the operands.
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

_OLDER, _NEWER = 0, 1
_HELD, _DIRTY = 0, 1

_LINES, _TABLE = types.int32[::1], types.int32[:, ::1]


@compiled(
    LONG,
    *(IN, IN, BYTES_IN, LONGS_IN, types.UniTuple(LONG, 7), types.boolean),
    *(BYTES_IN, _LINES, _TABLE, _TABLE, types.int64[:, :, ::1]),
)
def run_stage(  # noqa: PLR0917 (Numba takes no keyword-only arguments)
    rows: Any,
    columns: Any,
    opens: Any,
    begins: Any,
    sizes: Any,
    sums: Any,
    cached: Any,
    slot_of: Any,
    ring: Any,
    held: Any,
    counts: Any,
) -> Any:
    """Let the PEs do their work of a stage, and answer what they access out of the cache or out of DRAM.

    The PEs take turns; in a turn a PE does one non-zero for one slice of the dense width. A PE keeps the segment of C
    or X in registers over the non-zeros of a row in a tile. Items are segments: for every slice those of B or Y, then
    those of C or X; those of the stream of A come last. O(accesses + longest work of a PE * PEs).

    The cache is fully associative and replaces what was used longest ago. Slots form a ring in the order of their last
    use, linked both ways, and a table leads from items to slots: an access takes O(1) time. A store makes the whole
    segment anew, so that a store that misses reads nothing.

    Parameters
    ----------
    rows, columns : (nnz,) int32
        Row and column of every non-zero, PE after PE.
    opens : (nnz + 1,) uint8
        What begins with a non-zero: ``OPENS_ROW`` and ``BEGINS_SUM``, added up. A row opens at the end as well.
    begins : (PEs + 1,) int64
        First non-zero of every PE.
    sizes : seven int
        I and K; the first slice of the stage and the one after its last; the first item of the stream of A, negative
        where the stream skips the cache; bytes of an entry in the stream of A, which belongs to the segment of its
        first byte, and of a segment.
    sums : bool
        Rows of A name rows of C, which are loaded, summed and stored; else rows of X, which are loaded.
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
    num_rows, num_cols, first_slice, end_slice, stream, entry_bytes, segment_bytes = sizes
    pes, end, written, busy = begins.size - 1, ring.shape[1] - 1, 0, True
    at_of, slice_of = begins.copy(), np.full(pes, first_slice)
    while busy:
        busy = False
        for pe in range(pes):
            at, number = at_of[pe], slice_of[pe]
            if number == end_slice or begins[pe] == begins[pe + 1]:
                continue
            busy = True
            first, of_stream = number * (num_rows + num_cols), at * entry_bytes // segment_bytes
            reads_on = at == begins[pe] or of_stream != (at - 1) * entry_bytes // segment_bytes
            row, opens_row = first + num_cols + rows[at], opens[at] & OPENS_ROW
            loads = opens_row and not (sums and opens[at] & BEGINS_SUM)  # a sum that begins is not loaded
            items = (
                stream + of_stream if stream >= 0 and reads_on else -1,
                row if loads else -1,
                first + columns[at],
                row if sums and opens[at + 1] & OPENS_ROW else -1,
            )
            at_of[pe] += 1
            if at_of[pe] == begins[pe + 1]:
                at_of[pe], slice_of[pe] = begins[pe], number + 1

            for kind in range(KINDS):
                item = items[kind]
                if item < 0:
                    continue
                if not cached[ROWS if kind == STORES else kind]:
                    counts[pe, kind, 0] += 1
                    written += kind == STORES
                    continue
                slot = slot_of[item]
                counts[pe, kind, int(slot >= 0)] += 1
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
