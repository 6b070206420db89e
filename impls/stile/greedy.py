"""Greedy with withdraw: one run over a matrix, level by level.

Fang, Shen, Wang and Chen, "STile", SIGMOD 2024, algorithm 2. As in their public code, blocks that beat every ELL tile
are picked window by window beforehand. The state is incremental: a pick changes only its own windows, and an old
average serves as a bound until its candidate could win.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spmark.impls.formats.tiles import GROUP
from spmark.impls.stile import loops
from spmark.impls.stile.levels import make_level
from spmark.impls.stile.space import Formats, Rules, SearchMode, Shapes
from spmark.impls.stile.windows import Tiled, begin, make_groups


@dataclass(frozen=True, eq=False)
class PickedTiles:
    """The tiles that a run chose; every non-zero has one tile."""

    owner: NDArray[np.int32]
    """(nnz,) number of the tile of each non-zero; numbers count all tiles ever picked."""
    used: NDArray[np.int64]
    """Numbers of the tiles that have non-zeros, rising."""
    light: NDArray[np.bool_]
    """(tiles,) whether a tile is ELL or one-dimensional; all others are blocks."""
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

    @property
    def spent_ms(self) -> float:
        """Cost of all tiles that have non-zeros, on one multiprocessor."""
        return float(self.cost_ms[self.used].sum())

    @property
    def in_light(self) -> NDArray[np.bool_]:
        """(nnz,) whether the tile of a non-zero is light."""
        return self.light[self.owner]


class Greedy:
    """A run over one matrix with one set of shapes.

    Parameters
    ----------
    tiled : Tiled
        Without owners; the run writes into it.
    shapes : Shapes
        Block tiles are candidates only where there are heights.
    rules : Rules
    """

    def __init__(self, tiled: Tiled, shapes: Shapes, rules: Rules) -> None:
        self._tiled, self._shapes, self._rules = tiled, shapes, rules
        nnz = tiled.matrix.nnz
        self._order, windows, groups = begin(tiled, shapes)
        chosen = loops.Chosen(  # memory that no tile needs is never touched
            shape=np.zeros(nnz, np.int32),
            window=np.zeros(nnz, np.int32),
            cost_ms=np.zeros(nnz),
            owned=np.zeros(nnz, np.int64),
            home=np.zeros((nnz, len(shapes.heights)), np.int32),
            tally=np.array([0, 0, nnz], np.int64),
        )
        self._state = loops.State(tiled.nonzeros, windows, groups, chosen, shapes.single_ms, shapes.price)
        self._level: loops.Level | None = None
        self._levels, self._fresh = 0, False

    def run(self) -> PickedTiles:
        """Pick until every non-zero has a tile. O(rounds (windows + tiles) + levels nnz)."""
        if self._rules.levels == 1:
            self._regroup()
        if self._rules.formats == Formats.MIXED and self._shapes.ell and self._shapes.heights and not self._literal:
            self._beforehand()
        while self._state.chosen.tally[2]:
            self._round()
        return self._picked()

    @property
    def _literal(self) -> bool:
        """Whether algorithm 2 is followed to the letter."""
        return self._rules.mode == SearchMode.PAPER

    @property
    def _may_regroup(self) -> bool:
        """Whether a pick was made since the last level was, and one more level is allowed."""
        return not self._fresh and (not self._rules.levels or self._levels < self._rules.levels)

    def _round(self) -> None:
        if self._literal and self._may_regroup:
            self._regroup()
        average, window, whole = loops.best_block(self._state, self._rules.withdraw)
        light, best = math.inf, -1
        # No candidate of the next level can cost less than this: the level need not be made yet.
        if self._rules.formats != Formats.BLOCKS and (self._literal or not average <= self._shapes.cheapest_ms):
            if self._may_regroup:
                self._regroup()
            if self._level is not None:
                light, best = loops.best_light(self._state, self._level)
        if window >= 0 and average <= light:
            self._pick_blocks(average, window, whole)
        else:
            self._pick_light(light, best)

    def _pick_blocks(self, average: float, window: int, whole: int) -> None:
        """Pick the best block, and by local search whole windows and blocks of its shape that cost little more."""
        state, slack = self._state, self._rules.local_search
        height, shape = int(state.windows.height[window]), loops.NONE if whole else int(state.groups.shape[window])
        loops.pick_block(state, window, whole)
        self._fresh = False
        if slack > 0 and self._literal:
            self._pick_every(loops.stretched(average, slack))
        elif slack > 0:
            loops.pick_near_blocks(state, self._rules.withdraw, loops.stretched(average, slack), height, shape)

    def _pick_light(self, average: float, best: int) -> None:
        """Pick the best light tile, and by local search those of its shape that cost little more."""
        assert self._level is not None
        slack = self._rules.local_search
        if slack > 0 and not self._literal:
            limit, shape = loops.stretched(average, slack), int(self._level.shape[best])
            loops.pick_lights(self._state, self._level, limit, shape, 0, self._level.first.size)
        else:
            loops.pick_lights(self._state, self._level, average, loops.EVERY, best, best + 1)
        self._fresh = not self._literal or math.isinf(slack)
        if slack > 0 and self._literal:
            self._pick_every(loops.stretched(average, slack))

    def _pick_every(self, limit: float) -> None:
        """Pick every candidate, of any shape and format, that costs no more than ``limit`` (algorithm 2, line 12).

        A candidate's cost is divided by the non-zeros that those before it have left.
        """
        loops.pick_near_blocks(self._state, self._rules.withdraw, limit, 0, loops.EVERY)
        if self._level is not None:
            loops.pick_lights(self._state, self._level, limit, loops.EVERY, 0, self._level.first.size)

    def _beforehand(self) -> None:
        """Pick blocks that cost less than every ELL tile could, window by window."""
        loops.prefer_blocks(self._state, self._rules.withdraw, self._rules.local_search, self._shapes.cheapest_ms)

    def _regroup(self) -> None:
        """Begin a level: make new light tiles of the non-zeros left, and in the paper's mode new groups of columns."""
        if self._rules.formats != Formats.BLOCKS:
            self._level = make_level(self._tiled, self._shapes, int(self._state.chosen.tally[0]))
        if self._literal and self._levels:
            self._state = self._state._replace(groups=make_groups(self._tiled, self._state.windows))
        self._levels += 1
        self._fresh = True

    def _picked(self) -> PickedTiles:
        chosen, windows = self._state.chosen, self._state.windows
        price, heights = self._shapes.price, self._shapes.heights
        shape, window, cost_ms = (one[: chosen.tally[0]] for one in (chosen.shape, chosen.window, chosen.cost_ms))
        light = window < 0
        of_light, of_block = np.where(light, shape, 0), np.append(windows.height, 0)[window]
        first = np.searchsorted(windows.height, np.arange(len(heights) + 1))
        return PickedTiles(
            owner=self._tiled.owner,
            used=np.flatnonzero(chosen.owned[: light.size]),
            light=light,
            width=np.where(light, price.width[of_light], (shape + 1) * GROUP).astype(np.int32),
            window=np.where(light, -1, window - first[of_block]).astype(np.int32),
            height=np.where(light, price.height[of_light], np.array([*heights, 0])[of_block]).astype(np.int32),
            order=self._order,
            cost_ms=cost_ms,
            levels=self._levels,
            withdrawn=int(chosen.tally[1]),
        )
