"""The compiled loops over block candidates: single tiles anywhere in a window, and whole windows.

Importing this module compiles the loops or reads them from Numba's cache, as `spmark.impls.formats.loops` does.

Loops share these arguments. The caller makes all buffers; `spmark.impls.stile.state` documents the tuples.

indptr : (I + 1,) int32
    The matrix's offsets of rows; read.
owner : (nnz,) int32
    The tile of each non-zero, -1 while it has none; every pick writes into it.
row_of : (nnz,) int32
    The row of each non-zero; read.
windows, groups, chosen : `Windows`, `Groups`, `Chosen`
    The state of the search; every pick writes into it.
costs : (heights, shapes) float64
    Milliseconds of a multiprocessor for a single tile; read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from spmark.impls.core.loops import compiled, part
from spmark.impls.stile.state import (
    CHOSEN,
    COSTS,
    EVERY,
    GROUPS,
    I32,
    IN,
    LONG,
    NONE,
    REAL,
    SINGLE,
    WHOLE,
    WINDOWS,
    close_tile,
    cover,
    drop,
    lie_in,
    open_tile,
    stretched,
    take,
)


@part
def pick_single(  # noqa: PLR0917
    owner: Any, row_of: Any, windows: Any, groups: Any, chosen: Any, window: Any, at: Any, shape: Any, cost_ms: Any
) -> None:
    """Pick the block tile of ``shape`` (groups less one) that begins at group ``at`` of a window."""
    tile = open_tile(chosen, SINGLE, shape, window, cost_ms)
    first = groups.ptr[window] + at
    stop = min(first + shape + 1, groups.ptr[window + 1])
    begin, end = groups.member_ptr[first], groups.member_ptr[stop]
    take(owner, row_of, windows, groups, chosen, groups.members, begin, end, tile)
    close_tile(chosen, windows, tile)


@part
def pick_whole(indptr: Any, owner: Any, windows: Any, groups: Any, chosen: Any, window: Any) -> None:  # noqa: PLR0917
    """Hold a window whole: every non-zero of its rows, also the non-zeros of other tiles."""
    tile = open_tile(chosen, WHOLE, -1, window, windows.whole_ms[window])
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
    close_tile(chosen, windows, tile)


@part
def _whole_average(windows: Any, window: Any, withdraw: Any) -> Any:
    """Give the cost for each new non-zero of holding a window whole, less the cost of the tiles that this replaces."""
    if windows.left[window] == 0 or (withdraw == 0 and windows.left[window] < windows.total[window]):
        return np.inf
    return (windows.whole_ms[window] - windows.paid_ms[window]) / windows.left[window]


@part
def _rank(windows: Any, groups: Any, costs: Any, window: Any) -> None:
    """Find the best single tile of a window. O(groups x shapes)."""
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
            gain += groups.left[first + g]
        most, at = gain, 0
        for g in range(span, count):
            gain += groups.left[first + g] - groups.left[first + g - span]
            if gain > most:
                most, at = gain, g - span + 1
        if most > 0 and cost / most < groups.average[window]:
            groups.average[window], groups.at[window], groups.shape[window] = cost / most, at, shape
        if shape + 1 >= count:
            break


@part
def _sweep(  # noqa: PLR0917
    owner: Any,
    row_of: Any,
    windows: Any,
    groups: Any,
    chosen: Any,
    window: Any,
    shape: Any,
    cost: Any,
    limit: Any,
) -> None:
    """Pick every tile of one shape, first to last, that costs no more than ``limit`` for each new non-zero."""
    count = groups.ptr[window + 1] - groups.ptr[window]
    span = min(shape + 1, count)
    at = 0
    while at + span <= count:
        gain = 0
        for g in range(span):
            gain += groups.left[groups.ptr[window] + at + g]
        if gain > 0 and cost <= limit * gain:
            pick_single(owner, row_of, windows, groups, chosen, window, at, shape, cost)
            at += span
        else:
            at += 1


@compiled(types.void, IN, I32, IN, WINDOWS, GROUPS, CHOSEN, COSTS, LONG, REAL, REAL, LONG, LONG)
def prefer_blocks(  # noqa: PLR0917 (Numba takes no keyword-only arguments)
    indptr: Any,
    owner: Any,
    row_of: Any,
    windows: Any,
    groups: Any,
    chosen: Any,
    costs: Any,
    withdraw: Any,
    slack: Any,
    below: Any,
    first: Any,
    stop: Any,
) -> None:
    """Pick blocks of windows ``first:stop``, one after the other, while a new non-zero costs less than ``below``.

    Parameters
    ----------
    indptr, owner, row_of, windows, groups, chosen, costs
        As the module says.
    withdraw : int
        1: whole windows replace tiles; 0: whole windows are candidates only where no tile was picked.
    slack : float
        r - 1 of the local search.
    below : float
        Milliseconds for each new non-zero.
    """
    for window in range(first, stop):
        while windows.left[window] > 0:
            _rank(windows, groups, costs, window)
            whole = _whole_average(windows, window, withdraw)
            average = min(whole, groups.average[window])
            if not average < below:
                break
            if whole <= groups.average[window]:
                pick_whole(indptr, owner, windows, groups, chosen, window)
                break
            shape, at = groups.shape[window], groups.at[window]
            cost = costs[windows.height[window], shape]
            pick_single(owner, row_of, windows, groups, chosen, window, at, shape, cost)
            limit = min(stretched(average, slack), below)
            _sweep(owner, row_of, windows, groups, chosen, window, shape, cost, limit)


@compiled(types.Tuple((REAL, LONG, LONG)), WINDOWS, GROUPS, COSTS, LONG)
def best_block(windows: Any, groups: Any, costs: Any, withdraw: Any) -> Any:
    """Find the block candidate that costs least for each new non-zero.

    Single tiles only lose non-zeros, so an old average is a bound: a window is ranked again only where it could win.

    Returns
    -------
    (average, window, whole)
        The first of equal candidates, whole windows before single tiles; window -1 where no candidate is left.
    """
    count = windows.left.size
    average, best, whole = np.inf, -1, np.inf
    whole_best, least = -1, -1
    for window in range(count):
        value = _whole_average(windows, window, withdraw)
        if value < whole:
            whole, whole_best = value, window
        if groups.average[window] < np.inf and (least < 0 or groups.average[window] < groups.average[least]):
            least = window
    if least >= 0:
        if groups.stale[least]:
            _rank(windows, groups, costs, least)
        bound = groups.average[least]
        for window in range(count):
            if groups.stale[window] and groups.average[window] <= bound:
                _rank(windows, groups, costs, window)
            if not groups.stale[window] and groups.average[window] < average:
                average, best = groups.average[window], window
                bound = min(bound, average)
    if whole <= average and whole_best >= 0:
        return whole, whole_best, 1
    return average, best, 0


@compiled(types.void, IN, I32, IN, WINDOWS, GROUPS, CHOSEN, COSTS, LONG, LONG)
def pick_block(  # noqa: PLR0917
    indptr: Any,
    owner: Any,
    row_of: Any,
    windows: Any,
    groups: Any,
    chosen: Any,
    costs: Any,
    window: Any,
    whole: Any,
) -> None:
    """Pick the block that `best_block` found; ``window`` and ``whole`` are its answer."""
    if whole:
        pick_whole(indptr, owner, windows, groups, chosen, window)
        return
    shape = groups.shape[window]
    cost = costs[windows.height[window], shape]
    pick_single(owner, row_of, windows, groups, chosen, window, groups.at[window], shape, cost)


@compiled(types.void, IN, I32, IN, WINDOWS, GROUPS, CHOSEN, COSTS, LONG, REAL, LONG, LONG)
def pick_near_blocks(  # noqa: PLR0917
    indptr: Any,
    owner: Any,
    row_of: Any,
    windows: Any,
    groups: Any,
    chosen: Any,
    costs: Any,
    withdraw: Any,
    limit: Any,
    height: Any,
    shape: Any,
) -> None:
    """Pick the whole windows, and the block tiles, that cost no more than ``limit`` for each new non-zero.

    Parameters
    ----------
    indptr, owner, row_of, windows, groups, chosen, costs, withdraw
        Those of `prefer_blocks`.
    limit : float
        Milliseconds for each new non-zero.
    height, shape : int
        Number of the height, and shape of the block tiles: one shape is swept over each window, from the first group to
        the last. With the shape `EVERY`, a window's cheapest tile of any shape is picked until none is cheap enough, in
        windows of every height; with `NONE`, whole windows alone.
    """
    for window in range(windows.left.size):
        if windows.left[window] == 0:
            continue
        whole = _whole_average(windows, window, withdraw)
        if whole < np.inf and whole <= limit:
            pick_whole(indptr, owner, windows, groups, chosen, window)
        elif shape == EVERY:
            _rank(windows, groups, costs, window)
            while groups.average[window] <= limit and groups.average[window] < np.inf:
                at, best = groups.at[window], groups.shape[window]
                cost = costs[windows.height[window], best]
                pick_single(owner, row_of, windows, groups, chosen, window, at, best, cost)
                _rank(windows, groups, costs, window)
        elif shape != NONE and windows.height[window] == height and groups.average[window] <= limit:
            _sweep(owner, row_of, windows, groups, chosen, window, shape, costs[height, shape], limit)
