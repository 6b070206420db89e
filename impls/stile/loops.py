"""The state of a search, and the compiled loops that change it: windows condensed, blocks and light tiles picked.

A light tile is an ELL tile (SpMM) or a one-dimensional tile (SDDMM). A non-zero is a position in the matrix's CSR order
throughout. ``owner`` (nnz,) int32 is the tile of each non-zero, -1 while it has none. At the end every non-zero has one
owner, so that the sum of the tiles is the matrix.

`spmark.impls.stile.windows` makes windows and groups, `spmark.impls.stile.levels` levels, `spmark.impls.stile.prices`
prices and `spmark.impls.stile.greedy` the chosen tiles; the loops write into all but the prices.

Importing this module compiles the loops or reads them from Numba's cache, as `spmark.impls.formats.loops` does. The
caller makes all buffers. Loops share these arguments:

nonzeros : `Nonzeros`
    The matrix; picks write the tile of each non-zero into its ``owner``.
state : `State`
    The state of a run; every pick writes into it.
withdraw : int
    1: whole windows replace tiles; 0: whole windows are candidates only where no tile was picked.
level : `Level`
    Candidates of the level, made by `spmark.impls.stile.levels.make_level`; pricing, ranking and picking write into it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types

from spmark.impls.core.loops import IN, LONG, LONGS_IN, compiled, part
from spmark.impls.formats.tiles import GROUP
from spmark.impls.stile.prices import Price

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


I32, I32S, I64 = types.int32[::1], types.int32[:, ::1], types.int64[::1]
U8, F64 = types.uint8[::1], types.float64[::1]
REAL = types.float64
NONZEROS = types.NamedTuple((IN, IN, IN, IN, I32), Nonzeros)
WINDOWS = types.NamedTuple((I32S, I64, I32, I32, I64, I64, F64, F64), Windows)
GROUPS = types.NamedTuple((I32S, I64, I32, I64, I32, F64, I32, I32, U8), Groups)
LEVEL = types.NamedTuple((I32, I64, I64, I32, F64, F64, F64, I64), Level)
CHOSEN = types.NamedTuple((I32, I32, F64, I64, I32S, I64), Chosen)
_TABLE = types.float64[:, :, ::1]
PRICE = types.NamedTuple((I64, I64, _TABLE, _TABLE), Price)
STATE = types.NamedTuple((NONZEROS, WINDOWS, GROUPS, CHOSEN, types.float64[:, ::1], PRICE), State)


@part
def _pay(chosen: Any, windows: Any, tile: Any, times: Any) -> None:
    """Count the cost of a tile among what is paid in the windows that it lies in alone."""
    for a in range(chosen.home.shape[1]):
        window = chosen.home[tile, a]
        if window >= 0:
            windows.paid_ms[window] += times * chosen.cost_ms[tile]


@part
def drop(chosen: Any, windows: Any, tile: Any) -> None:
    """Withdraw a tile that has no non-zeros left."""
    chosen.tally[1] += 1
    _pay(chosen, windows, tile, -1.0)


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
def open_tile(chosen: Any, shape: Any, window: Any, cost_ms: Any) -> Any:
    """Begin a tile."""
    tile = chosen.tally[0]
    chosen.tally[0] += 1
    chosen.shape[tile], chosen.window[tile], chosen.cost_ms[tile] = shape, window, cost_ms
    return tile


@part
def _pick(state: Any, shape: Any, window: Any, cost_ms: Any, items: Any, first: Any, stop: Any) -> None:  # noqa: PLR0917
    """Pick a tile of those of ``items[first:stop]`` (non-zeros) that have no owner."""
    tile = open_tile(state.chosen, shape, window, cost_ms)
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
    state.chosen.owned[tile] = taken
    state.chosen.tally[2] -= taken
    _pay(state.chosen, state.windows, tile, 1.0)


@part
def stretched(average: Any, slack: Any) -> Any:
    """Give the highest average that a pick of ``average`` takes along."""
    return average * (1 + slack) if average > 0 else average * (1 - slack)


@part
def _by_count(  # noqa: PLR0917
    nonzeros: Any, row_ptr: Any, rows: Any, window: Any, counts: Any, slots: Any, order: Any
) -> Any:
    """Give the columns of a window slots, those with most non-zeros first, and return how many columns there are.

    ``counts``, ``slots`` and ``order`` are the rows of `condense`'s scratch. The loop writes the columns into
    ``order``, and the non-zeros and the slot of each into ``counts`` and ``slots``.
    """
    indptr, indices, owner = nonzeros.indptr, nonzeros.indices, nonzeros.owner
    distinct, most = 0, 0
    for r in range(row_ptr[window], row_ptr[window + 1]):
        for at in range(indptr[rows[r]], indptr[rows[r] + 1]):
            column = indices[at]
            if owner[at] >= 0:
                continue
            if counts[column] == 0:
                order[distinct] = column
                distinct += 1
            counts[column] += 1
            most = max(most, counts[column])
    slot = 0
    for count in range(most, 0, -1):  # at most as many as rows
        for i in range(distinct):
            if counts[order[i]] == count:
                slots[order[i]] = slot
                slot += 1
    return distinct


@compiled(types.void, NONZEROS, WINDOWS, LONG, LONG, LONG, GROUPS, LONGS_IN, I32S)
def condense(  # noqa: PLR0917
    nonzeros: Any, windows: Any, height: Any, first: Any, stop: Any, groups: Any, nnz_ptr: Any, scratch: Any
) -> None:
    """Order the columns of windows ``first:stop`` by their non-zeros without an owner, most first, and group them.

    Columns of equal count keep the order in which the rows of the window name them, so that the columns of a sparse row
    stand together.

    Parameters
    ----------
    nonzeros
        As the module says.
    windows : `Windows`
        Its ``row_ptr`` and ``rows`` are read.
    height : int
        Number of the height: the column of ``groups.of`` that is written.
    groups : `Groups`
        Its ``ptr`` is read; its ``of``, ``members``, ``member_ptr`` and ``left``, which holds zeros, are written.
    nnz_ptr : (W + 1,) int64
        Non-zeros before each window; read.
    scratch : (3, K) int32
        The caller has filled the first row with zeros, and the loop leaves zeros in it.
    """
    indptr, indices, owner = nonzeros.indptr, nonzeros.indices, nonzeros.owner
    row_ptr, rows = windows.row_ptr, windows.rows
    of, ptr, members, member_ptr, left = groups.of, groups.ptr, groups.members, groups.member_ptr, groups.left
    counts, slots, order = scratch[0], scratch[1], scratch[2]
    for window in range(first, stop):
        distinct = _by_count(nonzeros, row_ptr, rows, window, counts, slots, order)
        base = ptr[window]
        for i in range(distinct):
            left[base + slots[order[i]] // GROUP] += counts[order[i]]
            counts[order[i]] = 0
        to = nnz_ptr[window]
        for group in range(base, ptr[window + 1]):
            member_ptr[group] = to
            to += left[group]
        for r in range(row_ptr[window], row_ptr[window + 1]):
            for at in range(indptr[rows[r]], indptr[rows[r] + 1]):
                if owner[at] < 0:
                    group = base + slots[indices[at]] // GROUP
                    of[at, height] = group
                    members[member_ptr[group]] = at
                    member_ptr[group] += 1
        for group in range(ptr[window + 1] - 1, base - 1, -1):  # back from where each ends to where it begins
            member_ptr[group] = nnz_ptr[window] if group == base else member_ptr[group - 1]


@part
def _pick_single(state: Any, window: Any, at: Any, shape: Any, cost_ms: Any) -> None:
    """Pick the block tile of ``shape`` (groups less one) that begins at group ``at`` of a window."""
    groups = state.groups
    first = groups.ptr[window] + at
    stop = min(first + shape + 1, groups.ptr[window + 1])
    _pick(state, shape, window, cost_ms, groups.members, groups.member_ptr[first], groups.member_ptr[stop])


@part
def _pick_whole(state: Any, window: Any) -> None:
    """Hold a window whole: every non-zero of its rows, also the non-zeros of other tiles."""
    windows, groups, chosen = state.windows, state.groups, state.chosen
    indptr, owner = state.nonzeros.indptr, state.nonzeros.owner
    tile = open_tile(chosen, WHOLE, window, windows.whole_ms[window])
    of, left, owned, home = windows.of, windows.left, chosen.owned, chosen.home
    group_of, group_left, stale = groups.of, groups.left, groups.stale
    nnz, taken = 0, 0
    for r in range(windows.row_ptr[window], windows.row_ptr[window + 1]):
        row = windows.rows[r]
        for at in range(indptr[row], indptr[row + 1]):
            old = owner[at]
            if old < 0:
                cover(at, row, of, left, group_of, group_left, stale)
                taken += 1
            else:
                owned[old] -= 1
                if owned[old] == 0:
                    drop(chosen, windows, old)
            owner[at] = tile
        if indptr[row] < indptr[row + 1]:
            lie_in(home, tile, row, of, nnz == 0)
            nnz += indptr[row + 1] - indptr[row]
    owned[tile] = nnz
    chosen.tally[2] -= taken
    _pay(chosen, windows, tile, 1.0)


@part
def _whole_average(windows: Any, window: Any, withdraw: Any) -> Any:
    """Give the cost for each new non-zero of holding a window whole, less the cost of the tiles that this replaces."""
    if windows.left[window] == 0 or (withdraw == 0 and windows.left[window] < windows.total[window]):
        return np.inf
    return (windows.whole_ms[window] - windows.paid_ms[window]) / windows.left[window]


@part
def _rank_blocks(state: Any, window: Any) -> None:
    """Find the best single tile of a window. O(groups x shapes)."""
    windows, groups, costs = state.windows, state.groups, state.costs
    left = groups.left
    first, count = groups.ptr[window], groups.ptr[window + 1] - groups.ptr[window]
    groups.average[window], groups.stale[window] = np.inf, 0
    if windows.left[window] == 0:
        return
    for shape in range(costs.shape[1]):
        cost = costs[windows.height[window], shape]
        if not np.isfinite(cost):
            continue
        span = min(shape + 1, count)
        gain = 0
        for g in range(span):
            gain += left[first + g]
        most, at = gain, 0
        for g in range(span, count):
            gain += left[first + g] - left[first + g - span]
            if gain > most:
                most, at = gain, g - span + 1
        if most > 0 and cost / most < groups.average[window]:
            groups.average[window], groups.at[window], groups.shape[window] = cost / most, at, shape
        if shape + 1 >= count:
            break


@part
def _pick_best(state: Any, window: Any) -> Any:
    """Pick the best single tile of a window; give its shape and cost."""
    shape = state.groups.shape[window]
    cost = state.costs[state.windows.height[window], shape]
    _pick_single(state, window, state.groups.at[window], shape, cost)
    return shape, cost


@part
def _sweep(state: Any, window: Any, shape: Any, cost: Any, limit: Any) -> None:
    """Pick every tile of one shape, first to last, that costs no more than ``limit`` for each new non-zero."""
    ptr, left = state.groups.ptr, state.groups.left
    count = ptr[window + 1] - ptr[window]
    span = min(shape + 1, count)
    at = 0
    while at + span <= count:
        gain = 0
        for g in range(span):
            gain += left[ptr[window] + at + g]
        if gain > 0 and cost <= limit * gain:
            _pick_single(state, window, at, shape, cost)
            at += span
        else:
            at += 1


@compiled(types.void, STATE, LONG, REAL, REAL)
def prefer_blocks(state: Any, withdraw: Any, slack: Any, below: Any) -> None:
    """Pick blocks, one window after the other, while a new non-zero costs less than ``below``.

    Parameters
    ----------
    state, withdraw
        As the module says.
    slack : float
        r - 1 of the local search.
    below : float
        Milliseconds for each new non-zero.
    """
    windows, groups = state.windows, state.groups
    for window in range(windows.left.size):
        while windows.left[window] > 0:
            _rank_blocks(state, window)
            whole = _whole_average(windows, window, withdraw)
            average = min(whole, groups.average[window])
            if not average < below:
                break
            if whole <= groups.average[window]:
                _pick_whole(state, window)
                break
            shape, cost = _pick_best(state, window)
            _sweep(state, window, shape, cost, min(stretched(average, slack), below))


@compiled(types.Tuple((REAL, LONG, LONG)), STATE, LONG)
def best_block(state: Any, withdraw: Any) -> Any:
    """Find the block candidate that costs least for each new non-zero.

    Single tiles only lose non-zeros, so an old average is a bound: a window is ranked again only where it could win.

    Returns
    -------
    (average, window, whole)
        The first of equal candidates, whole windows before single tiles; window -1 where no candidate is left.
    """
    windows, averages, stale = state.windows, state.groups.average, state.groups.stale
    count = windows.left.size
    whole, whole_best, least = np.inf, -1, 0
    for window in range(count):
        value = _whole_average(windows, window, withdraw)
        if value < whole:
            whole, whole_best = value, window
        if averages[window] < averages[least]:
            least = window
    if count > 0 and stale[least]:
        _rank_blocks(state, least)
    average, best = np.inf, -1
    for window in range(count):
        if stale[window] and averages[window] <= min(averages[least], average):
            _rank_blocks(state, window)
        if not stale[window] and averages[window] < average:
            average, best = averages[window], window
    if whole <= average and whole_best >= 0:
        return whole, whole_best, 1
    return average, best, 0


@compiled(types.void, STATE, LONG, LONG)
def pick_block(state: Any, window: Any, whole: Any) -> None:
    """Pick the block that `best_block` found; ``window`` and ``whole`` are its answer."""
    if whole:
        _pick_whole(state, window)
    else:
        _pick_best(state, window)


@compiled(types.void, STATE, LONG, REAL, LONG, LONG)
def pick_near_blocks(state: Any, withdraw: Any, limit: Any, height: Any, shape: Any) -> None:
    """Pick the whole windows, and the block tiles, that cost no more than ``limit`` for each new non-zero.

    Parameters
    ----------
    state, withdraw
        As the module says.
    limit : float
        Milliseconds for each new non-zero.
    height, shape : int
        Number of the height, and shape of the block tiles: one shape is swept over each window, from the first group to
        the last. With the shape `EVERY`, a window's cheapest tile of any shape is picked until none is cheap enough, in
        windows of every height; with `NONE`, whole windows alone.
    """
    windows, groups = state.windows, state.groups
    for window in range(windows.left.size):
        if windows.left[window] == 0:
            continue
        whole = _whole_average(windows, window, withdraw)
        if whole < np.inf and whole <= limit:
            _pick_whole(state, window)
        elif shape == EVERY:
            _rank_blocks(state, window)
            while groups.average[window] <= limit and groups.average[window] < np.inf:
                _pick_best(state, window)
                _rank_blocks(state, window)
        elif shape != NONE and windows.height[window] == height and groups.average[window] <= limit:
            _sweep(state, window, shape, state.costs[height, shape], limit)


@part
def _rank(nonzeros: Any, level: Any, price: Any, clock: Any, tile: Any, stamp: Any) -> None:  # noqa: PLR0917
    """Compute a candidate's average; a tile that once had to add atomically keeps that cost.

    ``stamp`` is None where the candidate has costs. Else its costs are looked up, too: ``stamp`` (K,) int32 holds the
    last tile that named each column, and the loop writes ``tile`` into it.
    """
    owner, row_of, whole, indices = nonzeros.owner, nonzeros.row_of, nonzeros.whole, nonzeros.indices
    items, shape = level.items, level.shape[tile]
    width, gain, rows, columns, run, row, atomic = price.width[shape], 0, 0, 0, 0, -1, False
    for i in range(level.first[tile], level.stop[tile]):
        at = items[i]
        if stamp is None:
            if owner[at] >= 0:
                continue
        else:
            columns += stamp[indices[at]] != tile
            stamp[indices[at]] = tile
        if row_of[at] != row:
            atomic |= row >= 0 and (run < whole[row] or run > width)
            row, run, rows = row_of[at], 0, rows + 1
        run += 1
        gain += 1
    atomic |= row >= 0 and (run < whole[row] or run > width)
    if stamp is not None:
        rows = min(rows, price.plain_ms.shape[1] - 1)
        level.cost_ms[tile] = price.plain_ms[shape, rows, columns]
        level.atomic_ms[tile] = price.atomic_ms[shape, rows, columns]
    if atomic:
        level.cost_ms[tile] = level.atomic_ms[tile]
    level.average[tile] = level.cost_ms[tile] / gain if gain > 0 else np.inf
    level.seen[tile] = clock


@compiled(types.void, NONZEROS, LEVEL, PRICE, LONG, LONG, LONG, I32)
def price_tiles(nonzeros: Any, level: Any, price: Any, clock: Any, first: Any, stop: Any, stamp: Any) -> None:  # noqa: PLR0917
    """Price candidates ``first:stop``, none of whose non-zeros has an owner yet.

    Parameters
    ----------
    nonzeros, level
        As the module says; costs and averages of the level are written.
    price : `Price`
        Costs of light tiles; read.
    clock : int
        Picks so far.
    stamp : (K,) int32
        Scratch, which the caller has filled with -1.
    """
    for tile in range(first, stop):
        _rank(nonzeros, level, price, clock, tile, stamp)


@compiled(types.Tuple((REAL, LONG)), STATE, LEVEL)
def best_light(state: Any, level: Any) -> Any:
    """Find the candidate of a level that costs least for each new non-zero; -1 where all non-zeros have owners.

    Candidates only lose non-zeros, so an old average is a bound: a candidate is ranked again only where it could win.
    """
    averages, clock = level.average, state.chosen.tally[0]
    least = np.argmin(averages)
    if level.seen[least] < clock:
        _rank(state.nonzeros, level, state.price, clock, least, None)
    bound, average, best = averages[least], np.inf, -1
    for tile in range(averages.size):
        if averages[tile] > bound:
            continue
        if level.seen[tile] < clock:
            _rank(state.nonzeros, level, state.price, clock, tile, None)
        if averages[tile] < average:
            average, best = averages[tile], tile
            bound = average
    return average, best


@compiled(types.void, STATE, LEVEL, REAL, LONG, LONG, LONG)
def pick_lights(state: Any, level: Any, limit: Any, shape: Any, first: Any, stop: Any) -> None:  # noqa: PLR0917
    """Pick those of the candidates ``first:stop`` of a level that cost no more than ``limit`` for each new non-zero.

    Parameters
    ----------
    state, level
        As the module says.
    limit : float
        Milliseconds for each new non-zero.
    shape : int
        Shape of the picks, or `EVERY`.
    """
    chosen = state.chosen
    for tile in range(first, stop):
        if (shape != EVERY and level.shape[tile] != shape) or not level.average[tile] <= limit:
            continue
        if level.seen[tile] < chosen.tally[0]:
            _rank(state.nonzeros, level, state.price, chosen.tally[0], tile, None)
        if not level.average[tile] <= limit or level.average[tile] == np.inf:
            continue
        _pick(state, level.shape[tile], -1, level.cost_ms[tile], level.items, level.first[tile], level.stop[tile])
        level.average[tile] = np.inf
