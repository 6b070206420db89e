"""Which schedules of a form are fastest: walks along axes that noise does not decide.

What binds a form hides what does not: while a group of threads takes a long row by itself, neither its loads nor the
work of a block make a difference that could be told from noise. So what binds is asked about first, the axes are gone
along again, and where two schedules cannot be told apart, both are walked on from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

Schedule = dict[str, Any]
"""Values of all axes."""
Axis = Sequence[Schedule]
"""What is tried along it, each with the same names; a walk begins with the first."""

FRONT = 2
"""Schedules that cannot be told apart and are walked on from."""
_ERRORS = 1.5
"""Standard errors of a difference, up to which two times cannot be told apart."""
_FAR = 1.25
"""Times the fastest so far, beyond which a value of an axis is not tried again."""
_HOPELESS = (1.3, 1.1)
"""Times the fastest of all forms, beyond which a form is given up: at first, and before a second round."""
_TOLD = 2
"""Axes after which that is asked at first; by then what binds most is settled."""


class Timed(NamedTuple):
    """A schedule and its median time."""

    schedule: Schedule
    us: float
    """Infinite where it cannot be built or is wrong."""
    error_us: float = 0.0
    """Standard error of the median."""

    @classmethod
    def of(cls, schedule: Schedule, samples_us: Sequence[float]) -> Timed:
        """Take the median of samples, and its error from their quartiles, so that an outlier does not make it large.

        Of a normal distribution the quartiles are 1.349 deviations apart, and the error of a median of n samples is
        1.2533 deviations over the root of n.
        """
        low, middle, high = np.percentile(samples_us, (25, 50, 75))
        return cls(schedule, float(middle), float(1.2533 / 1.349 * (high - low) / math.sqrt(len(samples_us))))

    def ties(self, other: Timed) -> bool:
        """Tell whether the two cannot be told apart."""
        return abs(self.us - other.us) <= _ERRORS * math.hypot(self.error_us, other.error_us)


class Walks:
    """Walks through the schedules of forms of one kind; each begins with what was found of those before.

    Parameters
    ----------
    fastest_us : callable
        The fastest of all forms so far: those that are far behind it are given up.
    """

    def __init__(self, fastest_us: Callable[[], float]) -> None:
        self._fastest_us = fastest_us
        self._known: Timed | None = None
        self._far: set[str] = set()

    def walk(self, axes: Sequence[Axis], time: Callable[[Schedule], Timed]) -> None:
        """Walk along the axes from the fastest so far; twice where nothing was known of forms of this kind.

        Parameters
        ----------
        axes : sequence of Axis
            What binds a form first.
        time : callable
            Times a schedule; asked once for each.
        """
        known, seen = self._known, dict[str, Timed]()

        def timed(schedule: Schedule) -> Timed:
            return seen.get(str(schedule)) or seen.setdefault(str(schedule), time(schedule))

        starts = [{}, known.schedule] if known else [{}]
        front = _front([timed(_beginning(axes, start)) for start in starts])
        for turn, limit in enumerate(_HOPELESS[: 1 if known else 2]):
            reached = self._round(axes, front, timed, limit, 0 if known or turn else _TOLD)
            if reached is None and turn == 0:
                return
            if reached is None or reached == front:
                break
            front = reached
        best = min(seen.values(), key=lambda one: one.us)
        if best.us < (known.us if known else math.inf):
            self._known = best

    def _round(
        self,
        axes: Sequence[Axis],
        front: list[Timed],
        timed: Callable[[Schedule], Timed],
        limit: float,
        asked: int,
    ) -> list[Timed] | None:
        """Go along all axes; None where the form is given up, which is asked after ``asked`` of them."""
        for number, axis in enumerate(axes):
            if number == asked and front[0].us > limit * self._fastest_us():
                return None
            front = self._along(axis, front, timed)
        return front

    def _along(self, axis: Axis, front: list[Timed], timed: Callable[[Schedule], Timed]) -> list[Timed]:
        """Try an axis from each of the front, but for what was far behind; give the next front."""
        tried = {
            str(value): [timed({**one.schedule, **value}) for one in front]
            for value in axis
            if str(value) not in self._far
        }
        reached = _front([*front, *(one for each in tried.values() for one in each)])
        far = _FAR * reached[0].us
        self._far |= {value for value, each in tried.items() if min(one.us for one in each) > far}
        return reached


def _beginning(axes: Sequence[Axis], known: Schedule) -> Schedule:
    """Give where a walk begins: of every axis what is known, where it is on it, else its first."""
    begun: Schedule = {}
    for axis in axes:
        begun |= next((value for value in axis if value.items() <= known.items()), axis[0])
    return begun


def _front(found: Sequence[Timed]) -> list[Timed]:
    """Keep what ties with the fastest, what was found before first; the fastest among it."""
    best = min(found, key=lambda one: one.us)
    ties = [one for number, one in enumerate(found) if one not in found[:number] and one.ties(best)]
    return ties[:FRONT] if best in ties[:FRONT] else [best, *ties[: FRONT - 1]]
