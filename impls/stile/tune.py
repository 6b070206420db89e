"""From searched tiles to plans: conversion, schedules, and the choice of the plan that runs fastest.

The paper compares the mixture with both formats alone by their measured times (Fang et al., SIGMOD 2024, section 3.3)
and measures a kernel's variants as well (section 4). The cost model only chooses the tiles of each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from spmark.impls.core.errors import SpmarkError
from spmark.impls.core.interfaces import Built, Candidate, Config, DeviceArray, Search
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.formats.hyb import HybFormat
from spmark.impls.formats.tiles import TileFormat
from spmark.impls.kernels.ell_buckets import EllBucketsPlan, ell_instance
from spmark.impls.kernels.sddmm_runs import sddmm_kernel, sddmm_plan
from spmark.impls.kernels.tile_sddmm import TileSddmmPlan, tile_sddmm_instance
from spmark.impls.kernels.tile_spmm import TileSpmmPlan, tile_spmm_instance
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import Target
from spmark.impls.runtime.template import Instance
from spmark.impls.stile.forms import Tiling
from spmark.impls.stile.schedule import axes_of, block_tiles, ell_tiles, middle, run_schedules, tile_schedules
from spmark.impls.stile.space import ResultOrder
from spmark.impls.tuning.race import Race
from spmark.impls.tuning.runs import search_runs
from spmark.impls.tuning.space import Space
from spmark.impls.tuning.strategies import Walk, while_hopeful


def build_first(problem: Problem, target: Target, form: Tiling, facts: Mapping[str, Any]) -> tuple[DevicePlan, Search]:
    """Convert a form and build it with a schedule from the middle, without measuring.

    Parameters
    ----------
    problem : Problem
    target : Target
    form : Tiling
    facts : mapping
        Entries for the plan's config.
    """
    converted = _Converted(problem, target, form, facts)
    plan = converted.plan(converted.schedules()[0])
    return plan, Search(candidates=1, seen=(Candidate(form.facts, form.found.predicted_ms * 1e-3),))


def fastest(
    problem: Problem, target: Target, forms: Sequence[Tiling], facts: Mapping[str, Any], cores: int
) -> tuple[DevicePlan, Search]:
    """Race every form with several schedules on the GPU that is there; give the fastest plan.

    Forms that are predicted fast are walked through first. Each walk begins with the best schedule of the earlier walks
    through forms of the same kind.

    Raises
    ------
    BuildError
        No plan could be built, or every result was wrong; the message says why.
    """
    from spmark.impls.tuning.gpu import PlanTimer

    made = _Forms(problem, target, forms, facts)
    race = Race(made.plan, PlanTimer(problem, target.spec), prepare=made.prepare, predict=made.predicted_s)
    walks: dict[tuple[bool, bool], Walk] = {}
    for form in sorted(forms, key=lambda form: form.found.predicted_ms):
        own = form.facts
        try:
            converted = made.converted(own)
        except (SpmarkError, MemoryError):
            race.time(own)  # fails again, and the race keeps the reason
            continue
        if problem.op is Op.SDDMM:
            while_hopeful(race, [{**own, **schedule} for schedule in converted.schedules()])
            has_blocks, _ = converted.kind
            if not has_blocks:
                search_runs(problem, race, own)
        else:
            walks.setdefault(converted.kind, Walk(race)).walk(converted.space(), own)
    _, plan = race.finish()
    return plan, race.describe(cores)


class _Forms:
    """Forms of one problem on the target, the last one converted, for configs of a form's facts and a schedule."""

    def __init__(self, problem: Problem, target: Target, forms: Sequence[Tiling], facts: Mapping[str, Any]) -> None:
        self._problem, self._target, self._forms, self._facts = problem, target, forms, facts
        self._last: _Converted | None = None

    def _form(self, config: Config) -> Tiling:
        return next(form for form in self._forms if form.facts.items() <= config.items())

    def converted(self, config: Config) -> _Converted:
        """Convert a form; the previous one is released first, since two forms of a large matrix might not fit."""
        form = self._form(config)
        if self._last is None or self._last.form is not form:
            self._last = None
            self._last = _Converted(self._problem, self._target, form, self._facts)
        return self._last

    def plan(self, config: Config) -> DevicePlan:
        """Build a config."""
        return self.converted(config).plan(_schedule(config, self._form(config)))

    def prepare(self, configs: Sequence[Config]) -> None:
        """Compile the kernels of several configs side by side."""
        every = [self.converted(config).instance(_schedule(config, self._form(config))) for config in configs]
        self._target.load(list(dict.fromkeys(every)))

    def predicted_s(self, config: Config) -> float:
        """Give the form's time by the cost model, in seconds."""
        return self._form(config).found.predicted_ms * 1e-3


