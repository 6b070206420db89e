"""Strategies of searches: which configs of a space a search times, and in which order.

Every strategy asks a race for times and decides which config to ask for next. No strategy owns a clock.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from spmark.impls.core.interfaces import Config
from spmark.impls.tuning.race import ConfigTime, Race
from spmark.impls.tuning.space import Space

CLEARLY_WORSE = 1.06
"""Multiple of the fastest time so far, from which a value of an ordered axis counts as clearly worse."""
HOPELESS = 1.3
"""Multiple of the race's fastest time, beyond which a walk is given up."""
_FEW = 4
"""Configs after which `while_hopeful` may give up."""
_ASKED = 2
"""Axes after which a first walk may be given up: the axes that bind most are settled by then."""


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
    if fastest(race.time_all(configs[:_FEW])).us <= HOPELESS * race.fastest_us:
        race.time_all(configs[_FEW:])


def walk(race: Race[Any], space: Space, fixed: Config, known: ConfigTime | None = None) -> ConfigTime:
    """Go along the axes of a space, each from the fastest config so far; give the fastest of this walk.

    The axis that binds a kernel hides all others: while a group of threads takes a long row by itself, neither its
    loads nor the work of a block make a difference beyond noise. So the axis that binds comes first, and a walk that
    knows of no earlier one goes along all axes twice.

    Parameters
    ----------
    race : Race
        Its fastest candidate decides whether the walk is hopeless and is given up.
    space : Space
        The axis that binds most stands first.
    fixed : dict
        Tunables of all configs of this walk.
    known : ConfigTime, optional
        The fastest of earlier walks, from which this one begins, too.
    """
    starts = [{}, known.config] if known else [{}]
    best = exhaustive(race, [_begin(space, fixed, start) for start in starts])
    for asked in (0,) if known else (_ASKED, 0):
        begun = best
        for number, axis in enumerate(space.axes):
            if number == asked and best.us > HOPELESS * race.fastest_us:
                return best
            best = exhaustive(race, [best.config, *({**best.config, **value} for value in axis.values)])
        if best == begun:
            break
    return best


def _begin(space: Space, fixed: Config, known: Config) -> Config:
    """Give the config where a walk begins: on every axis the known value, else the axis's first value."""
    begun = dict(fixed)
    for axis in space.axes:
        begun |= next((value for value in axis.values if value.items() <= known.items()), axis.values[0])
    return begun
