"""Greedy with withdraw: one run over a matrix, level by level.

Fang, Shen, Wang and Chen, "STile", SIGMOD 2024, algorithm 2. As in their public code, blocks that beat every ELL tile
are picked window by window beforehand. The state is incremental: a pick changes only its own windows, and an old
average serves as a bound until its candidate could win.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from spmark.impls.stile.levels import make_level
from spmark.impls.stile.loops import (
    best_block,
    best_light,
    count_owned,
    pick_block,
    pick_lights,
    pick_near_blocks,
    prefer_blocks,
)
from spmark.impls.stile.space import Formats, SearchMode, Shapes
from spmark.impls.stile.state import EVERY, LIGHT, NONE, Chosen, Groups, Level, State, Windows, stretched
from spmark.impls.stile.windows import Tiled, begin, make_groups

_CHOSEN_TO_BEGIN_WITH = 1024
_WINDOWS_AT_ONCE = 1024


@dataclass(frozen=True)
class Rules:
    """How to search."""

    mode: SearchMode = SearchMode.CODE
    formats: Formats = Formats.MIXED
    slack: float = 0.2
    """r - 1 of the local search; 0 picks one candidate a round."""
    withdraw: bool = True
    max_levels: int = 0
    """Most levels; 0 for no limit."""
    widest: int = 0
    """Most non-zeros of a row of an ELL tile, a power of two; 0 for the public code's estimate."""
    rearrange: bool = True
    """Whether non-zeros that blocks leave are searched again where another order of rows makes them much denser."""
    compared: bool = True
    """Whether a mixture is compared with either format alone."""

    def __post_init__(self) -> None:
        if not self.slack >= 0:
            raise ValueError(f"expected a slack of at least 0, found {self.slack}")
        if self.max_levels < 0:
            raise ValueError(f"expected a number of levels, or 0 for no limit, found {self.max_levels}")
        if self.widest < 0 or self.widest & (self.widest - 1):
            raise ValueError(f"expected widest to be a power of two, or 0 to estimate it, found {self.widest}")


@dataclass(frozen=True, eq=False)
class PickedTiles:
    """The tiles that a run chose; every non-zero has one tile."""

    owner: NDArray[np.int32]
    """(nnz,) number of the tile of each non-zero; numbers count all tiles ever picked."""
    kind: NDArray[np.int8]
    """(tiles,) `SINGLE`, `WHOLE` or `LIGHT` of `spmark.impls.stile.state`."""
    width: NDArray[np.int32]
    """(tiles,) columns of a block tile (0 where it holds a window whole), non-zeros of a row of an ELL tile."""
    window: NDArray[np.int32]
    """(tiles,) number of the window of a block tile in the row order, -1 for the others."""
    height: NDArray[np.int32]
    """(tiles,) rows of a block tile or an ELL tile."""
    order: NDArray[np.int32]
    """(I,) rows in the order of windows."""
    cost_ms: NDArray[np.float64]
    """(tiles,)."""
    levels: int
    withdrawn: int
    finished: bool
    """Whether the time sufficed."""

    @property
    def spent_ms(self) -> float:
        """Cost of all tiles that have non-zeros, on one multiprocessor."""
        return float(self.cost_ms[self.used].sum())

    @cached_property
    def used(self) -> NDArray[np.int64]:
        """Numbers of the tiles that have non-zeros, rising. O(nnz + tiles)."""
        counts = np.zeros(self.kind.size, np.int64)
        count_owned(self.owner, counts)
        return np.flatnonzero(counts)


