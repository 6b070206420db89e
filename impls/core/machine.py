"""The machine as a process finds it: the cores it may use, the load that others put on it, its environment.

Others' load makes a machine busy where times then mean little.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import psutil

from spmark.impls.core.errors import SpmarkError


def allowed_cores() -> list[int]:
    """List the cores that this process may use, rising: by its affinity where the system knows one, else all."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


T = TypeVar("T")
R = TypeVar("R")


def side_by_side(function: Callable[[T], R], tasks: Sequence[T], workers: int) -> list[R]:
    """Call ``function``, which waits for a compiler or releases Python's lock, with every task on so many threads.

    Results come in the order of the tasks. Where a call raises, tasks that have not begun are dropped.
    """
    if min(workers, len(tasks)) <= 1:
        return list(map(function, tasks))
    with ThreadPoolExecutor(min(workers, len(tasks))) as threads:
        return list(threads.map(function, tasks))


_MOST_SHARE = 0.1
_MOST_CORES = 0.5


@dataclass(frozen=True)
class Load:
    """The work of other processes; the asking process and its children do not count."""

    cores: int
    """Cores that the process may use."""
    free_cores: float | None
    """How many of these cores others left free on average; None where this is not known."""
    load_average: float | None = None
    """Load average of the last minute, own work included."""

    @property
    def taken_cores(self) -> float:
        """Cores that others took; 0 where this is not known."""
        return 0.0 if self.free_cores is None else max(0.0, self.cores - self.free_cores)

    @property
    def busy(self) -> bool:
        """Whether others took more than half a core and more than a tenth of the cores: times mean little then."""
        return self.taken_cores > max(_MOST_CORES, _MOST_SHARE * self.cores)

    def __str__(self) -> str:
        """Say in words how many cores others take."""
        return f"other processes take {self.taken_cores:.1f} of {self.cores} cores"


LEAST_S = 0.1
"""Seconds below which the accounts, kept in hundredths of a second, say nothing."""
_USED = ("user", "nice", "system", "irq", "softirq", "steal")
"""The accounts of a core's time that count as used; ``steal`` is time that other guests of the same host took."""


class LoadMeter:
    """Watches this process's cores from its creation on; each reading costs some microseconds a core."""

    def __init__(self) -> None:
        self._cores = allowed_cores()
        self._made = self._accounts()

    def read(self, least_s: float = 0.0) -> Load:
        """Give the load since the meter was made; wait first until that is ``least_s`` seconds ago.

        Work of a child process counts as this process's own once the child has ended.
        """
        time.sleep(max(0.0, self._made[0] + least_s - time.monotonic()))
        now, cores, average = self._accounts(), len(self._cores), round(psutil.getloadavg()[0], 2)
        elapsed, used, own = (after - before for before, after in zip(self._made, now, strict=True))
        # Some containers keep no accounts: the numbers stay at 0.
        if elapsed < LEAST_S or not now[1]:
            return Load(cores, None, average)
        taken = min(max(0.0, used - own) / elapsed, float(cores))
        return Load(cores, round(cores - taken, 2), average)

    def _accounts(self) -> tuple[float, float, float]:
        """Give seconds on the clock, seconds in which the cores were used, and this process's part of these."""
        each = psutil.cpu_times(percpu=True)
        used = sum(getattr(each[core], name, 0.0) for core in self._cores if core < len(each) for name in _USED)
        own = os.times()
        return time.monotonic(), used, own.user + own.system + own.children_user + own.children_system


_MOST_NUMBER = 1 << 30


def positive_number(variable: str, default: float, unit: str, error: type[SpmarkError]) -> float:
    """Read a positive number from the environment.

    Parameters
    ----------
    variable : str
    default : float
        Where the variable is missing or empty.
    unit : str
        Named in the message.
    error : type
        Of the exception.

    Raises
    ------
    SpmarkError
        Of the type ``error``: the variable holds something else.
    """
    text = os.environ.get(variable) or str(default)
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < _MOST_NUMBER:
        raise error(f"{variable}: expected a positive number of {unit}, found {text!r}")
    return number
