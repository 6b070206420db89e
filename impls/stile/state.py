"""The state of a search that compiled loops share, and how a non-zero changes its tile.

A non-zero is a position in the matrix's CSR order throughout. ``owner`` (nnz,) int32 is the tile of each non-zero, -1
while it has none. At the end every non-zero has one owner, so that the sum of the tiles is the matrix.

`spmark.impls.stile.windows` makes windows and groups, `spmark.impls.stile.levels` levels, `spmark.impls.stile.prices`
prices and `spmark.impls.stile.greedy` the chosen tiles; the compiled loops write into all but the prices.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import types

from spmark.impls.core.loops import part

GROUP = 16
"""Columns by which block tiles are placed and grow."""
WHOLE = -1
"""In place of a tile's shape: all block tiles of its window."""
EVERY, NONE = -1, -2
"""In place of a shape: a local search takes tiles of every shape, or none."""


class Nonzeros(NamedTuple):
    """A matrix by its non-zeros; loops write into ``owner`` alone."""

    indptr: Any
    """(I + 1,) int32 offsets of rows."""
    indices: Any
    """(nnz,) int32 columns."""
    row_of: Any
    """(nnz,) int32 rows."""
    whole: Any
    """(I,) int32 non-zeros of each row of the undivided matrix."""
    owner: Any
    """(nnz,) int32 tile of each non-zero, -1 while it has none."""


class Windows(NamedTuple):
    """Windows of consecutive rows of the row order, of one height or two; both heights cover every row."""

    of: Any
    """(I, heights) int32 window of each row."""
    row_ptr: Any
    """(W + 1,) int64 into ``rows``."""
    rows: Any
    """(heights I,) int32 rows of A by window."""
    height: Any
    """(W,) int32 number of its height."""
    total: Any
    """(W,) int64 non-zeros."""
    left: Any
    """(W,) int64 non-zeros without an owner."""
    whole_ms: Any
    """(W,) float64 cost of the cheapest tiles that hold the window whole; infinite where they are not a candidate."""
    paid_ms: Any
    """(W,) float64 cost of the tiles that lie in the window alone, which holding the window whole saves."""


class Groups(NamedTuple):
    """Every window's columns in the order of their counts, 16 to a group, and the non-zeros left in each group."""

    of: Any
    """(nnz, heights) int32 group of each non-zero, -1 for a non-zero that had an owner when groups were made."""
    ptr: Any
    """(W + 1,) int64 groups by window."""
    members: Any
    """(heights nnz,) int32 non-zeros by group."""
    member_ptr: Any
    """(G + 1,) int64 into ``members``."""
    left: Any
    """(G,) int32 non-zeros without an owner."""
    average: Any
    """(W,) float64 least cost for each new non-zero of a single tile, or a bound below it where ``stale``."""
    at: Any
    """(W,) int32 first group of that tile, within the window."""
    shape: Any
    """(W,) int32 shape of that tile."""
    stale: Any
    """(W,) uint8 1 where ``average`` is only a bound."""


class Level(NamedTuple):
    """Light candidates of a level, made of the non-zeros left then; candidates of one shape do not overlap."""

    items: Any
    """(n,) int32 non-zeros, tile after tile."""
    first: Any
    """(T,) int64 into ``items``."""
    stop: Any
    """(T,) int64 likewise, the end."""
    shape: Any
    """(T,) int32 shape, as of `Price`."""
    cost_ms: Any
    """(T,) float64 cost: that with atomic additions once the tile has been seen to need them."""
    atomic_ms: Any
    """(T,) float64 cost with atomic additions."""
    average: Any
    """(T,) float64 least cost for each new non-zero, or a bound below it where a pick came after ``seen``."""
    seen: Any
    """(T,) int64 picks so far when ``average`` was last computed."""


class Chosen(NamedTuple):
    """Tiles that were picked, withdrawn ones among them; there is room for a tile of each non-zero (``capacity``)."""

    shape: Any
    """(capacity,) int32 groups of a single block less one, `WHOLE`, or the shape of a light tile."""
    window: Any
    """(capacity,) int32 window of a block tile, -1 for light tiles (ELL or one-dimensional)."""
    cost_ms: Any
    """(capacity,) float64 milliseconds of a multiprocessor."""
    owned: Any
    """(capacity,) int64 non-zeros; a tile without any is withdrawn."""
    home: Any
    """(capacity, heights) int32 the one window that the tile lay in when it was picked; -1 where there were several."""
    tally: Any
    """(3,) int64: tiles picked (a clock), tiles withdrawn, non-zeros without an owner."""


class Price(NamedTuple):
    """Costs of light tiles, by shape and by how many rows and columns they name."""

    height: Any
    """(S,) int64 rows."""
    width: Any
    """(S,) int64 non-zeros of a row."""
    plain_ms: Any
    """(S, rows + 1, columns + 1) float64 milliseconds without atomic additions; (S, 1, columns + 1) where rows make no
    difference. Costs at 0 rows or columns are 0: no tile names so few."""
    atomic_ms: Any
    """Milliseconds with atomic additions, in the shape of ``plain_ms``."""


