"""From searched tiles to plans: conversion, schedules, and which plan is fastest when they are run.

The paper compares the mixture with both formats alone by their measured times (Fang et al., SIGMOD 2024, section 3.3)
and measures a kernel's variants as well (section 4); the cost model only says which tiles each is made of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import BuildError, SpmarkError
from spmark.impls.core.interfaces import Built, Candidate, DeviceArray, Search
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.formats.hyb import HybFormat
from spmark.impls.formats.tiles import TileFormat
from spmark.impls.kernels.ell_buckets import EllBucketsPlan
from spmark.impls.kernels.sddmm import SddmmPlan
from spmark.impls.kernels.tile_sddmm import TileSddmmPlan
from spmark.impls.kernels.tile_spmm import TileSpmmPlan
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import Target
from spmark.impls.stile.forms import Form
from spmark.impls.stile.schedule import axes_of, block_tiles, ell_tiles, middle, run_schedules, tile_schedules
from spmark.impls.stile.space import Order
from spmark.impls.stile.walk import Axis, Schedule, Timed, Walks

if TYPE_CHECKING:
    from spmark.impls.kernels.trial import Trial

_HOPELESS = 1.3
"""Times the best plan so far, beyond which a form's schedules of SDDMM are not tried any further."""
_FEW = 3
"""Schedules of SDDMM after which that is asked."""
_SAMPLES = (5, 10)
"""Samples of every plan, and how many more of one that is not far behind."""
_BEHIND = 1.25
"""Times the fastest so far, from which a plan is far behind."""
_FINALISTS = 5
"""Fastest plans of all forms that are timed once more, in alternation."""


class _Tried(NamedTuple):
    """A plan that was timed."""

    us: float
    number: int
    """Of its candidate."""
    plan: DevicePlan


@dataclass(eq=False)
class Bench:
    """Plans of one problem: built from forms, measured, and told."""

    problem: Problem
    target: Target
    facts: Mapping[str, Any]
    """Of every config."""
    seen: list[Candidate] = field(default_factory=list)
    compile_s: float = 0.0
    """Seconds in which candidates were compiled, but for the one that is kept."""
    run_s: float = 0.0
    """Seconds in which they were run: checked and timed."""

    def build(self, form: Form) -> DevicePlan:
        """Convert a form and build it with a schedule from the middle."""
        converted = _Converted(self.problem, self.target, form, self.facts)
        self.seen.append(Candidate(form.facts, form.found.predicted_ms * 1e-3))
        return converted.plan(converted.schedules()[0])

    def fastest(self, forms: Sequence[Form], device: DeviceSpec) -> DevicePlan:
        """Build and time every form with several schedules; give the fastest plan.

        A plan is timed by itself, and the fastest of all are timed once more in alternation.

        Raises
        ------
        BuildError
            Nothing could be built, or every result was wrong; says why.
        """
        from spmark.impls.kernels.trial import Trial

        trial = Trial(self.problem, device)
        leaders: list[_Tried] = []

        def best_us() -> float:
            return leaders[0].us if leaders else float("inf")

        walks: dict[tuple[bool, bool], Walks] = {}
        for form in sorted(forms, key=lambda form: form.found.predicted_ms):
            try:
                converted = _Converted(self.problem, self.target, form, self.facts)
            except (SpmarkError, MemoryError) as error:
                self._fails(form, {}, error)
                continue
            time = partial(self._time, trial, leaders, converted)
            if self.problem.op is Op.SDDMM:
                _try_all(converted.schedules(), time, best_us)
            else:
                walks.setdefault(converted.kind, Walks(best_us)).walk(converted.axes(), time)
        if not leaders:
            reason = next((one.reason for one in reversed(self.seen) if one.reason), "nothing was searched")
            raise BuildError(f"expected a plan out of {len(self.seen)} to build and to be right, found none: {reason}")
        return self._last_round(trial, leaders)

    def _time(self, trial: Trial, leaders: list[_Tried], converted: _Converted, schedule: Schedule) -> Timed:
        """Build and time a plan, and keep it where it is among the fastest."""
        form = converted.form
        try:
            plan = converted.plan(schedule)
            self.compile_s += plan.phases_s.get("compile", 0.0)
            samples = self._samples_us(trial, plan, _BEHIND * leaders[0].us if leaders else float("inf"))
        except (SpmarkError, MemoryError) as error:
            self._fails(form, schedule, error)
            return Timed(schedule, float("inf"))
        found = Timed.of(schedule, samples)
        leaders.append(_Tried(found.us, len(self.seen), plan))
        leaders.sort()
        del leaders[_FINALISTS:]
        self.seen.append(Candidate({**form.facts, **schedule}, form.found.predicted_ms * 1e-3, tuple(samples)))
        return found

    def _samples_us(self, trial: Trial, plan: DevicePlan, behind_us: float) -> list[float]:
        started = perf_counter()
        try:
            trial.check(plan)
            samples = trial.times_us(plan, _SAMPLES[0])
            if float(np.median(samples)) < behind_us:
                samples += trial.times_us(plan, _SAMPLES[1])
            return samples
        finally:
            self.run_s += perf_counter() - started

    def _fails(self, form: Form, schedule: Schedule, error: Exception) -> None:
        reason = str(error) or type(error).__name__
        self.seen.append(Candidate({**form.facts, **schedule}, form.found.predicted_ms * 1e-3, reason=reason))

    def _last_round(self, trial: Trial, leaders: Sequence[_Tried]) -> DevicePlan:
        """Time the fastest once more, in alternation, and give the fastest of these times."""
        best = leaders[0]
        if len(leaders) > 1:
            started = perf_counter()
            times = trial.alternating_us([one.plan for one in leaders])
            self.run_s += perf_counter() - started
            for one, samples in zip(leaders, times, strict=True):
                candidate = self.seen[one.number]
                self.seen[one.number] = replace(candidate, samples_us=(*candidate.samples_us, *samples))
            best = leaders[int(np.argmin([np.median(samples) for samples in times]))]
        self.compile_s -= best.plan.phases_s.get("compile", 0.0)
        return best.plan

    def describe(self, cores: int) -> Search:
        """Tell what was considered and measured."""
        measured = sum(bool(candidate.samples_us) for candidate in self.seen)
        return Search(
            candidates=len(self.seen),
            compiled=measured,
            measured=measured,
            cores=cores,
            seen=tuple(self.seen),
            compile_s=max(0.0, self.compile_s),
            run_s=self.run_s,
        )


