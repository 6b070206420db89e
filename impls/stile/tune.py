"""From searched tiles to plans: conversion, schedules, and which plan is fastest when they are run.

The paper compares the mixture with both formats alone by their measured times (Fang et al., SIGMOD 2024, section 3.3)
and measures a kernel's variants as well (section 4); the cost model only says which tiles each is made of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import BuildError, SpmarkError
from spmark.impls.core.interfaces import Built, Candidate, DeviceArray, Search
from spmark.impls.core.problem import Csr, DType, Op, Problem
from spmark.impls.formats.hyb import HybFormat
from spmark.impls.formats.nearness import near_order
from spmark.impls.formats.tiles import Selection, TileFormat
from spmark.impls.kernels.ell_buckets import EllBucketsPlan
from spmark.impls.kernels.sddmm import SddmmPlan
from spmark.impls.kernels.tile_sddmm import TileSddmmPlan
from spmark.impls.kernels.tile_spmm import TileSpmmPlan
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import Target
from spmark.impls.stile.calibration import Calibration
from spmark.impls.stile.schedule import (
    Schedule,
    block_tiles,
    ell_tiles,
    middle,
    run_schedules,
    tile_schedules,
    walk,
)
from spmark.impls.stile.space import Order

if TYPE_CHECKING:  # both bring the compiled loops along
    from spmark.impls.stile.greedy import Rules
    from spmark.impls.stile.search import Found

_HOPELESS = 1.3
"""Times the best plan so far, beyond which a form's schedules are not tried any further."""
_FEW = 3
"""Schedules of SDDMM after which that is asked."""


@dataclass(frozen=True, eq=False)
class Form:
    """Tiles that a search found."""

    found: Found
    widest: int
    """Widest ELL tile; 0 where there is none."""
    positions: NDArray[np.int32] | None = None
    """(I,) place of every row in the order that was searched; None where that is A's."""

    @property
    def facts(self) -> dict[str, Any]:
        """What a plan's config says of them."""
        found = self.found
        return {
            "formats": str(found.formats),
            "part": found.part,
            "divisions": found.divisions,
            "widest": self.widest,
            "rows": "as they stand" if self.positions is None else "near",
            "levels_used": found.levels,
            "withdrawn": found.withdrawn,
            "predicted_us": round(found.predicted_ms * 1e3, 4),
            **({} if found.finished else {"search": "cut short"}),
        }


@dataclass(frozen=True)
class Wanted:
    """What to search."""

    rules: Rules
    near: bool = False
    """Order rows so that those that share columns stand together before anything else (primitive 1)."""


def forms_of(
    problem: Problem, calibration: Calibration, width: int, wanted: Sequence[Wanted], budget_s: float
) -> list[Form]:
    """Search everything that is wanted.

    Parameters
    ----------
    problem : Problem
    calibration : Calibration
    width : int
        J that is searched for.
    wanted : sequence of Wanted
        A plan without measuring comes from the first; others that find tiles as wide are left out.
    budget_s : float
        Of all searches together: the first always gives something, those that have not begun by then are left out.

    Returns
    -------
    list of Form
        Those of the first search first, the one predicted fastest before the others.
    """
    from spmark.impls.formats.tiles import ELL
    from spmark.impls.stile.search import search_each

    forms: list[Form] = []
    seen: set[tuple[str, int, bool]] = set()
    started = perf_counter()
    for one in wanted:
        left_s = budget_s - (perf_counter() - started)
        if forms and left_s <= 0:
            break
        near = near_order(problem.matrix) if one.near else None
        order, positions = (near.rows, near.positions) if near else (None, None)
        matrix, at = in_order(problem.matrix, order)
        for found in search_each(matrix, calibration, width, one.rules, left_s):
            selection = found.selection
            widest = int(selection.width[selection.kind == ELL].max(initial=0))
            if (str(found.formats), widest, one.near) not in seen:
                seen.add((str(found.formats), widest, one.near))
                selection = out_of_order(selection, order, at)
                forms.append(Form(replace(found, selection=selection), widest, positions))
    return forms


