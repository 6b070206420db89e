"""The compiled loops of one level: its light candidates, the best of them, and the changes that a pick makes.

A light tile is an ELL tile (SpMM) or a one-dimensional tile (SDDMM). Importing this module compiles the loops or reads
them from Numba's cache, as `spmark.impls.formats.loops` does.

Loops share these arguments. The caller makes all buffers; `spmark.impls.stile.state` documents the tuples.

indptr : (I + 1,) int32
    The matrix's offsets of rows; read.
indices : (nnz,) int32
    The matrix's columns; read.
owner : (nnz,) int32
    The tile of each non-zero, -1 while it has none; picks write into it.
row_of : (nnz,) int32
    The row of each non-zero; read.
whole : (I,) int32
    Non-zeros of each row of the undivided matrix; read.
level : `Level`
    Candidates of the level, made by `spmark.impls.stile.levels.make_level`; pricing, ranking and picking write into it.
price : `Price`
    Costs of light tiles; read.
adds : int
    1 where tiles that share a row must add into it atomically.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from spmark.impls.core.loops import compiled, part
from spmark.impls.stile.state import (
    CHOSEN,
    EVERY,
    GROUPS,
    I32,
    I64,
    IN,
    LEVEL,
    LIGHT,
    LONG,
    PRICE,
    REAL,
    WINDOWS,
    close_tile,
    open_tile,
    take,
)


@compiled(types.void, IN, I32, LONG, LONG, I32)
def count_left(indptr: Any, owner: Any, first: Any, stop: Any, left: Any) -> None:
    """Count the non-zeros of rows ``first:stop`` that have no owner, into ``left`` (I,) int32, which is written."""
    for row in range(first, stop):
        free = 0
        for at in range(indptr[row], indptr[row + 1]):
            free += owner[at] < 0
        left[row] = free


@compiled(types.void, IN, I64)
def count_owned(owner: Any, counts: Any) -> None:
    """Count the non-zeros of every tile, into ``counts`` (tiles,) int64, which the caller has filled with zeros."""
    for at in range(owner.size):
        counts[owner[at]] += 1


@compiled(types.void, IN, IN, LONG, types.int64[:, ::1])
def count_pieces(left: Any, whole: Any, widest: Any, counts: Any) -> None:
    """Count the pieces that rows are folded into, by kind of row and length.

    Parameters
    ----------
    left : (I,) int32
        Non-zeros of each row that have no owner.
    whole : (I,) int32
        Non-zeros of each row of the undivided matrix.
    widest : int
        Most non-zeros of a piece.
    counts : (2, widest + 1) int64
        Written by addition; row 0 counts rows that no tile has touched, row 1 the others.
    """
    for row in range(left.size):
        touched = 1 if left[row] < whole[row] else 0
        counts[touched, widest] += left[row] // widest
        counts[touched, left[row] % widest] += left[row] % widest > 0


@compiled(types.void, IN, I32, IN, IN, LONG, LONG, LONG, types.int64[:, ::1], I64, I32)
def place_pieces(  # noqa: PLR0917 (Numba takes no keyword-only arguments)
    indptr: Any,
    owner: Any,
    left: Any,
    whole: Any,
    widest: Any,
    first: Any,
    stop: Any,
    cursor: Any,
    starts: Any,
    items: Any,
) -> None:
    """Write the pieces of rows ``first:stop`` to their places.

    Parameters
    ----------
    indptr, owner, whole
        As the module says; only read.
    left : (I,) int32
        Non-zeros of each row without an owner, of `count_left`.
    widest : int
        Most non-zeros of a piece.
    cursor : (2, widest + 1) int64
        Where the next piece of a kind and length goes; the caller sets it from `count_pieces`, the loop advances it.
    starts : (pieces + 1,) int64
        Where each piece begins in ``items``; read.
    items : (n,) int32
        Written: non-zeros, piece after piece.
    """
    for row in range(first, stop):
        rest = left[row]
        touched = 1 if rest < whole[row] else 0
        at = indptr[row]
        while rest > 0:
            length = min(rest, widest)
            piece = cursor[touched, length]
            cursor[touched, length] = piece + 1
            to = starts[piece]
            for i in range(length):
                while owner[at] >= 0:
                    at += 1
                items[to + i] = at
                at += 1
            rest -= length


@part
def _rows_and_flag(  # noqa: PLR0917
    owner: Any, row_of: Any, whole: Any, items: Any, first: Any, stop: Any, width: Any
) -> Any:
    """Count a tile's non-zeros without an owner and their runs of rows; tell whether another tile has a row, too."""
    gain, runs, run, row, atomic = 0, 0, 0, -1, 0
    for i in range(first, stop):
        at = items[i]
        if owner[at] >= 0:
            continue
        if row_of[at] != row:
            if row >= 0 and (run < whole[row] or run > width):
                atomic = 1
            row, run, runs = row_of[at], 0, runs + 1
        run += 1
        gain += 1
    if row >= 0 and (run < whole[row] or run > width):
        atomic = 1
    return gain, runs, atomic


@part
def _names(  # noqa: PLR0917
    row_of: Any, indices: Any, whole: Any, items: Any, first: Any, stop: Any, width: Any, stamp: Any, tile: Any
) -> Any:
    """Count the rows and columns that a new tile names; tell whether another tile has a row, too. One pass.

    ``stamp`` (K,) int32 holds the last tile that named each column; the loop writes ``tile`` into it.
    """
    columns, rows, begun, row, atomic = 0, 0, first, -1, 0
    for i in range(first, stop):
        at = items[i]
        column = indices[at]
        columns += stamp[column] != tile
        stamp[column] = tile
        if row_of[at] != row:
            if row >= 0 and (i - begun < whole[row] or i - begun > width):
                atomic = 1
            row, begun, rows = row_of[at], i, rows + 1
    if row >= 0 and (stop - begun < whole[row] or stop - begun > width):
        atomic = 1
    return rows, columns, atomic


