"""Timing formats of one matrix on a GPU for labels: checked, and from cold caches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from itertools import product
from math import isfinite
from typing import Any, NamedTuple

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import BuildError, SpmarkError, UnsupportedError
from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import Csr, DType, Op, Problem
from spmark.impls.formats.hyb import HybLayout, Pieces, cell_layout, lay_out, partition_columns
from spmark.impls.formats.nearness import RowOrder, near_order
from spmark.impls.formats.threads import run_all
from spmark.impls.kernels.ell_buckets import SPMM_ELL_BUCKETS, EllBucketsPlan
from spmark.impls.kernels.family import taken_apart
from spmark.impls.kernels.hyb_spmm import HybConverter
from spmark.impls.liteform.compose import StoredAs
from spmark.impls.liteform.plan import LiteForm, scheduled
from spmark.impls.liteform.schedule import CellSchedule, rule, schedule_for, table_for
from spmark.impls.liteform.search import search
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import open_target
from spmark.impls.runtime.template import C_TYPES
from spmark.impls.tuning.race import Race
from spmark.impls.tuning.timer import PlanTimer
from spmark.studies.liteform.labels import WIDTHS


class _Form(NamedTuple):
    """The part of a config that describes the format; the rest is its schedule."""

    partitions: int
    max_width: int
    gathered: bool


class GpuTimer:
    """Times formats of one matrix on this machine's GPU: a race of formats and schedules at each of several widths J.

    The races keep no plans. Only the last format stays in memory: two formats of a large matrix might not fit.

    Parameters
    ----------
    matrix : Csr
    device : DeviceSpec
    dtype : DType
    widths : sequence of int
        J; operands of all of them are held at once.
    """

    def __init__(self, matrix: Csr, device: DeviceSpec, dtype: DType, widths: Sequence[int] = WIDTHS) -> None:
        self._matrix, self._device, self._target = matrix, device, open_target(device)
        self._problems = {width: Problem(Op.SPMM, matrix, width, dtype) for width in widths}
        self._table = table_for(device.name)
        self._thirds = LiteForm().thirds_of(self._table)
        self._pieces: dict[tuple[int, bool], Pieces] = {}
        self._laid: dict[_Form, HybLayout] = {}
        """Formats whose rows were laid out ahead."""
        self._converter = HybConverter(self._problems[widths[0]], self._target)
        self._held: dict[_Form, tuple[HybLayout, Any]] = {}
        self._timers = {width: PlanTimer(problem, device) for width, problem in self._problems.items()}
        self._races = {
            width: Race(partial(self._plan, width), timer, trusts=partial(self._is_right, width), finalists=0)
            for width, timer in self._timers.items()
        }
        self._timed_now = 0

    def fixed(self, form: StoredAs, width: int) -> list[float]:
        """Give samples of a fixed format at one J in microseconds.

        Raises
        ------
        UnsupportedError
            The dtype has no kernel for blocks.
        BuildError
            The format cannot be built, or gives a wrong result.
        """
        problem, chosen = self._problems[width], LiteForm(format=form.value)
        if reason := chosen.unsupported(problem, self._device):
            raise UnsupportedError(reason)
        race = Race(lambda _: chosen.build(problem, self._device), self._timers[width], finalists=0)
        return _samples_us(race, {"format": form.value})

    def prepare(self, configs: Sequence[tuple[int, int]]) -> None:
        """Lay the rows of several configs out at once, on all cores, while the GPU has nothing to do.

        A config that cannot be laid out is left to `cell`, which says why.
        """
        forms = [_Form(*config, way) for config in configs for way in self._ways]
        todo = [form for form in forms if form not in self._laid]
        for cut in dict.fromkeys((form.partitions, form.gathered) for form in todo):
            if cut not in self._pieces:
                pieces = partition_columns(self._matrix, cut[0])
                self._pieces[cut] = pieces.in_order(self._order.positions) if cut[1] else pieces

        def lay(form: _Form) -> None:
            with suppress(SpmarkError):
                pieces, widest = self._pieces[form.partitions, form.gathered], [form.max_width] * form.partitions
                self._laid[form] = lay_out(pieces, widest, thirds=self._thirds)

        run_all(lay, [(form,) for form in todo])

    def cell(self, partitions: int, max_width: int) -> Mapping[int, list[float]]:
        """Time CELL with the same cap in all partitions, converted once for all widths; samples by J in microseconds.

        Raises
        ------
        BuildError
            The config cannot be built, or gives a wrong result.
        """
        self._timed_now, samples_us = 0, dict[int, list[float]]()
        for way, widths in self._ways.items():
            form = _Form(partitions, max_width, way)._asdict()
            sizes = {"nnz": self._matrix.nnz, "max_width": max_width}
            for width in widths:
                schedule = schedule_for(self._device.name, width, self._problems[width].dtype, **sizes, gathered=way)
                samples_us[width] = _samples_us(self._races[width], form | schedule.arguments())
                self._timed_now += 1
        return samples_us

    def _plan(self, width: int, config: Config) -> DevicePlan:
        given, schedule = taken_apart(config, _Form._fields)
        layout, arrays = self._converted(form := _Form(**given))
        arguments = scheduled(CellSchedule(**schedule), self._order if form.gathered else None, form.partitions)
        return EllBucketsPlan(self._problems[width], self._target, layout, {}, arrays=arrays, **arguments)

    def _converted(self, form: _Form) -> tuple[HybLayout, Any]:
        """Convert a format, or give it where it is the last one that was converted."""
        if form not in self._held:
            self._held.clear()
            widest, order = [form.max_width] * form.partitions, self._order if form.gathered else None
            layout = self._laid.pop(form, None) or cell_layout(self._matrix, widest, False, order, self._thirds)
            self._held[form] = layout, self._converter.fill(layout)
        return self._held[form]

    def _is_right(self, width: int, config: Config) -> bool:
        """Tell whether a result need not be checked.

        The same kernels run every config: each is checked at one J, and each J once.
        """
        return self._timed_now > 0 and isfinite(self._races[width].fastest_us)

    @cached_property
    def _order(self) -> RowOrder:
        """Rows that share columns together."""
        return near_order(self._matrix)

    @cached_property
    def _ways(self) -> dict[bool, list[int]]:
        """The widths J at which rows stay in A's order, and those at which a plan would gather them."""
        widths_of: dict[bool, list[int]] = {}
        for width, problem in self._problems.items():
            widths_of.setdefault(LiteForm().ordered(problem, self._table) is not None, []).append(width)
        return widths_of


