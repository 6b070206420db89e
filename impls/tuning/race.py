"""One way to compare candidates: every search of the tree builds, checks, times and accounts for them here.

A benchmark that tunes its systems by unequal tuners compares tuners. The rules that hold for all systems stand here
once: how many samples a candidate gets, when two times are tied, when a candidate is given up, which candidates are
timed again at the end, what a search may cost and what is kept of it. Systems differ by their space and by their
strategy (`spmark.impls.tuning.strategies`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import numpy as np

from spmark.impls.core.errors import BuildError, SpmarkError
from spmark.impls.core.interfaces import Built, Candidate, Config, Plan, Search
from spmark.impls.tuning.space import key_of

if TYPE_CHECKING:
    from spmark.impls.core.devicespec import DeviceSpec
    from spmark.impls.core.relational import AnyProblem
    from spmark.impls.tuning.timer import PlanTimer

P = TypeVar("P", bound=Plan)

FIRST = MORE = 5
"""Samples of every candidate, and further samples of a candidate that is not far behind."""
FAR = 1.25
"""Multiple of the fastest time so far, beyond which a candidate is far behind."""
FINALISTS = 5
"""Fastest candidates that are timed once more, in alternation."""
TIED = 1.5
"""Standard errors of a difference, up to which two times are tied."""
_NORMAL_QUARTILES = 1.349
"""Standard deviations between the quartiles of a normal distribution."""
_WIDEST = 3
"""The quartile above a median counts as at most that many times as far away as the quartile below. What disturbs a run
makes the run longer: three of ten disturbed samples would move the upper quartile, and a slow candidate would tie."""
_ERROR_OF_MEDIAN = 1.2533
"""Standard error of the median of n normal samples, in standard deviations over the root of n."""


class ConfigTime(NamedTuple):
    """A config and its median time."""

    config: Config
    us: float
    """Infinite where the config cannot be built, gives a wrong result or was not tried."""
    error_us: float = 0.0
    """Standard error of the median."""

    @classmethod
    def of(cls, config: Config, samples_us: Sequence[float]) -> ConfigTime:
        """Take the median of samples; its error comes from their quartiles, which few disturbed samples do not move."""
        low, middle, high = np.percentile(samples_us, (25, 50, 75))
        below = middle - low
        deviation = (below + min(high - middle, _WIDEST * below)) / _NORMAL_QUARTILES
        return cls(config, float(middle), float(_ERROR_OF_MEDIAN * deviation / math.sqrt(len(samples_us))))

    def ties(self, other: ConfigTime) -> bool:
        """Tell whether the two times differ by too little, given their errors, to say which is the faster."""
        return abs(self.us - other.us) <= TIED * math.hypot(self.error_us, other.error_us)


@dataclass(eq=False)
class _Entrant(Generic[P]):
    """A config that the search has asked for."""

    timed: ConfigTime
    record: Candidate
    plan: P | None = None
    """Of a candidate among the fastest, unless it made room for another candidate."""

    def add(self, samples_us: Sequence[float]) -> ConfigTime:
        """Record further samples; give the median of these alone."""
        self.record = replace(self.record, samples_us=(*self.record.samples_us, *samples_us))
        return ConfigTime.of(self.timed.config, samples_us)


class Race(Generic[P]):
    """Candidates of one problem: each is built, checked and timed once.

    Parameters
    ----------
    build : callable
        Gives the plan of a config; raises SpmarkError or MemoryError where the plan cannot be built.
    timer : PlanTimer
    prepare : callable, optional
        Compiles the kernels of several configs side by side. A kernel that does not compile raises again in ``build``.
    predict : callable, optional
        Score of a cost model for a config, lower is better; the score is recorded and decides nothing. None where
        the model has no score for the config.
    trusts : callable, optional
        Tells whether a config's result need not be checked; by default every result is checked.
    compiled : callable, optional
        Counts the kernels that were compiled; by default every candidate that ran counts as one.
    budget_s : float
        Seconds after which no further candidate is tried; the race is then among those that have been timed.
    finalists : int
        Fastest candidates whose plans are kept for `finish`; 0 where only times are asked for.
    """

    def __init__(
        self,
        build: Callable[[Config], P],
        timer: PlanTimer,
        *,
        prepare: Callable[[Sequence[Config]], None] | None = None,
        predict: Callable[[Config], float | None] | None = None,
        trusts: Callable[[Config], bool] | None = None,
        compiled: Callable[[], int] | None = None,
        budget_s: float = math.inf,
        finalists: int = FINALISTS,
    ) -> None:
        self._build, self._timer, self._prepare, self._predict = build, timer, prepare, predict
        self._trusts, self._compiled = trusts, compiled
        self._budget_s, self._most_finalists = budget_s, finalists
        self._entrants: dict[str, _Entrant[P]] = {}
        self._finalists: list[_Entrant[P]] = []
        self._spent = Built()
        self._started = perf_counter()
        self.fastest_us = math.inf
        """Least median so far; infinite before the first."""

    @property
    def seen(self) -> list[ConfigTime]:
        """Every config that was asked for, in the order of asking."""
        return [one.timed for one in self._entrants.values()]

    def prepare(self, configs: Iterable[Config]) -> None:
        """Compile the kernels of configs side by side, so that timing one config does not wait for a compiler."""
        waiting = [config for config in configs if key_of(config) not in self._entrants]
        if self._prepare and waiting:
            with self._spent.phase("compile"), suppress(SpmarkError):  # the one to blame raises again when it is built
                self._prepare(waiting)

    def time(self, config: Config) -> ConfigTime:
        """Give the median time of a config; a config is built and timed once, however often it is asked for."""
        return self.time_by_turns([config])[0]

    def time_by_turns(self, configs: Iterable[Config]) -> list[ConfigTime]:
        """Time several configs in alternation: a plan that follows itself may find its own code in caches.

        The plans of all these configs are in memory at once.
        """
        wanted = [(key_of(config), config) for config in configs]
        ready: list[_Entrant[P]] = []
        for key, config in wanted:
            if key in self._entrants:
                continue
            predicted = self._predict(config) if self._predict else None
            one = self._entrants[key] = _Entrant(ConfigTime(config, math.inf), Candidate(dict(config), predicted))
            with self._reasons([one]):
                self._ask_budget()
                one.plan = self._made(config)
                ready.append(one)
        if ready:
            with self._reasons(ready):
                self._enter(ready)
        return [self._entrants[key].timed for key, _ in wanted]

    def candidate(self, config: Config) -> Candidate:
        """Time a config as `time` does; give all of its samples, or the reason why it has none."""
        self.time(config)
        return self._entrants[key_of(config)].record

    def time_all(self, configs: Iterable[Config]) -> list[ConfigTime]:
        """Time several configs, compiled side by side."""
        wanted = list(configs)
        self.prepare(wanted)
        return [self.time(config) for config in wanted]

    def finish(self, preferred: Iterable[Config] = ()) -> tuple[Config, P]:
        """Time the finalists once more, in alternation, and give the config and the plan of the fastest.

        The least of hundreds of medians of a few samples is mostly luck. Where the last times tie, the first of
        ``preferred`` wins, then the candidate that the search met first: strategies begin with simple configs.

        Raises
        ------
        BuildError
            No candidate could be used; carries the reasons. Or memory is left for the plan of none.
        """
        met = [self._entrants[key] for key in dict.fromkeys([*map(key_of, preferred), *self._entrants])]
        if not self._finalists:
            reasons = "; ".join(dict.fromkeys(one.record.reason for one in met if one.record.reason))
            raise BuildError(f"expected one of {len(met)} candidates to build and to be right, found none: {reasons}")
        able, plans = list[_Entrant[P]](), list[P]()
        for one in sorted(self._finalists, key=met.index):
            with suppress(MemoryError):
                plans.append(one.plan or self._build(one.timed.config))
                able.append(one)
        if not plans:
            raise BuildError(
                f"expected memory to build one of the {len(self._finalists)} fastest candidates again, found too "
                "little for each: free memory, or take a smaller matrix or width"
            )
        times = [one.timed for one in able]
        if len(plans) > 1:
            with self._spent.phase("run"):
                samples = self._timer.alternating_us(plans)
            times = [one.add(own) for one, own in zip(able, samples, strict=True)]
        best = min(times, key=lambda timed: timed.us)
        winner, plan = next((timed, plan) for timed, plan in zip(times, plans, strict=True) if timed.ties(best))
        self._spent.charge({"compile": -plan.phases_s.get("compile", 0.0)})  # the plan reports these seconds
        return winner.config, plan

    def describe(self, cores: int = 1, eligible: int = 0) -> Search:
        """Tell what was considered, measured and spent."""
        seen = tuple(one.record for one in self._entrants.values())
        measured = sum(bool(candidate.samples_us) for candidate in seen)
        return Search(
            candidates=len(seen),
            compiled=self._compiled() if self._compiled else measured,
            measured=measured,
            cores=cores,
            seen=seen,
            eligible=eligible,
            compile_s=max(0.0, self._spent.phases_s.get("compile", 0.0)),
            run_s=self._spent.phases_s.get("run", 0.0),
        )

    @contextmanager
    def _reasons(self, entrants: Sequence[_Entrant[P]]) -> Iterator[None]:
        """Keep why some candidates have no times."""
        try:
            yield
        except (SpmarkError, MemoryError) as error:
            for one in entrants:
                one.record, one.plan = replace(one.record, reason=str(error) or type(error).__name__), None

    def _ask_budget(self) -> None:
        """Refuse a candidate beyond the budget; the first one is always tried."""
        before, spent = len(self._entrants) - 1, perf_counter() - self._started
        if before and spent >= self._budget_s:
            raise BuildError(f"not tried: the search's budget ended after {before} candidates and {spent:.1f} s")

    def _made(self, config: Config) -> P:
        """Build and check a plan; where memory is short, drop the plans of the finalists and try once more."""
        try:
            return self._made_once(config)
        except MemoryError:
            if not any(one.plan for one in self._finalists):
                raise
            for one in self._finalists:
                one.plan = None
            return self._made_once(config)

    def _made_once(self, config: Config) -> P:
        plan = self._build(config)
        self._spent.charge({"compile": plan.phases_s.get("compile", 0.0)})
        if not (self._trusts and self._trusts(config)):
            with self._spent.phase("run"):
                self._timer.check(plan)
        return plan

    def _enter(self, ready: Sequence[_Entrant[P]]) -> None:
        """Time plans by turns, a few samples of each, more of those not far behind; keep the plans of the fastest."""
        with self._spent.phase("run"):
            samples = self._times_us(ready, FIRST)
            medians = [float(np.median(times)) for times in samples]
            far = FAR * min(self.fastest_us, *medians)
            hopeful = [number for number, median in enumerate(medians) if median < far]
            for number, more in zip(hopeful, self._times_us([ready[at] for at in hopeful], MORE), strict=True):
                samples[number] += more
        for one, times in zip(ready, samples, strict=True):
            one.timed = one.add(times)
            self.fastest_us = min(self.fastest_us, one.timed.us)
        ranked = sorted([*self._finalists, *ready], key=lambda one: one.timed.us)
        self._finalists = ranked[: self._most_finalists]
        for one in ranked[self._most_finalists :]:
            one.plan = None

    def _times_us(self, entrants: Sequence[_Entrant[P]], rounds: int) -> list[list[float]]:
        plans = [one.plan for one in entrants if one.plan is not None]
        return self._timer.times_us(plans, rounds) if plans else []


def fastest_plan(problem: AnyProblem, device: DeviceSpec, build: Callable[[Config], P], configs: Iterable[Config]) -> P:
    """Race a few configs and give the plan of the fastest, with what the race cost; nothing is kept on disk.

    Raises
    ------
    BuildError
        No config could be used, with the reasons.
    """
    from spmark.impls.tuning.timer import timer_of

    own = Built()
    with own.phase("search"):
        race = Race(build, timer_of(problem, device))
        race.time_all(configs)
        _, best = race.finish()
    best.charge({"search": own.phases_s["search"] - sum(best.phases_s.values())})
    best.search = race.describe()
    return best