class State(NamedTuple):
    """Everything that a pick reads and writes."""

    nonzeros: Any
    """`Nonzeros`."""
    windows: Any
    """`Windows`."""
    groups: Any
    """`Groups`."""
    chosen: Any
    """`Chosen`."""
    costs: Any
    """(heights, shapes) float64 milliseconds of a multiprocessor for a single block tile; read."""
    price: Any
    """`Price`; read."""


I32, I32S, I64, I64S = types.int32[::1], types.int32[:, ::1], types.int64[::1], types.int64[:, ::1]
U8, F64 = types.uint8[::1], types.float64[::1]
IN, LONG_IN = (types.Array(kind, 1, "C", readonly=True) for kind in (types.int32, types.int64))
LONG, REAL = types.int64, types.float64
NONZEROS = types.NamedTuple((IN, IN, IN, IN, I32), Nonzeros)
WINDOWS = types.NamedTuple((I32S, I64, I32, I32, I64, I64, F64, F64), Windows)
GROUPS = types.NamedTuple((I32S, I64, I32, I64, I32, F64, I32, I32, U8), Groups)
LEVEL = types.NamedTuple((I32, I64, I64, I32, F64, F64, F64, I64), Level)
CHOSEN = types.NamedTuple((I32, I32, F64, I64, I32S, I64), Chosen)
_TABLE = types.float64[:, :, ::1]
PRICE = types.NamedTuple((I64, I64, _TABLE, _TABLE), Price)
STATE = types.NamedTuple((NONZEROS, WINDOWS, GROUPS, CHOSEN, types.float64[:, ::1], PRICE), State)


@part
def drop(chosen: Any, windows: Any, tile: Any) -> None:
    """Withdraw a tile that has no non-zeros left."""
    chosen.tally[1] += 1
    for a in range(chosen.home.shape[1]):
        window = chosen.home[tile, a]
        if window >= 0:
            windows.paid_ms[window] -= chosen.cost_ms[tile]


@part
def cover(at: Any, row: Any, of: Any, left: Any, group_of: Any, group_left: Any, stale: Any) -> None:  # noqa: PLR0917
    """Count a non-zero that had no tile as covered, in its windows and their groups.

    Callers pass a tuple's arrays one by one (``of``, ``left`` of `Windows`; ``group_of``, ``group_left``, ``stale`` of
    `Groups`): an access through the tuple counts references.
    """
    for a in range(of.shape[1]):
        window = of[row, a]
        left[window] -= 1
        if group_of[at, a] >= 0:
            group_left[group_of[at, a]] -= 1
        stale[window] = 1


@part
def lie_in(home: Any, tile: Any, row: Any, of: Any, begins: Any) -> None:
    """Note in ``home`` that a tile has non-zeros of a row: the row's windows, or -1 after rows of several windows."""
    for a in range(of.shape[1]):
        if begins:
            home[tile, a] = of[row, a]
        elif home[tile, a] != of[row, a]:
            home[tile, a] = -1


@part
def take(state: Any, items: Any, first: Any, stop: Any, tile: Any) -> None:
    """Give a new tile those of ``items[first:stop]`` (non-zeros) that have no owner."""
    owner, row_of, home = state.nonzeros.owner, state.nonzeros.row_of, state.chosen.home
    of, left = state.windows.of, state.windows.left
    group_of, group_left, stale = state.groups.of, state.groups.left, state.groups.stale
    taken = 0
    for i in range(first, stop):
        at = items[i]
        if owner[at] >= 0:
            continue
        row = row_of[at]
        cover(at, row, of, left, group_of, group_left, stale)
        lie_in(home, tile, row, of, taken == 0)
        owner[at] = tile
        taken += 1
    state.chosen.owned[tile] += taken
    state.chosen.tally[2] -= taken


@part
def open_tile(chosen: Any, shape: Any, window: Any, cost_ms: Any) -> Any:
    """Begin a tile."""
    tile = chosen.tally[0]
    chosen.tally[0] += 1
    chosen.shape[tile], chosen.window[tile], chosen.cost_ms[tile] = shape, window, cost_ms
    return tile


@part
def close_tile(chosen: Any, windows: Any, tile: Any) -> None:
    """Note where a tile lies alone, once it has its non-zeros."""
    for a in range(chosen.home.shape[1]):
        if chosen.home[tile, a] >= 0:
            windows.paid_ms[chosen.home[tile, a]] += chosen.cost_ms[tile]


@part
def stretched(average: Any, slack: Any) -> Any:
    """Give the highest average that a pick of ``average`` takes along."""
    return average * (1 + slack) if average > 0 else average * (1 - slack)
