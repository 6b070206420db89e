"""Greedy with withdraw: one run over a matrix, level by level.

Fang, Shen, Wang and Chen, "STile", SIGMOD 2024, algorithm 2. As in their public code, blocks that beat every ELL tile
are picked window by window beforehand. The state is incremental: a pick changes only its own windows, and an old
average serves as a bound until its candidate could win.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from spmark.impls.stile.block_loops import best_block, pick_block, pick_near_blocks, prefer_blocks
from spmark.impls.stile.level_loops import best_light, count_owned, pick_lights
from spmark.impls.stile.levels import make_level
from spmark.impls.stile.space import Formats, SearchMode, Shapes
from spmark.impls.stile.state import EVERY, LIGHT, NONE, Chosen, Groups, Level, Windows, stretched
from spmark.impls.stile.windows import Tiled, begin, make_groups

_CHOSEN_TO_BEGIN_WITH = 1024
_WINDOWS_AT_ONCE = 1024


class Event(StrEnum):
    """The kind of tiles that a step of the search picked."""

    BEFOREHAND = "beforehand"
    """Blocks of the pass window by window, before the rounds."""
    BLOCK = "block"
    WINDOW = "window"
    """Whole windows, which replace the tiles that were picked in them."""
    OTHER = "other"
    """ELL or one-dimensional tiles."""
    REST = "rest"
    """All non-zeros that were left when time was up, without a search."""


@dataclass(frozen=True)
class Round:
    """One round of the search, for figures and for debugging."""

    event: Event
    level: int
    average_ms: float
    """Cost of the best candidate for each new non-zero; negative where a window gives back more than it costs."""
    picked: int
    withdrawn: int
    left: int
    """Non-zeros without a tile afterwards."""
    spent_ms: float
    """Cost of all tiles afterwards, of one part of J on one multiprocessor."""


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
    trace: tuple[Round, ...]

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
        self._trace: list[Round] = []

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
        average, window, whole = best_block(self._windows, self._groups, self._shapes.single_ms, self._rules.withdraw)
        light, best = math.inf, -1
        # No candidate of the next level can cost less than this: the level need not be made yet.
        if self._rules.formats is not Formats.BLOCKS and (self._literal or not average <= self._shapes.cheapest_ms):
            if self._may_regroup:
                self._regroup()
            if self._level is not None:
                light, best = best_light(*self._seen(), int(self._chosen.tally[3]))
        if window >= 0 and average <= light:
            self._pick_blocks(average, window, whole, self._rules.slack, Event.WINDOW if whole else Event.BLOCK)
        else:
            self._pick_light(light, best, self._rules.slack)

    def _seen(self) -> tuple[object, ...]:
        tiled = self._tiled
        return tiled.owner, tiled.row_of, tiled.whole, self._level, self._shapes.price, int(self._ell)

    def _blocks(self) -> tuple[object, ...]:
        tiled, state = self._tiled, (self._windows, self._groups, self._chosen)
        return tiled.matrix.indptr, tiled.owner, tiled.row_of, *state, self._shapes.single_ms

    def _pick_blocks(self, average: float, window: int, whole: int, slack: float, event: Event) -> None:
        before = self._chosen.tally.copy()
        self._reserve(self._groups.left.size + self._windows.left.size)
        height, shape = int(self._windows.height[window]), NONE if whole else int(self._groups.shape[window])
        pick_block(*self._blocks(), window, whole)
        self._fresh = False
        if slack > 0:
            if self._literal:
                self._pick_every(average, slack)
            else:
                pick_near_blocks(*self._blocks(), self._rules.withdraw, stretched(average, slack), height, shape)
        self._note(event, average, before)

    def _pick_light(self, average: float, best: int, slack: float, event: Event = Event.OTHER) -> None:
        assert self._level is not None
        before = self._chosen.tally.copy()
        count, limit = self._level.first.size, stretched(average, slack)
        self._reserve(count)
        state = self._windows, self._groups, self._chosen
        if slack > 0 and not self._literal:
            pick_lights(*self._seen(), *state, limit, int(self._level.shape[best]), 0, count)
        else:
            pick_lights(*self._seen(), *state, average, EVERY, best, best + 1)
        self._fresh = not self._literal or math.isinf(slack)
        if slack > 0 and self._literal:
            self._pick_every(average, slack)
        self._note(event, average, before)

    def _pick_every(self, average: float, slack: float) -> None:
        """Pick every candidate, of any shape and format, that costs little more than the best (algorithm 2, line 12).

        A candidate's cost is divided by the non-zeros that those before it have left.
        """
        limit = stretched(average, slack)
        self._reserve(self._groups.left.size + self._windows.left.size)
        pick_near_blocks(*self._blocks(), self._rules.withdraw, limit, 0, EVERY)
        if self._level is not None:
            count = self._level.first.size
            self._reserve(count)
            pick_lights(*self._seen(), self._windows, self._groups, self._chosen, limit, EVERY, 0, count)

    def _beforehand(self) -> None:
        """Pick blocks that cost less than every ELL tile could, window by window."""
        count = self._windows.left.size
        before = self._chosen.tally.copy()
        for first in range(0, count, _WINDOWS_AT_ONCE):
            stop = min(first + _WINDOWS_AT_ONCE, count)
            self._reserve(int(self._groups.ptr[stop] - self._groups.ptr[first]) + stop - first)
            slack, below = self._rules.slack, self._shapes.cheapest_ms
            prefer_blocks(*self._blocks(), self._rules.withdraw, slack, below, first, stop)
            if self._late():
                break
        self._note(Event.BEFOREHAND, self._shapes.cheapest_ms, before)

    def _take_rest(self) -> None:
        """Give tiles to all non-zeros that are left, if any, without a search."""
        blocks = self._rules.formats is Formats.BLOCKS
        if self._left and not blocks:
            self._regroup()
        while self._left:
            if blocks:
                best = best_block(self._windows, self._groups, self._shapes.single_ms, self._rules.withdraw)
                self._pick_blocks(best[0], best[1], best[2], math.inf, Event.REST)
            else:
                best = best_light(*self._seen(), int(self._chosen.tally[3]))
                self._pick_light(best[0], best[1], math.inf, Event.REST)

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

    def _note(self, event: Event, average: float, before: NDArray[np.int64]) -> None:
        tally = self._chosen.tally
        picked, withdrawn = int(tally[0] - before[0]), int(tally[1] - before[1])
        step = Round(event, self._levels, float(average), picked, withdrawn, int(tally[2]), self._spent)
        if picked:
            self._trace.append(step)

    @property
    def _spent(self) -> float:
        return float(self._chosen.spent_ms[0])

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
            tuple(self._trace),
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