def _try_all(schedules: Sequence[Schedule], time: Callable[[Schedule], Timed], best_us: Callable[[], float]) -> None:
    """Have schedules of SDDMM timed, few of them where a form is hopeless."""
    own_us = float("inf")
    for number, schedule in enumerate(schedules):
        own_us = min(own_us, time(schedule).us)
        if number == _FEW and own_us > _HOPELESS * best_us():
            return


class _Converted:
    """A form on the target, for any number of schedules."""

    def __init__(self, problem: Problem, target: Target, form: Form, facts: Mapping[str, Any]) -> None:
        self.form = form
        self._problem, self._target = problem, target
        self._config = {**facts, **form.facts}
        self._arrays: Sequence[DeviceArray] = ()
        self._first_s: Mapping[str, float] = {}
        self._accounts = Built()
        with self._accounts.phase("convert"):
            self._held = TileFormat.from_csr(problem.matrix, form.found.selection)

    def schedules(self) -> list[Schedule]:
        """List schedules; the first is what is taken where nothing is measured."""
        width, dtype = self._problem.width, self._problem.dtype
        if self._problem.op is Op.SDDMM:
            return tile_schedules(width) if self._held.blocks else run_schedules(width, dtype)
        return [middle(tile) for tile in self._tiles()]

    def _tiles(self) -> list[Schedule]:
        width, dtype = self._problem.width, self._problem.dtype
        return block_tiles(width, dtype) if self._held.blocks else ell_tiles(width, dtype)

    @property
    def kind(self) -> tuple[bool, bool]:
        """Whether there are block tiles, and ELL rows."""
        return bool(self._held.blocks), self.form.widest > 0

    def axes(self) -> list[Axis]:
        """List the axes of a schedule of SpMM."""
        blocks, _ = self.kind
        return axes_of(self._tiles(), self.form.widest, blocks, self._problem.dtype is DType.FLOAT16)

    def plan(self, schedule: Schedule) -> DevicePlan:
        """Build with a schedule; what all plans of the form share is told by each."""
        plan = self._built(schedule)
        if not self._first_s:
            self._first_s = dict(plan.phases_s)
        for phase in ("convert", "upload"):
            own_s = max(plan.phases_s.get(phase, 0.0), self._first_s.get(phase, 0.0))
            plan.phases_s[phase] = own_s + self._accounts.phases_s.get(phase, 0.0)
        return plan

    def _built(self, schedule: Schedule) -> DevicePlan:
        problem, target, held = self._problem, self._target, self._held
        if problem.op is Op.SDDMM:
            if held.blocks:
                in_tiles = self._config.get("order") == Order.TILES
                return TileSddmmPlan(problem, target, held, self._config, in_tiles=in_tiles, **schedule)
            # Runs alone stand in CSR order, whatever was asked for.
            return SddmmPlan(problem, target, {**self._config, "order": str(Order.CSR)}, **schedule)
        if held.blocks:
            plan: TileSpmmPlan | EllBucketsPlan = TileSpmmPlan(
                problem, target, held, self._config, arrays=self._arrays, **schedule
            )
        else:
            ell = held.ell or _no_rows(held.shape)
            plan = EllBucketsPlan(
                problem,
                target,
                ell,
                {**self._config, "by_row": schedule.get("by_row", False)},
                positions=self.form.positions,
                arrays=self._arrays,
                **schedule,
            )
        self._arrays = plan.arrays
        return plan


def _no_rows(shape: tuple[int, int]) -> HybFormat:
    empty = np.empty(0, np.int32)
    return HybFormat(shape, empty, empty, empty, (), 0, indices=empty, values=np.empty(0, np.float32))
