"""From searched tiles to plans: conversion, schedules, and the choice of the plan that runs fastest.

The paper compares the mixture with both formats alone by their measured times (Fang et al., SIGMOD 2024, section 3.3)
and measures a kernel's variants as well (section 4). The cost model only chooses the tiles of each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from spmark.impls.core.interfaces import Candidate, Config, DeviceArray, Search
from spmark.impls.core.problem import Op, Problem
from spmark.impls.formats.hyb import HybFormat
from spmark.impls.formats.threads import cores
from spmark.impls.formats.tiles import TileFormat
from spmark.impls.kernels.ell_buckets import EllBucketsPlan, ell_instance
from spmark.impls.kernels.family import Build, KernelFamily, OneFormat, taken_apart
from spmark.impls.kernels.sddmm import SddmmPlan, sddmm_kernel
from spmark.impls.kernels.tile_sddmm import TileSddmmPlan, tile_sddmm_instance
from spmark.impls.kernels.tile_spmm import TileSpmmPlan, tile_spmm_instance
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import Target
from spmark.impls.runtime.template import Instance
from spmark.impls.stile.schedule import axes_of, first_schedule, sddmm_schedules
from spmark.impls.stile.space import ResultOrder
from spmark.impls.tuning.race import ConfigTime
from spmark.impls.tuning.runs import search_runs
from spmark.impls.tuning.space import Space
from spmark.impls.tuning.strategies import walk, while_hopeful
from spmark.impls.tuning.tune import open_race

if TYPE_CHECKING:  # brings the compiled loops along
    from spmark.impls.stile.search import Tiling


def build_first(problem: Problem, target: Target, form: Tiling, facts: Mapping[str, Any]) -> DevicePlan:
    """Convert a form and build it with a schedule from the middle, without measuring.

    Parameters
    ----------
    problem : Problem
    target : Target
    form : Tiling
    facts : mapping
        Entries for the plan's config.
    """
    build = _family([form], facts).opened(problem, target)
    plan = build({**form.facts, **first_schedule(problem, form.has_blocks)})
    plan.search = Search(candidates=1, seen=(Candidate(form.facts, form.predicted_ms * 1e-3),), cores=cores())
    return plan


def fastest(problem: Problem, target: Target, forms: Sequence[Tiling], facts: Mapping[str, Any]) -> DevicePlan:
    """Race every form with several schedules on the GPU that is there; give the fastest plan.

    Forms that are predicted fast are walked through first. Each walk begins with the best schedule of the earlier walks
    through forms of the same kind.

    Raises
    ------
    BuildError
        No plan could be built, or every result was wrong; the message says why.
    """
    device, families = target.spec, [_family(forms, facts)]
    race = open_race(problem, device, families, predict=lambda config: _form(forms, config).predicted_ms * 1e-3)
    known: dict[tuple[bool, bool], ConfigTime] = {}
    for form in sorted(forms, key=lambda form: form.predicted_ms):
        own = form.facts
        if problem.op is Op.SDDMM:
            while_hopeful(race, [{**own, **schedule} for schedule in sddmm_schedules(problem, form.has_blocks)])
            if not form.has_blocks:
                search_runs(problem, race, own)
        else:
            kind = form.has_blocks, form.widest > 0
            found = walk(race, Space(axes_of(problem, form.widest, form.has_blocks)), own, known.get(kind))
            if found.us < (known[kind].us if kind in known else math.inf):  # a walk in which all fail tells nothing
                known[kind] = found
    _, plan = race.finish()
    plan.search = race.describe(cores())
    return plan


def _form(forms: Sequence[Tiling], config: Config) -> Tiling:
    return next(form for form in forms if form.facts.items() <= config.items())


def _family(forms: Sequence[Tiling], facts: Mapping[str, Any]) -> KernelFamily:
    """Make a family of a problem's forms; a config is a form's facts and a schedule."""
    names = [*dict.fromkeys(name for form in forms for name in form.facts)]

    def kernel(problem: Problem, config: Config) -> Instance:
        form, (_, schedule) = _form(forms, config), taken_apart(config, names)
        if problem.op is Op.SDDMM:
            return tile_sddmm_instance(problem, schedule) if form.has_blocks else sddmm_kernel(problem, schedule)
        if not form.has_blocks:
            return ell_instance(problem, schedule)
        return tile_spmm_instance(problem, schedule, form.widest > 0 or not problem.matrix.row_lengths.all())

    def opened(problem: Problem, target: Target) -> Build:
        def convert(own: Config) -> TileFormat:
            return TileFormat.from_csr(problem.matrix, _form(forms, own).selection)

        def build(tiles: TileFormat, own: Config, schedule: Config, arrays: Sequence[DeviceArray]) -> DevicePlan:
            told = {**facts, **own}
            if problem.op is Op.SDDMM and tiles.blocks:
                in_tiles = told.get("order") == ResultOrder.TILES
                return TileSddmmPlan(problem, target, tiles, told, in_tiles=in_tiles, **schedule)
            if problem.op is Op.SDDMM:
                # Runs alone stand in CSR order, whatever was asked for.
                return SddmmPlan(problem, target, {**told, "order": str(ResultOrder.CSR)}, **schedule)
            if tiles.blocks:
                return TileSpmmPlan(problem, target, tiles, told, arrays=arrays, **schedule)
            told["by_row"] = schedule.get("by_row", False)
            ell = tiles.ell or HybFormat.from_csr(problem.matrix)
            return EllBucketsPlan(problem, target, ell, told, arrays=arrays, **schedule)

        return OneFormat(names, convert, build)

    return KernelFamily(mark="formats", axes=lambda *_: {}, opened=opened, kernel=kernel)
