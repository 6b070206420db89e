"""The compiled loops that lay out tiles.

Importing this module compiles the loops, or reads kept machine code, as `spmark.impls.formats.loops` does. The caller
(`spmark.impls.formats.tile_layout`) allocates every buffer.
"""

from __future__ import annotations

from typing import Any

from numba import types

from spmark.impls.core.loops import compiled

_LONG = types.int64
_IN = types.Array(types.int32, 1, "C", readonly=True)
_LONG_IN = types.Array(types.int64, 1, "C", readonly=True)
_VALUES_IN = types.Array(types.float32, 1, "C", readonly=True)
_TABLE = types.Array(types.int32, 2, "C", readonly=True)
_I32, _I64, _F32 = types.int32[::1], types.int64[::1], types.float32[::1]


@compiled(types.void, _IN, _IN, _I64, _I32)
def sort_items(owner: Any, bins: Any, cursor: Any, items: Any) -> None:
    """Sort non-zeros by the bin of their tile, in CSR order within a bin.

    Parameters
    ----------
    owner : (nnz,) int32
        Tile of each non-zero.
    bins : (T,) int32
        Bin of each tile.
    cursor : (bins,) int64
        Place in ``items`` where each bin begins; the loop moves it to the bin's end.
    items : (nnz,) int32
        Written: the non-zeros in their new order.
    """
    for at in range(owner.size):
        bin_ = bins[owner[at]]
        items[cursor[bin_]] = at
        cursor[bin_] += 1


@compiled(types.void, _IN, _IN, _LONG_IN, _LONG, _LONG, _I32, _I64)
def count_panel_columns(  # noqa: PLR0917 (Numba takes no keyword-only arguments)
    indices: Any, items: Any, ptr: Any, first: Any, stop: Any, stamp: Any, columns: Any
) -> None:
    """Count the distinct columns of panels ``first:stop``.

    Parameters
    ----------
    indices : (nnz,) int32
        Column of each non-zero of A.
    items, ptr : (n,) int32, (panels + 1,) int64
        Non-zeros of each panel: panel p has ``items[ptr[p]:ptr[p + 1]]``.
    first, stop : int
    stamp : (K,) int32
        Scratch: -1 before the call, afterwards the last panel that has each column.
    columns : (panels,) int64
        Written: the count of each panel ``first:stop``.
    """
    for panel in range(first, stop):
        count = 0
        for i in range(ptr[panel], ptr[panel + 1]):
            column = indices[items[i]]
            if stamp[column] != panel:
                stamp[column] = panel
                count += 1
        columns[panel] = count