def _samples_us(race: Race[Any], config: Config) -> list[float]:
    """Give the samples of a config; raises `BuildError` with the reason where it has none."""
    told = race.candidate(config)
    if told.reason:
        raise BuildError(told.reason)
    return list(told.samples_us)


def start_width(matrix: Csr, device: DeviceSpec) -> int:
    """Give the widest bucket of least cost in one partition at the middle J: where a climb over configs may begin."""
    problem = Problem(Op.SPMM, matrix, WIDTHS[len(WIDTHS) // 2])
    counts, costs = LiteForm().costs_of(problem, table_for(device.name), None, 1)
    return 1 << int(search(costs, counts.widest).powers[0])


def compile_schedules(device: DeviceSpec, dtypes: Sequence[DType]) -> None:
    """Compile every kernel that timing will need, on all cores, so that no compiling falls between two times."""
    table, shapes = table_for(device.name), []
    for dtype, width in product(dtypes, WIDTHS):
        own = [one.schedule for one in (table.entries if table else ()) if one.dtype is dtype]
        known = [one for one in own if width % one.vector == 0] or [rule(width, dtype, 1)]
        shapes += [(dtype, one.vector, one.vectors, one.lanes) for one in known]
    instances = [
        SPMM_ELL_BUCKETS.instance(T=C_TYPES[dtype], vector=vector, vectors=vectors, lanes=lanes, threads=128)
        for dtype, vector, vectors, lanes in dict.fromkeys(shapes)
    ]
    open_target(device).load(instances)
