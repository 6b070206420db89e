"""How runs are timed: cold caches, interleaved with a baseline, until the medians are known well enough.

A memset of at least twice the L2 before every launch leaves no operand in the cache. Events bracket the work that one
`run` enqueues. A GPU begins a batch of samples when the whole batch is enqueued, so that no sample holds time of the
host. Samples are never dropped.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.enums import Flush

Run = Callable[[], None]
KERNELS = Path(__file__).parent / "kernels"
"""Kernels that measure, in no implementation."""
GATE = "timing.cu", "gate<32>"
"""The kernel that holds a stream back: its source among `KERNELS`, and its expression."""
DRAW, TAKE = ("checking.cu", "draw<{}, 256>"), ("checking.cu", "take<{}, 256>")
"""Kernels that draw operands and take out the rows that are compared; expressions lack the type of elements."""
_Z95 = 1.959963984540054


@dataclass(frozen=True)
class Stopping:
    """When the samples are enough."""

    half_width: float = 0.01
    """Relative half-width of the median's 95 % interval that every run must reach."""
    min_samples: int = 10
    max_samples: int = 1000
    max_seconds: float = 1.0
    """Time cap of one case, baseline included; `min_samples` are taken even beyond it."""
    warmups: int = 3
    batch: int = 10
    """Samples between two looks at the clock, the throttle state and the interval."""


@dataclass
class Samples:
    """Samples of several runs, and states of the device meanwhile."""

    times_us: list[list[float]]
    """One list of samples for every run, in the order taken."""
    clocks_mhz: list[float] = field(default_factory=list)
    throttled: list[str] = field(default_factory=list)


class Stopwatch(Protocol):
    """Times runs on one device."""

    @abstractmethod
    def batch(self, runs: Sequence[Run], rounds: int, cold: bool) -> NDArray[np.float64]:
        """Run every run once a round, each after a flush where ``cold``; give (len(runs), rounds) microseconds."""

    def state(self) -> tuple[float, list[str]]:
        """Give the clock in MHz (0: unknown) and the reasons for which it is lowered."""
        return 0.0, []


def half_width(samples: Sequence[float] | NDArray[np.float64]) -> float:
    """Give the relative half-width of the median's 95 % interval.

    The ends of the interval are order statistics, distribution-free, by the normal approximation of the binomial. Fewer
    than six samples have no such interval and give infinity.
    """
    ordered = np.sort(np.asarray(samples, np.float64))
    n = ordered.size
    if n < 6:
        return float("inf")
    reach = _Z95 * np.sqrt(n) / 2
    low, high = int(np.floor(n / 2 - reach)), int(np.ceil(n / 2 + reach))
    return float((ordered[min(high, n - 1)] - ordered[max(low, 0)]) / 2 / np.median(ordered))


def take_samples(stopwatch: Stopwatch, runs: Sequence[Run], stopping: Stopping, cold: bool = True) -> Samples:
    """Time ``runs`` in alternation until every median is known to ``stopping.half_width`` or time is up.

    Parameters
    ----------
    stopwatch : Stopwatch
        Of the device that the runs enqueue on.
    runs : sequence of callables
        The case first, then the runs that take turns with the case.
    stopping : Stopping
        When to stop.
    cold : bool
        Flush the caches before every sample.
    """
    stopwatch.batch(runs, stopping.warmups, cold)
    samples = Samples([[] for _ in runs])
    started = perf_counter()
    while len(samples.times_us[0]) < stopping.max_samples:
        taken, spent = len(samples.times_us[0]), perf_counter() - started
        rounds = stopping.min_samples - taken if spent < stopping.max_seconds else 1
        if taken >= stopping.min_samples:
            if spent >= stopping.max_seconds or all(half_width(t) < stopping.half_width for t in samples.times_us):
                break
            # The last batch must not run far over the cap: it has as many rounds as fit, at least one.
            rounds = max(1, int((stopping.max_seconds - spent) * taken / max(spent, 1e-9)))
        rounds = min(rounds, stopping.batch)
        for collected, times in zip(samples.times_us, stopwatch.batch(runs, rounds, cold), strict=True):
            collected.extend(round(float(t), 3) for t in times)
        clock, reasons = stopwatch.state()
        if clock:
            samples.clocks_mhz.append(clock)
        samples.throttled += [reason for reason in reasons if reason not in samples.throttled]
    return samples


class HostStopwatch(Stopwatch):
    """Times host runs by the monotonic clock, after writing a buffer twice the last-level cache.

    Parameters
    ----------
    cache_bytes : int
        Last-level cache; the buffer is capped at 256 MB.
    flush : Flush
        ``READ`` reads a second buffer of the cache's size, capped likewise, after the first was written.
    """

    def __init__(self, cache_bytes: int, flush: Flush = Flush.WRITE) -> None:
        self._flush = np.zeros(min(2 * cache_bytes, 256 << 20) // 8 or 1, np.int64)
        self._read = np.ones(min(cache_bytes, 256 << 20) // 8 if flush is Flush.READ else 0, np.int64)

    def batch(self, runs: Sequence[Run], rounds: int, cold: bool) -> NDArray[np.float64]:
        """Time one call of every run a round."""
        times = np.empty((len(runs), rounds))
        for turn in range(rounds):
            for index, run in enumerate(runs):
                if cold:
                    self._flush += 1
                    self._read.sum()
                started = perf_counter()
                run()
                times[index, turn] = (perf_counter() - started) * 1e6
        return times


class StepStopwatch(Stopwatch):
    """Times steps of networks by the clock, until the device has finished each: launches are a part of a step.

    Parameters
    ----------
    device : Stopwatch
        Of the device, which is asked for its clock.
    finish : callable
        Waits for the device.
    """

    def __init__(self, device: Stopwatch, finish: Callable[[], None]) -> None:
        self.state, self._finish, self._watch = device.state, finish, HostStopwatch(0)  # type: ignore[method-assign]

    def batch(self, runs: Sequence[Run], rounds: int, cold: bool) -> NDArray[np.float64]:
        """Time one call of every run a round, whose caches are as the step before left them."""

        def step(run: Run) -> None:
            run()
            self._finish()

        self._finish()
        return self._watch.batch([partial(step, run) for run in runs], rounds, cold=False)