class Greedy:
    """A run over one matrix with one set of shapes.

    Parameters
    ----------
    tiled : Tiled
        Without owners; the run writes into it.
    shapes : Shapes
        Block tiles are candidates only where there are heights.
    ell : bool
        SpMM: light tiles are ELL, and windows can be held whole. Else SDDMM, whose light tiles are one-dimensional.
    rules : Rules
    late : callable
        Says whether time is up.
    """

    def __init__(self, tiled: Tiled, shapes: Shapes, ell: bool, rules: Rules, late: Callable[[], bool]) -> None:
        self._tiled, self._shapes, self._ell, self._rules, self._late = tiled, shapes, ell, rules, late
        self._order: NDArray[np.int32]
        self._windows: Windows
        self._groups: Groups
        self._order, self._windows, self._groups = begin(tiled, shapes, ell)
        self._chosen = _no_tiles(_CHOSEN_TO_BEGIN_WITH, len(shapes.heights), tiled.matrix.nnz)
        self._level: Level | None = None
        self._levels = 0
        self._fresh = False

    def run(self) -> PickedTiles:
        """Pick until every non-zero has a tile. O(rounds (windows + tiles) + levels nnz)."""
        rules = self._rules
        if rules.max_levels == 1:
            self._regroup()
        if rules.mode is SearchMode.CODE and self._ell and rules.formats is Formats.MIXED and self._shapes.heights:
            self._beforehand()
        while self._left and not self._late():
            self._round()
        finished = not self._left
        self._take_rest()
        return self._picked(finished)

    @property
    def _state(self) -> State:
        tiled, costs = self._tiled, self._shapes.single_ms
        return State(tiled.nonzeros, self._windows, self._groups, self._chosen, costs)

    @property
    def _left(self) -> int:
        return int(self._chosen.tally[2])

    @property
    def _literal(self) -> bool:
        """Whether algorithm 2 is followed to the letter."""
        return self._rules.mode is SearchMode.PAPER

    @property
    def _may_regroup(self) -> bool:
        """Whether a pick was made since the last level was, and one more level is allowed."""
        return not self._fresh and (not self._rules.max_levels or self._levels < self._rules.max_levels)

    def _round(self) -> None:
        if self._literal and self._may_regroup:
            self._regroup()
        average, window, whole = best_block(self._state, self._rules.withdraw)
        light, best = math.inf, -1
        # No candidate of the next level can cost less than this: the level need not be made yet.
        if self._rules.formats is not Formats.BLOCKS and (self._literal or not average <= self._shapes.cheapest_ms):
            if self._may_regroup:
                self._regroup()
            if self._level is not None:
                light, best = self._best_light()
        if window >= 0 and average <= light:
            self._pick_blocks(average, window, whole, self._rules.slack)
        else:
            self._pick_light(light, best, self._rules.slack)

    def _best_light(self) -> tuple[float, int]:
        clock = int(self._chosen.tally[3])
        found: tuple[float, int] = best_light(
            self._tiled.nonzeros, self._level, self._shapes.price, int(self._ell), clock
        )
        return found

    def _pick_blocks(self, average: float, window: int, whole: int, slack: float) -> None:
        """Pick the best block, and by local search whole windows and blocks of its shape that cost little more."""
        height, shape = int(self._windows.height[window]), NONE if whole else int(self._groups.shape[window])
        self._reserve(self._groups.left.size + self._windows.left.size)
        pick_block(self._state, window, whole)
        self._fresh = False
        if slack > 0 and self._literal:
            self._pick_every(stretched(average, slack))
        elif slack > 0:
            pick_near_blocks(self._state, self._rules.withdraw, stretched(average, slack), height, shape)

    def _pick_light(self, average: float, best: int, slack: float) -> None:
        """Pick the best light tile, and by local search those of its shape that cost little more."""
        assert self._level is not None
        if slack > 0 and not self._literal:
            self._pick_lights(stretched(average, slack), int(self._level.shape[best]), 0, self._level.first.size)
        else:
            self._pick_lights(average, EVERY, best, best + 1)
        self._fresh = not self._literal or math.isinf(slack)
        if slack > 0 and self._literal:
            self._pick_every(stretched(average, slack))

    def _pick_every(self, limit: float) -> None:
        """Pick every candidate, of any shape and format, that costs no more than ``limit`` (algorithm 2, line 12).

        A candidate's cost is divided by the non-zeros that those before it have left.
        """
        self._reserve(self._groups.left.size + self._windows.left.size)
        pick_near_blocks(self._state, self._rules.withdraw, limit, 0, EVERY)
        if self._level is not None:
            self._pick_lights(limit, EVERY, 0, self._level.first.size)

    def _pick_lights(self, limit: float, shape: int, first: int, stop: int) -> None:
        self._reserve(stop - first)
        pick_lights(self._state, self._level, self._shapes.price, int(self._ell), limit, shape, first, stop)

    def _beforehand(self) -> None:
        """Pick blocks that cost less than every ELL tile could, window by window."""
        count = self._windows.left.size
        slack, below = self._rules.slack, self._shapes.cheapest_ms
        for first in range(0, count, _WINDOWS_AT_ONCE):
            stop = min(first + _WINDOWS_AT_ONCE, count)
            self._reserve(int(self._groups.ptr[stop] - self._groups.ptr[first]) + stop - first)
            prefer_blocks(self._state, self._rules.withdraw, slack, below, first, stop)
            if self._late():
                break

    def _take_rest(self) -> None:
        """Give tiles to all non-zeros that are left, if any, without a search."""
        blocks = self._rules.formats is Formats.BLOCKS
        if self._left and not blocks:
            self._regroup()
        while self._left:
            if blocks:
                average, window, whole = best_block(self._state, self._rules.withdraw)
                self._pick_blocks(average, window, whole, math.inf)
            else:
                self._pick_light(*self._best_light(), math.inf)

    def _regroup(self) -> None:
        """Begin a level: make new light tiles of the non-zeros left, and in the paper's mode new groups of columns."""
        if self._rules.formats is not Formats.BLOCKS:
            self._level = make_level(self._tiled, self._shapes, self._ell, int(self._chosen.tally[3]))
        if self._literal and self._levels:
            self._groups = make_groups(self._tiled, self._windows)
        self._levels += 1
        self._fresh = True

    def _reserve(self, more: int) -> None:
        """Make room for ``more`` tiles."""
        used, capacity = int(self._chosen.tally[0]), self._chosen.kind.size
        more = min(more, self._tiled.matrix.nnz)  # a pick has a new non-zero
        if used + more > capacity:
            bigger = _no_tiles(max(used + more, 2 * used), self._windows.of.shape[1], 0)
            for name in ("kind", "shape", "window", "cost_ms", "owned", "home"):
                getattr(bigger, name)[:used] = getattr(self._chosen, name)[:used]
            self._chosen = bigger._replace(tally=self._chosen.tally, spent_ms=self._chosen.spent_ms)

    def _picked(self, finished: bool) -> PickedTiles:
        chosen, shapes = self._chosen, self._shapes
        used = int(chosen.tally[0])
        kind, shape, window = chosen.kind[:used], chosen.shape[:used], chosen.window[:used]
        light = kind == LIGHT
        width = np.where(light, shapes.price.width[np.where(light, shape, 0)], (shape + 1) * 16).astype(np.int32)
        height = shapes.price.height[np.where(light, shape, 0)].astype(np.int32)
        number = np.full(used, -1, np.int32)
        if shapes.heights:
            of = self._windows.height[np.maximum(window, 0)]
            first = np.searchsorted(self._windows.height, np.arange(len(shapes.heights)))
            number = np.where(light, -1, window - first[of]).astype(np.int32)
            height = np.where(light, height, np.array(shapes.heights, np.int32)[of]).astype(np.int32)
        return PickedTiles(
            self._tiled.owner,
            kind,
            width,
            number,
            height,
            self._order,
            chosen.cost_ms[:used],
            self._levels,
            int(chosen.tally[1]),
            finished,
        )


def _no_tiles(capacity: int, heights: int, left: int) -> Chosen:
    return Chosen(
        np.zeros(capacity, np.int8),
        np.zeros(capacity, np.int32),
        np.zeros(capacity, np.int32),
        np.zeros(capacity),
        np.zeros(capacity, np.int64),
        np.zeros((capacity, heights), np.int32),
        np.array([0, 0, left, 0], np.int64),
        np.zeros(1),
    )
