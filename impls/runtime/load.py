"""Measure what other processes do on this process's cores, from the system's own accounts of time."""

from __future__ import annotations

import os
import time
from contextlib import suppress

import psutil

from spmark.impls.core.machine import Load, allowed_cores

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
        now, cores = self._accounts(), len(self._cores)
        elapsed, used, own = (after - before for before, after in zip(self._made, now, strict=True))
        # Some containers keep no accounts: the numbers stay at 0.
        if elapsed < LEAST_S or not now[1]:
            return Load(cores, None, _load_average())
        taken = min(max(0.0, used - own) / elapsed, float(cores))
        return Load(cores, round(cores - taken, 2), _load_average())

    def _accounts(self) -> tuple[float, float, float]:
        """Give seconds on the clock, seconds in which the cores were used, and this process's part of these."""
        each = psutil.cpu_times(percpu=True)
        used = sum(getattr(each[core], name, 0.0) for core in self._cores if core < len(each) for name in _USED)
        own = os.times()
        return time.monotonic(), used, own.user + own.system + own.children_user + own.children_system


def _load_average() -> float | None:
    with suppress(AttributeError, OSError):
        return round(os.getloadavg()[0], 2)
    return None