def _schedule(config: Config, form: Tiling) -> Config:
    return {name: value for name, value in config.items() if name not in form.facts}


class _Converted:
    """A form on the target, for any number of schedules."""

    def __init__(self, problem: Problem, target: Target, form: Tiling, facts: Mapping[str, Any]) -> None:
        self.form = form
        self._problem, self._target = problem, target
        self._config = {**facts, **form.facts}
        self._arrays: Sequence[DeviceArray] = ()
        self._first_s: Mapping[str, float] = {}
        self._accounts = Built()
        with self._accounts.phase("convert"):
            self._held = TileFormat.from_csr(problem.matrix, form.found.selection, thirds=facts.get("thirds", False))

    def schedules(self) -> list[Config]:
        """List schedules; the first is taken where nothing is measured."""
        width, dtype = self._problem.width, self._problem.dtype
        if self._problem.op is Op.SDDMM:
            return tile_schedules(width) if self._held.blocks else run_schedules(width, dtype)
        return [middle(tile) for tile in self._tiles()]

    def _tiles(self) -> list[Config]:
        width, dtype = self._problem.width, self._problem.dtype
        return block_tiles(width, dtype) if self._held.blocks else ell_tiles(width, dtype)

    @property
    def kind(self) -> tuple[bool, bool]:
        """Whether there are block tiles, and ELL rows."""
        return bool(self._held.blocks), self.form.widest > 0

    def space(self) -> Space:
        """Give the space of a schedule of SpMM, the axis that binds first in front."""
        blocks, _ = self.kind
        return Space(axes_of(self._tiles(), self.form.widest, blocks, self._problem.dtype is DType.FLOAT16))

    def instance(self, schedule: Config) -> Instance:
        """Give the kernel that a schedule runs."""
        problem, blocks = self._problem, bool(self._held.blocks)
        if problem.op is Op.SDDMM:
            return tile_sddmm_instance(problem, schedule) if blocks else sddmm_kernel(problem, schedule)
        if not blocks:
            return ell_instance(problem, schedule)
        mixed = self._held.ell is not None or not problem.matrix.row_lengths.all()
        return tile_spmm_instance(problem, schedule, mixed)

    def plan(self, schedule: Config) -> DevicePlan:
        """Build with a schedule; each plan of the form reports the seconds that all of them share."""
        plan = self._built(schedule)
        if not self._first_s:
            self._first_s = dict(plan.phases_s)
        for phase in ("convert", "upload"):
            own_s = max(plan.phases_s.get(phase, 0.0), self._first_s.get(phase, 0.0))
            plan.phases_s[phase] = own_s + self._accounts.phases_s.get(phase, 0.0)
        return plan

    def _built(self, schedule: Config) -> DevicePlan:
        problem, target, tiles = self._problem, self._target, self._held
        if problem.op is Op.SDDMM:
            if tiles.blocks:
                in_tiles = self._config.get("order") == ResultOrder.TILES
                return TileSddmmPlan(problem, target, tiles, self._config, in_tiles=in_tiles, **schedule)
            # Runs alone stand in CSR order, whatever was asked for.
            return sddmm_plan(problem, target, {**self._config, "order": str(ResultOrder.CSR)}, schedule)
        if tiles.blocks:
            plan: TileSpmmPlan | EllBucketsPlan = TileSpmmPlan(
                problem, target, tiles, self._config, arrays=self._arrays, **schedule
            )
        else:
            ell = tiles.ell or _no_rows(tiles.shape)
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