def in_order(matrix: Csr, order: NDArray[np.int32] | None) -> tuple[Csr, NDArray[np.int64]]:
    """Give the matrix with its rows in an order, (I,) of A's rows, and where A has each of its non-zeros, (nnz,)."""
    if order is None:
        return matrix, np.empty(0, np.int64)
    lengths = matrix.row_lengths[order]
    indptr = np.zeros(matrix.num_rows + 1, np.int64)
    np.cumsum(lengths, out=indptr[1:])
    at = np.repeat(matrix.indptr[order] - indptr[:-1], lengths) + np.arange(matrix.nnz)
    return Csr(matrix.shape, indptr.astype(np.int32), matrix.indices[at], matrix.values[at]), at


def out_of_order(selection: Selection, order: NDArray[np.int32] | None, at: NDArray[np.int64]) -> Selection:
    """Translate what was selected of `in_order`'s matrix to A."""
    if order is None:
        return selection
    owner = np.empty_like(selection.owner)
    owner[at] = selection.owner
    rows = selection.window_rows
    return replace(selection, owner=owner, window_rows=np.where(rows >= 0, order[rows], -1).astype(np.int32))


@dataclass(eq=False)
class Bench:
    """Plans of one problem: built from forms, measured, and told."""

    problem: Problem
    target: Target
    facts: Mapping[str, Any]
    """Of every config."""
    seen: list[Candidate] = field(default_factory=list)

    def build(self, form: Form) -> DevicePlan:
        """Convert a form and build it with a schedule from the middle."""
        converted = _Converted(self.problem, self.target, form, self.facts)
        self.seen.append(Candidate(form.facts, form.found.predicted_ms * 1e-3))
        return converted.plan(converted.schedules()[0])

    def fastest(self, forms: Sequence[Form], device: DeviceSpec) -> DevicePlan:
        """Build and time every form with several schedules; give the fastest plan.

        Raises
        ------
        BuildError
            Nothing could be built, or every result was wrong; says why.
        """
        from spmark.impls.kernels.trial import Trial

        trial = Trial(self.problem, device)
        best: DevicePlan | None = None
        best_us, reason = float("inf"), ""

        def time_us(converted: _Converted, schedule: Schedule) -> float:
            nonlocal best, best_us, reason
            predicted = converted.form.found.predicted_ms * 1e-3
            config = {**converted.form.facts, **schedule}
            try:
                plan = converted.plan(schedule)
                samples = trial.samples_us(plan)
            except (SpmarkError, MemoryError) as error:
                reason = str(error) or type(error).__name__
                self.seen.append(Candidate(config, predicted, reason=reason))
                return float("inf")
            self.seen.append(Candidate(config, predicted, tuple(samples)))
            median = float(np.median(samples))
            if median < best_us:
                best, best_us = plan, median
            return median

        for form in sorted(forms, key=lambda form: form.found.predicted_ms):
            try:
                converted = _Converted(self.problem, self.target, form, self.facts)
            except (SpmarkError, MemoryError) as error:
                reason = str(error) or type(error).__name__
                self.seen.append(Candidate(form.facts, form.found.predicted_ms * 1e-3, reason=reason))
                continue
            converted.walk(partial(time_us, converted), lambda found_us: found_us > _HOPELESS * best_us)
        if best is None:
            raise BuildError(f"expected a plan out of {len(self.seen)} to build and to be right, found none: {reason}")
        return best

    def describe(self, cores: int) -> Search:
        """Tell what was considered and measured."""
        measured = sum(bool(candidate.samples_us) for candidate in self.seen)
        return Search(len(self.seen), measured, measured, cores, tuple(self.seen))


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

    def walk(self, time_us: Callable[[Schedule], float], hopeless: Callable[[float], bool]) -> None:
        """Have schedules timed, few of them where a form is hopeless."""
        if self._problem.op is Op.SDDMM:
            best_us = float("inf")
            for number, schedule in enumerate(self.schedules()):
                best_us = min(best_us, time_us(schedule))
                if number == _FEW and hopeless(best_us):
                    return
        else:
            half = self._problem.dtype is DType.FLOAT16
            walk(self._tiles(), self.form.widest, bool(self._held.blocks), half, time_us, hopeless)

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