@compiled(
    _LONG,
    *(_IN, _IN, _VALUES_IN, _IN, _LONG_IN, _TABLE, _LONG_IN, _LONG, _LONG, _LONG),
    *(_I32, _I32, _I32, _I32, _F32, _I64, types.boolean[:, ::1]),
)
def fill_panels(  # noqa: PLR0917
    row_of: Any,
    indices: Any,
    values: Any,
    items: Any,
    ptr: Any,
    rows: Any,
    group_ptr: Any,
    group: Any,
    first: Any,
    stop: Any,
    stamp: Any,
    place: Any,
    place_of_row: Any,
    out_indices: Any,
    out_values: Any,
    out_places: Any,
    out_used: Any,
) -> Any:
    """Lay out panels ``first:stop``: their columns, rising, in groups of ``group``, and the place of each non-zero.

    Parameters
    ----------
    row_of, indices, values : (nnz,) int32, int32, float32
        Row, column and value of each non-zero of A.
    items, ptr : (n,) int32, (panels + 1,) int64
        Non-zeros of each panel: panel p has ``items[ptr[p]:ptr[p + 1]]``.
    rows : (panels, R) int32
        Rows of each panel, -1 where it has fewer.
    group_ptr : (panels + 1,) int64
        Groups of each panel: panel p has groups ``group_ptr[p]:group_ptr[p + 1]``.
    group : int
        Columns of a group.
    first, stop : int
    stamp : (K,) int32
        Scratch: -1 before the call, afterwards the last panel that has each column.
    place : (K,) int32
        Scratch of any content: place of each column of the current panel.
    place_of_row : (I,) int32
        Scratch: -1 before the call, afterwards the place of each row in the last panel that has it.
    out_indices : (groups * group,) int32
        Written: the columns of each group; a panel's last column fills up its last group.
    out_values : (groups * R * group,) float32
        Written: the elements, row-major within a group; zeros before the call.
    out_places : (n,) int64
        Written: the place in ``out_values`` of each of ``items``.
    out_used : (panels, R) bool
        Written: whether each row of a panel has a non-zero; False before the call.

    Returns
    -------
    int
        A non-zero whose row is not in its panel, or -1.
    """
    height = rows.shape[1]
    for panel in range(first, stop):
        for r in range(height):
            if rows[panel, r] >= 0:
                place_of_row[rows[panel, r]] = r
        base = group_ptr[panel] * group
        count = 0
        for i in range(ptr[panel], ptr[panel + 1]):
            column = indices[items[i]]
            if stamp[column] != panel:
                stamp[column] = panel
                out_indices[base + count] = column
                count += 1
        out_indices[base : base + count].sort()
        for s in range(count):
            place[out_indices[base + s]] = s
        for s in range(count, (group_ptr[panel + 1] - group_ptr[panel]) * group):
            out_indices[base + s] = out_indices[base + count - 1]
        for i in range(ptr[panel], ptr[panel + 1]):
            at = items[i]
            r = place_of_row[row_of[at]]
            if r < 0 or r >= height or rows[panel, r] != row_of[at]:
                return at
            s = place[indices[at]]
            where = (group_ptr[panel] + s // group) * (height * group) + r * group + s % group
            out_places[i] = where
            out_values[where] = values[at]
            out_used[panel, r] = True
    return -1


@compiled(types.void, _IN, _IN, _LONG_IN, _IN, _LONG, _LONG, _I64)
def count_tile_rows(  # noqa: PLR0917
    row_of: Any, items: Any, ptr: Any, widths: Any, first: Any, stop: Any, counts: Any
) -> None:
    """Count the ELL rows of tiles ``first:stop``: a new one begins where the row changes or the width is full.

    Parameters
    ----------
    row_of : (nnz,) int32
        Row of each non-zero of A.
    items, ptr : (n,) int32, (tiles + 1,) int64
        Non-zeros of each tile: tile t has ``items[ptr[t]:ptr[t + 1]]``.
    widths : (tiles,) int32
        Most non-zeros of an ELL row of each tile.
    first, stop : int
    counts : (tiles,) int64
        Written: the ELL rows of each tile ``first:stop``.
    """
    for tile in range(first, stop):
        count, row, length = 0, -1, 0
        for i in range(ptr[tile], ptr[tile + 1]):
            if row_of[items[i]] != row or length == widths[tile]:
                row, length = row_of[items[i]], 0
                count += 1
            length += 1
        counts[tile] = count


@compiled(types.void, _IN, _IN, _LONG_IN, _IN, _LONG_IN, _LONG, _LONG, _I32, _I64)
def cut_tile_rows(  # noqa: PLR0917
    row_of: Any,
    items: Any,
    ptr: Any,
    widths: Any,
    row_ptr: Any,
    first: Any,
    stop: Any,
    rows: Any,
    starts: Any,
) -> None:
    """Cut tiles ``first:stop`` into the ELL rows that `count_tile_rows` counts.

    Parameters
    ----------
    row_of, items, ptr, widths, first, stop
        As in `count_tile_rows`.
    row_ptr : (tiles + 1,) int64
        ELL rows of each tile: tile t has ``row_ptr[t]:row_ptr[t + 1]``.
    rows : (ELL rows,) int32
        Written: the row of A of each ELL row.
    starts : (ELL rows + 1,) int64
        Written, except the last entry: the place in ``items`` where each ELL row begins.
    """
    for tile in range(first, stop):
        at, row, length = row_ptr[tile], -1, 0
        for i in range(ptr[tile], ptr[tile + 1]):
            if row_of[items[i]] != row or length == widths[tile]:
                row, length = row_of[items[i]], 0
                rows[at] = row
                starts[at] = i
                at += 1
            length += 1