@compiled(types.void, IN, IN, IN, LEVEL, PRICE, LONG, LONG, LONG, LONG, I32)
def price_tiles(  # noqa: PLR0917
    row_of: Any,
    indices: Any,
    whole: Any,
    level: Any,
    price: Any,
    adds: Any,
    clock: Any,
    first: Any,
    stop: Any,
    stamp: Any,
) -> None:
    """Price candidates ``first:stop``, none of whose non-zeros has an owner yet.

    Parameters
    ----------
    row_of, indices, whole, price, adds
        As the module says.
    level : `Level`
        Its costs, averages and flags are written.
    clock : int
        Picks so far.
    stamp : (K,) int32
        Scratch, which the caller has filled with -1.
    """
    most_rows = price.plain_ms.shape[1] - 1
    items, begins, ends, shapes = level.items, level.first, level.stop, level.shape
    for tile in range(first, stop):
        begin, end, shape = begins[tile], ends[tile], shapes[tile]
        rows, columns, atomic = _names(row_of, indices, whole, items, begin, end, price.width[shape], stamp, tile)
        level.plain_ms[tile] = price.plain_ms[shape, min(rows, most_rows), columns]
        level.atomic_ms[tile] = price.atomic_ms[shape, min(rows, most_rows), columns]
        level.atomic[tile] = atomic & adds
        cost = level.atomic_ms[tile] if level.atomic[tile] else level.plain_ms[tile]
        level.average[tile] = cost / (end - begin) if end > begin else np.inf
        level.seen[tile] = clock


@part
def _rank(owner: Any, row_of: Any, whole: Any, level: Any, price: Any, adds: Any, clock: Any, tile: Any) -> None:  # noqa: PLR0917
    """Compute a candidate's average again; a tile that once had to add atomically keeps that flag."""
    level.seen[tile] = clock
    first, stop, width = level.first[tile], level.stop[tile], price.width[level.shape[tile]]
    gain, _, atomic = _rows_and_flag(owner, row_of, whole, level.items, first, stop, width)
    level.atomic[tile] |= atomic & adds
    cost = level.atomic_ms[tile] if level.atomic[tile] else level.plain_ms[tile]
    level.average[tile] = cost / gain if gain > 0 else np.inf


@compiled(types.Tuple((REAL, LONG)), I32, IN, IN, LEVEL, PRICE, LONG, LONG)
def best_light(owner: Any, row_of: Any, whole: Any, level: Any, price: Any, adds: Any, clock: Any) -> Any:  # noqa: PLR0917
    """Find the candidate of a level that costs least for each new non-zero; -1 where all non-zeros have owners.

    Candidates only lose non-zeros, so an old average is a bound: a candidate is ranked again only where it could win.
    """
    least = -1
    for tile in range(level.first.size):
        if level.average[tile] < np.inf and (least < 0 or level.average[tile] < level.average[least]):
            least = tile
    if least < 0:
        return np.inf, -1
    if level.seen[least] < clock:
        _rank(owner, row_of, whole, level, price, adds, clock, least)
    bound, average, best = level.average[least], np.inf, -1
    for tile in range(level.first.size):
        if level.average[tile] > bound:
            continue
        if level.seen[tile] < clock:
            _rank(owner, row_of, whole, level, price, adds, clock, tile)
        if level.average[tile] < average:
            average, best = level.average[tile], tile
            bound = average
    return average, best


@compiled(types.void, I32, IN, IN, LEVEL, PRICE, LONG, WINDOWS, GROUPS, CHOSEN, REAL, LONG, LONG, LONG)
def pick_lights(  # noqa: PLR0917
    owner: Any,
    row_of: Any,
    whole: Any,
    level: Any,
    price: Any,
    adds: Any,
    windows: Any,
    groups: Any,
    chosen: Any,
    limit: Any,
    shape: Any,
    first: Any,
    stop: Any,
) -> None:
    """Pick those of the candidates ``first:stop`` of a level that cost no more than ``limit`` for each new non-zero.

    Parameters
    ----------
    owner, row_of, whole, level, price, adds
        As the module says.
    windows, groups, chosen : `Windows`, `Groups`, `Chosen`
        Written: the picks' non-zeros leave the windows and groups, and the new tiles enter ``chosen``.
    limit : float
        Milliseconds for each new non-zero.
    shape : int
        Shape of the picks, or `EVERY`.
    """
    for tile in range(first, stop):
        if (shape != EVERY and level.shape[tile] != shape) or not level.average[tile] <= limit:
            continue
        if level.seen[tile] < chosen.tally[3]:
            _rank(owner, row_of, whole, level, price, adds, chosen.tally[3], tile)
        if not level.average[tile] <= limit or level.average[tile] == np.inf:
            continue
        cost = level.atomic_ms[tile] if level.atomic[tile] else level.plain_ms[tile]
        made = open_tile(chosen, LIGHT, level.shape[tile], -1, cost)
        take(owner, row_of, windows, groups, chosen, level.items, level.first[tile], level.stop[tile], made)
        close_tile(chosen, windows, made)
        level.average[tile] = np.inf
