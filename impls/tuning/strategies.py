"""Strategies of searches: which configs of a space a search times, and in which order.

Every strategy asks a race for times and decides which config to ask for next. No strategy owns a clock.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from spmark.impls.core.interfaces import Config
from spmark.impls.tuning.race import FAR, ConfigTime, Race
from spmark.impls.tuning.space import Axis, Space, key_of

CLEARLY_WORSE = 1.06
"""Multiple of the fastest time so far, from which a value of an ordered axis counts as clearly worse."""
FRONT = 2
"""Most tied configs that a walk goes on from."""
HOPELESS = (1.3, 1.1)
"""Multiples of the race's fastest time, beyond which a walk is given up: in its first round, and before its second."""
_FEW = 4
"""Configs after which `while_hopeful` may give up."""
_ASKED = 2
"""Axes after which the first round of a walk may be given up: the axes that bind most are settled by then."""


def exhaustive(race: Race[Any], configs: Iterable[Config]) -> ConfigTime:
    """Time every config; give the fastest, or the first of several with equal times."""
    return fastest(race.time_all(configs))


def by_turns(race: Race[Any], groups: Iterable[Sequence[Config]]) -> None:
    """Compile the kernels of all groups side by side, then time the configs of each group by turns."""
    batches = list(groups)
    race.prepare(config for batch in batches for config in batch)
    for batch in batches:
        race.time_by_turns(batch)


def fastest(timed: Sequence[ConfigTime]) -> ConfigTime:
    """Give the fastest, or the first of several with equal times."""
    return min(timed, key=lambda one: one.us)


def first_built(race: Race[Any], configs: Sequence[Config], most: int) -> ConfigTime:
    """Time configs in their order until ``most`` of them have times, compiled side by side; give the fastest."""
    timed: list[ConfigTime] = []
    while missing := most - sum(math.isfinite(one.us) for one in timed):
        some = configs[len(timed) : len(timed) + missing]
        if not some:
            break
        timed += race.time_all(some)
    return fastest(timed)


def along(race: Race[Any], config: Config, axis: str, values: Iterable[Any]) -> Config:
    """Give ``config`` with the best value of one ordered axis.

    A value replaces another where it is faster beyond the errors of both times, so that noise alone moves nothing. Two
    clearly worse values in a row end the search along the axis.
    """
    candidates = [one for value in values if (one := {**config, axis: value}) != config]
    race.prepare([config, *candidates])  # also what an early end leaves out: the cores wait otherwise
    best, worse = race.time(config), 0
    for candidate in candidates:
        timed = race.time(candidate)
        if timed.us < best.us and not timed.ties(best):
            best, worse = timed, 0
        elif timed.us > CLEARLY_WORSE * best.us:
            worse += 1
            if worse == 2:
                break
    return best.config


def both_ways(race: Race[Any], config: Config, axis: str, values: Iterable[int]) -> Config:
    """Walk `along` an axis of numbers from where ``config`` stands: first to lesser values, then to greater ones."""
    rising = sorted(values)
    lesser = [value for value in rising[::-1] if value < config[axis]]
    greater = [value for value in rising if value > config[axis]]
    return along(race, along(race, config, axis, lesser), axis, greater)


def while_hopeful(race: Race[Any], configs: Sequence[Config]) -> None:
    """Time configs, but only the first `_FEW` where all of these are far slower than the race's fastest."""
    if fastest(race.time_all(configs[:_FEW])).us <= HOPELESS[0] * race.fastest_us:
        race.time_all(configs[_FEW:])


class Walk:
    """Walks along the axes of spaces; each walk also begins with the best config of earlier walks.

    The axis that binds a kernel hides all others: while a group of threads takes a long row by itself, neither its
    loads nor the work of a block make a difference beyond noise. So the axis that binds comes first, the walk goes
    along all axes a second time, and it goes on from both of two tied configs.

    Parameters
    ----------
    race : Race
        Its fastest candidate decides which walks are hopeless.
    """

    def __init__(self, race: Race[Any]) -> None:
        self._race = race
        self._seen: list[ConfigTime] = []
        self._known: ConfigTime | None = None
        self._far: set[str] = set()

    def walk(self, space: Space, fixed: Config) -> None:
        """Walk through a space; go along all axes a second time where this is the first walk.

        Parameters
        ----------
        space : Space
            The axis that binds most stands first.
        fixed : dict
            Tunables of all configs of this walk.
        """
        known, self._seen = self._known, []
        starts = [{}, known.config] if known else [{}]
        front = _front(self._timed([_begin(space, fixed, start) for start in starts]))
        for turn, limit in enumerate(HOPELESS[: 1 if known else 2]):
            reached = self._round(space, front, limit, 0 if known or turn else _ASKED)
            if reached is None and turn == 0:
                return
            if reached is None or reached == front:
                break
            front = reached
        best = fastest(self._seen)
        if best.us < (known.us if known else math.inf):  # nothing is known of a walk in which every config failed
            self._known = best

    def _timed(self, configs: Sequence[Config]) -> list[ConfigTime]:
        timed = self._race.time_all(configs)
        self._seen += timed
        return timed

    def _round(self, space: Space, front: list[ConfigTime], limit: float, asked: int) -> list[ConfigTime] | None:
        """Go along all axes; None where the walk is given up, which may happen only after ``asked`` axes."""
        for number, axis in enumerate(space.axes):
            if number == asked and front[0].us > limit * self._race.fastest_us:
                return None
            front = self._along(axis, front)
        return front

    def _along(self, axis: Axis, front: list[ConfigTime]) -> list[ConfigTime]:
        """Try the values of an axis, but those once far behind, on each config of the front; give the next front."""
        values = [value for value in axis.values if key_of(value) not in self._far]
        configs = [{**one.config, **value} for value in values for one in front]
        timed = self._timed(configs)
        reached = _front([*front, *timed])
        far = FAR * reached[0].us
        for number, value in enumerate(values):
            if fastest(timed[number * len(front) : (number + 1) * len(front)]).us > far:
                self._far.add(key_of(value))
        return reached


def _begin(space: Space, fixed: Config, known: Config) -> Config:
    """Give the config where a walk begins: on every axis the known value, else the axis's first value."""
    begun = dict(fixed)
    for axis in space.axes:
        begun |= next((value for value in axis.values if value.items() <= known.items()), axis.values[0])
    return begun


def _front(timed: Sequence[ConfigTime]) -> list[ConfigTime]:
    """Give the fastest config and the configs that tie with it, the earliest of them, `FRONT` in all."""
    best = fastest(timed)
    ties = [one for number, one in enumerate(timed) if one not in timed[:number] and one.ties(best)]
    return ties[:FRONT] if best in ties[:FRONT] else [best, *ties[: FRONT - 1]]
