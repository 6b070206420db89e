"""A search whose books are counted again from scratch around every pick: slowly, and over what non-zeros are owned.

Costs are whole multiples of a power of two, so that sums in any order are the same to the last bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from spmark.impls.stile.greedy import Greedy
from spmark.impls.stile.loops import WHOLE
from spmark.impls.stile.prices import cheapest_ms
from spmark.impls.stile.space import Formats, SearchMode, Shapes

Tile = tuple[float, int, int, int]
"""Cost for each new non-zero, window, first group within it, and shape of a block tile."""


def on_grid(shapes: Shapes, step_ms: float, whole: float = 1.0, light: float = 1.0) -> Shapes:
    """Round costs up to multiples of ``step_ms``, a power of two: a coarse one makes candidates of equal averages.

    Before that, costs of whole windows and of tiles that are no blocks are multiplied by a factor, so that all kinds
    of tiles come about in turn.
    """
    single, plain, light_ms, atomic_ms = (
        np.ceil(table * factor / step_ms) * step_ms
        for table, factor in (
            (shapes.single_ms, 1.0),
            (shapes.plain_ms, whole),
            (shapes.price.plain_ms, light),
            (shapes.price.atomic_ms, light),
        )
    )
    price = shapes.price._replace(plain_ms=light_ms, atomic_ms=atomic_ms)
    return replace(shapes, single_ms=single, plain_ms=plain, price=price, cheapest_ms=cheapest_ms(price))


class Event(StrEnum):
    """The kind of tiles that a step of the search picked."""

    BEFOREHAND = "beforehand"
    BLOCK = "block"
    WINDOW = "window"
    OTHER = "other"
    """ELL or one-dimensional tiles."""


@dataclass(frozen=True)
class Round:
    """One round of the search."""

    event: Event
    average_ms: float
    picked: int
    withdrawn: int
    left: int
    """Non-zeros without a tile afterwards."""


class Watched(Greedy):
    """The search, with what its rounds picked."""

    trace: list[Round]

    def __init__(self, *given):
        super().__init__(*given)
        self.trace = []

    def _beforehand(self):
        before = self._state.chosen.tally.copy()
        super()._beforehand()
        self.note(Event.BEFOREHAND, self._shapes.cheapest_ms, before)

    def _pick_blocks(self, average, window, whole):
        before = self._state.chosen.tally.copy()
        super()._pick_blocks(average, window, whole)
        self.note(Event.WINDOW if whole else Event.BLOCK, average, before)

    def _pick_light(self, average, best):
        before = self._state.chosen.tally.copy()
        super()._pick_light(average, best)
        self.note(Event.OTHER, average, before)

    def note(self, event, average, before):
        tally = self._state.chosen.tally
        picked, withdrawn = int(tally[0] - before[0]), int(tally[1] - before[1])
        if picked:
            self.trace.append(Round(event, float(average), picked, withdrawn, int(tally[2])))


class Recounted(Watched):
    """The search, asserting before a pick that it is the best one, and after it that every account is right.

    A tile's home can be told from what it has left as long as no pick takes a part of another one of the same step:
    windows are of one height, or one candidate is picked a round.
    """

    homes: dict[int, set[int]]
    """Windows that each tile lay in alone when it was picked."""
    ties: int
    """Picks of a block while another tile cost as little."""

    def __init__(self, *given):
        super().__init__(*given)
        self.homes, self.ties = {}, 0

    def _pick_blocks(self, average, window, whole):
        slack = self._rules.local_search
        if not math.isinf(slack):
            wholes, singles = self._wholes(), self._singles()
            assert average == min([*wholes.values(), *(tile[0] for tile in singles)])
            assert average == (wholes[window] if whole else min(tile[0] for tile in singles if tile[1] == window))
            assert whole or average < min(wholes.values(), default=math.inf)  # of equals a whole window
            lights = self._lights()
            if self._asks_lights(average):
                assert average <= min(lights.values(), default=math.inf)
                self.ties += average == min(lights.values(), default=math.inf)
        first_new = int(self._state.chosen.tally[0])
        super()._pick_blocks(average, window, whole)
        self._check_reach(average, window, whole, slack, first_new)

    def _pick_light(self, average, best):
        slack = self._rules.local_search
        lights = self._lights()
        assert average == min(lights.values())
        assert best == min(tile for tile, value in lights.items() if value == average)
        if not math.isinf(slack):
            blocks = [*self._wholes().values(), *(tile[0] for tile in self._singles())]
            assert average < min(blocks, default=math.inf)  # of equals a block
        first_new = int(self._state.chosen.tally[0])
        super()._pick_light(average, best)
        limit, shape = _limit(average, slack), self._level.shape[best]
        after = {tile: value for tile, value in self._lights().items() if self._level.shape[tile] == shape}
        assert slack <= 0 or all(_is_beyond(value, limit) for value in after.values())
        if slack > 0 and self._rules.mode == SearchMode.PAPER:
            self._check_every(limit, first_new)

    def note(self, event, average, before):
        super().note(event, average, before)
        self._recount(int(before[0]))

    def _asks_lights(self, average):
        literal, formats = self._rules.mode == SearchMode.PAPER, self._rules.formats
        return formats != Formats.BLOCKS and (literal or not average <= self._shapes.cheapest_ms)

    def _recount(self, first_new):
        """Hold every account against the owners of non-zeros."""
        chosen, windows, owner = self._state.chosen, self._state.windows, self._tiled.owner
        tiles = int(chosen.tally[0])
        counts = np.bincount(owner[owner >= 0], minlength=tiles)
        alive = np.flatnonzero(counts)
        np.testing.assert_array_equal(chosen.owned[:tiles], counts)
        assert chosen.tally.tolist() == [tiles, tiles - alive.size, np.count_nonzero(owner < 0)]
        for tile in alive[alive >= first_new].tolist():
            self.homes[tile] = self._lies_alone_in(np.flatnonzero(owner == tile))
        paid = np.zeros(windows.left.size)
        for tile in alive.tolist():
            for window in self.homes[tile]:
                paid[window] += chosen.cost_ms[tile]
        np.testing.assert_array_equal(windows.paid_ms, paid)
        for window in range(windows.left.size):
            assert windows.left[window] == np.count_nonzero(owner[self._of_window(window)] < 0)
        self._recount_groups()
        self._recount_level()

    def _recount_groups(self):
        groups, owner = self._state.groups, self._tiled.owner
        members = np.split(groups.members, groups.member_ptr[1:-1]) if groups.left.size else []
        np.testing.assert_array_equal(groups.left, [np.count_nonzero(owner[own] < 0) for own in members])
        least = dict.fromkeys(range(groups.average.size), math.inf)
        for average, window, _, _ in self._singles():
            least[window] = min(least[window], average)
        for window, average in least.items():
            if groups.stale[window]:
                assert groups.average[window] <= average
            else:
                assert groups.average[window] == average

    def _recount_level(self):
        level = self._level
        for tile, average in self._lights().items():
            if level.seen[tile] == self._state.chosen.tally[0]:
                assert level.average[tile] == average
            else:
                assert level.average[tile] <= average

    def _check_reach(self, average, window, whole, slack, first_new):
        """The local search takes what is within its reach, and nothing beyond."""
        chosen, limit = self._state.chosen, _limit(average, slack)
        new = range(first_new, int(chosen.tally[0]))
        if slack <= 0:
            assert len(new) == 1
        elif self._rules.mode == SearchMode.PAPER:
            self._check_every(limit, first_new)
        elif whole:
            assert all(_is_beyond(value, limit) for value in self._wholes().values())
        else:
            shape, height = self._state.groups.shape[window], self._state.windows.height[window]
            assert all(chosen.shape[tile] == WHOLE or chosen.shape[tile] == shape for tile in new)
            # A sweep goes from tile to tile: what it leaves of a window's last groups is not looked at again.
            swept = {int(chosen.window[tile]) for tile in new}
            for tile_average, other, _, other_shape in self._singles():
                if other not in swept and other_shape == shape and self._state.windows.height[other] == height:
                    assert _is_beyond(tile_average, limit)

    def _check_every(self, limit, first_new):
        """Tiles of every shape and format that are cheap enough were picked, and no others."""
        assert all(
            _is_beyond(value, limit) for value in (*self._lights().values(), *(one[0] for one in self._singles()))
        )
        chosen, counts = self._state.chosen, np.bincount(self._tiled.owner[self._tiled.owner >= 0])
        for tile in self._alive():
            if tile >= first_new and chosen.shape[tile] != WHOLE:
                assert chosen.cost_ms[tile] / counts[tile] <= limit * (1 + 1e-12)

    def _of_window(self, window):
        windows, indptr = self._state.windows, self._tiled.matrix.indptr
        rows = windows.rows[windows.row_ptr[window] : windows.row_ptr[window + 1]]
        return np.concatenate([np.arange(indptr[row], indptr[row + 1]) for row in rows])

    def _lies_alone_in(self, items):
        rows = set(self._tiled.row_of[items].tolist())
        windows = self._state.windows
        bounds = zip(windows.row_ptr[:-1], windows.row_ptr[1:], strict=True)
        return {window for window, (a, b) in enumerate(bounds) if rows <= set(windows.rows[a:b].tolist())}

    def _wholes(self):
        """Give what holding each window whole costs for each new non-zero."""
        windows = self._state.windows
        averages = {}
        for window in np.flatnonzero(windows.left).tolist():
            if self._rules.withdraw or windows.left[window] == windows.total[window]:
                paid = sum(self._state.chosen.cost_ms[tile] for tile in self._alive() if window in self.homes[tile])
                averages[window] = (windows.whole_ms[window] - paid) / windows.left[window]
        return averages

    def _alive(self):
        owner = self._tiled.owner
        return np.unique(owner[owner >= 0]).tolist()

    def _singles(self) -> list[Tile]:
        """List the block tiles that have a new non-zero."""
        groups, costs, owner = self._state.groups, self._shapes.single_ms, self._tiled.owner
        tiles: list[Tile] = []
        for window, height in enumerate(self._state.windows.height):
            first, count = int(groups.ptr[window]), int(groups.ptr[window + 1] - groups.ptr[window])
            ends = groups.member_ptr
            for shape, cost in enumerate(costs[height]):
                span = min(shape + 1, count)
                for at in range(count - span + 1):
                    members = groups.members[ends[first + at] : ends[first + at + span]]
                    gain = np.count_nonzero(owner[members] < 0)
                    if gain and math.isfinite(cost):
                        tiles.append((cost / gain, window, at, shape))
                if shape + 1 >= count:
                    break
        return tiles

    def _lights(self) -> dict[int, float]:
        """Give what each candidate of the level that has a new non-zero costs for each."""
        level, tiled = self._level, self._tiled
        averages: dict[int, float] = {}
        if level is None:
            return averages
        for tile in range(level.first.size):
            items = level.items[level.first[tile] : level.stop[tile]]
            items = items[tiled.owner[items] < 0]
            if not items.size:
                continue
            rows, counts = np.unique(tiled.row_of[items], return_counts=True)
            shared = np.any((counts < tiled.whole[rows]) | (counts > self._shapes.price.width[level.shape[tile]]))
            # What once had to add atomically is taken to still have to.
            averages[tile] = (level.atomic_ms if shared else level.cost_ms)[tile] / items.size
        return averages


def _limit(average: float, slack: float) -> float:
    """Give the highest average that a pick of ``average`` takes along: ``slack`` of its size above it."""
    return average + slack * abs(average) if math.isfinite(slack) else math.inf


def _is_beyond(average: float, limit: float) -> bool:
    """Tell whether an average is above a limit, which the loops reckon in another order: but for the last digits."""
    return average > limit - 1e-12 * abs(limit)
