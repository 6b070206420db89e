"""Timing formats of one matrix on a GPU, for labels and for tables of schedules: checked, and from cold caches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cached_property, partial
from itertools import product
from math import inf, isfinite
from typing import Any, NamedTuple

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import BuildError, SpmarkError, UnsupportedError
from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import Csr, DType, Op, Problem
from spmark.impls.formats.hyb import THIRDS, HybLayout, cell_layout
from spmark.impls.formats.nearness import RowOrder, distinct_share, near_order
from spmark.impls.kernels.ell_buckets import LANES, LONG_ROWS, NEVER, SPMM_ELL_BUCKETS, WORK, EllBucketsPlan
from spmark.impls.kernels.family import taken_apart, tiles_of
from spmark.impls.kernels.hyb_spmm import HybConverter
from spmark.impls.liteform.compose import StoredAs
from spmark.impls.liteform.cost import count
from spmark.impls.liteform.plan import LiteForm, scheduled
from spmark.impls.liteform.schedule import CellSchedule, schedule_for, table_for
from spmark.impls.liteform.search import search
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import open_target
from spmark.impls.runtime.template import C_TYPES, widest_aligned
from spmark.impls.tuning.race import Race
from spmark.impls.tuning.timer import PlanTimer
from spmark.studies.liteform.labels import WIDTHS
from spmark.studies.liteform.schedules import COUNTED, COUNTED_THIRDS, ScheduleRow, TimedSchedule

_NARROWEST = 3
"""Binary logarithm of the narrowest widest bucket of a table."""
_WIDEST = 9
_CLASSES = ((0, 5), (6, 6), (7, _WIDEST))
"""Ranges of powers of the widest bucket, a table's classes: all schedules are tried for one power of each."""
_LESS = 0.95
"""Gathered rows are tried where blocks read less than this share of what they read in A's order."""
_NEAR = 1.15
"""A range is left out where its best width takes this many times as long as the best of all."""
_TILE = 128
"""Columns of a tile of C; tiles down to half as wide are measured."""
_SMALL, _LARGE = 4_000_000, 32_000_000
"""Loads of elements of B below which a problem starts up more than it computes, and from which it fills a GPU."""


def tiles(width: int, dtype: DType, small: bool = False) -> list[tuple[int, int, int]]:
    """List the (vector, vectors, lanes) to measure: tiles of columns that J fills, and not much narrower than J.

    Parameters
    ----------
    width : int
        J.
    dtype : DType
    small : bool
        Add loads half as wide, which give small problems more threads.
    """
    widest = widest_aligned(width, dtype)
    fitting = [tuple(tile.values()) for tile in tiles_of(width, (widest,), LANES, (1, 2))]
    shapes = [(v, count, n) for v, count, n in fitting if min(width, _TILE) <= 2 * v * count * n]
    if small and widest > 1:
        shapes += [(widest // 2, 1, lanes) for lanes in LANES if widest // 2 * lanes == min(width, _TILE // 2)]
    return shapes


def candidates(width: int, dtype: DType, loads: int, max_width: int) -> Iterator[CellSchedule]:
    """List the schedules that are measured for a table.

    Parameters
    ----------
    width : int
        J.
    dtype : DType
    loads : int
        nnz J: large problems are not cut into the smallest blocks, small ones not into the largest.
    max_width : int
    """
    works = sorted(WORK)[slice(0, 3) if loads < _SMALL else slice(1, 4) if loads < _LARGE else slice(1, None)]
    longs = [pair for pair in LONG_ROWS if all(least <= max_width or least == NEVER for least in pair)]
    for (vector, vectors, lanes), work, (spread, together) in product(
        tiles(width, dtype, loads < _SMALL), works, longs
    ):
        if lanes == max(LANES) and spread != NEVER:
            continue  # a group is a whole warp: the warp has no other group to share a row
        yield CellSchedule(vector, lanes, work, vectors, spread, together)


class _Form(NamedTuple):
    """The part of a config that describes the format; the rest is its schedule."""

    partitions: int
    max_width: int
    gathered: bool
    thirds: bool


class _Bench:
    """One matrix on this machine's GPU, in one dtype: a race of formats and schedules at each of several widths J.

    The races keep no plans. Only the last format stays in memory: two formats of a large matrix might not fit.
    """

    def __init__(
        self,
        matrix: Csr,
        device: DeviceSpec,
        dtype: DType,
        widths: Sequence[int],
        trusts: Callable[[int, Config], bool] = lambda width, config: False,
    ) -> None:
        self.matrix, self.device, self.target = matrix, device, open_target(device)
        self.problems = {width: Problem(Op.SPMM, matrix, width, dtype) for width in widths}
        self._converter = HybConverter(self.problems[widths[0]], self.target)
        self._held: dict[_Form, tuple[HybLayout, Any]] = {}
        self.timers = {width: PlanTimer(problem, device) for width, problem in self.problems.items()}
        self.races = {
            width: Race(partial(self._plan, width), timer, trusts=partial(trusts, width), finalists=0)
            for width, timer in self.timers.items()
        }

    @cached_property
    def order(self) -> RowOrder:
        """Rows that share columns together."""
        return near_order(self.matrix)

    @cached_property
    def shares(self) -> tuple[float, float]:
        """Share of rows of B that a block reads for the first time, in A's order and in the gathered one."""
        return distinct_share(self.matrix), distinct_share(self.matrix, self.order)

    def hold(self, form: _Form) -> tuple[HybLayout, Any]:
        """Convert a format, or give it where it is the last one that was converted."""
        if form not in self._held:
            self._held.clear()
            widest, order = [form.max_width] * form.partitions, self.order if form.gathered else None
            layout = cell_layout(self.matrix, widest, False, order, form.thirds)
            self._held[form] = layout, self._converter.fill(layout)
        return self._held[form]

    def _plan(self, width: int, config: Config) -> DevicePlan:
        given, schedule = taken_apart(config, _Form._fields)
        layout, arrays = self.hold(form := _Form(**given))
        arguments = scheduled(CellSchedule(**schedule), self.order if form.gathered else None, form.partitions)
        return EllBucketsPlan(self.problems[width], self.target, layout, {}, arrays=arrays, **arguments)


class GpuTimer:
    """Times formats of one matrix on this machine's GPU.

    Parameters
    ----------
    matrix : Csr
    device : DeviceSpec
    dtype : DType
    widths : sequence of int
        J; operands of all of them are held at once.
    """

    def __init__(self, matrix: Csr, device: DeviceSpec, dtype: DType, widths: Sequence[int] = WIDTHS) -> None:
        self._bench, self._table = _Bench(matrix, device, dtype, widths, self._is_right), table_for(device.name)
        self._thirds = LiteForm().thirds_of(self._table)
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
        problem, chosen = self._bench.problems[width], LiteForm(format=form.value)
        if reason := chosen.unsupported(problem, self._bench.device):
            raise UnsupportedError(reason)
        race = Race(lambda _: chosen.build(problem, self._bench.device), self._bench.timers[width], finalists=0)
        return _samples_us(race, {"format": form.value})

    def cell(self, partitions: int, max_width: int) -> Mapping[int, list[float]]:
        """Time CELL with the same cap in all partitions, converted once for all widths; samples by J in microseconds.

        Raises
        ------
        BuildError
            The config cannot be built, or gives a wrong result.
        """
        self._timed_now, samples_us, bench = 0, dict[int, list[float]](), self._bench
        for way, widths in self._ways.items():
            form = _Form(partitions, max_width, way, thirds=self._thirds)._asdict()
            for width in widths:
                sizes = {"nnz": bench.matrix.nnz, "max_width": max_width}
                dtype = bench.problems[width].dtype
                schedule = schedule_for(bench.device.name, width, dtype, **sizes, gathered=way)
                samples_us[width] = _samples_us(bench.races[width], form | asdict(schedule))
                self._timed_now += 1
        return samples_us

    def _is_right(self, width: int, config: Config) -> bool:
        """Tell whether a result need not be checked.

        The same kernels run every config: each is checked at one J, and each J once.
        """
        return self._timed_now > 0 and isfinite(self._bench.races[width].fastest_us)

    @cached_property
    def _ways(self) -> dict[bool, list[int]]:
        """The widths J at which rows stay in A's order, and those at which a plan would gather them."""
        widths_of: dict[bool, list[int]] = {}
        for width, problem in self._bench.problems.items():
            widths_of.setdefault(LiteForm().ordered(problem, self._table) is not None, []).append(width)
        return widths_of


class ScheduleTimer:
    """Times schedules of CELL in one partition, over its widths, then all at the best width of each class.

    Parameters
    ----------
    matrix : Csr
    device : DeviceSpec
    dtype : DType
    width : int
        J.
    """

    def __init__(self, matrix: Csr, device: DeviceSpec, dtype: DType, width: int) -> None:
        self._bench, self._width, self._dtype = _Bench(matrix, device, dtype, [width]), width, dtype
        self._race = self._bench.races[width]
        self._counts, self._thirds = (count(matrix, 1, columns=False, thirds=thirds) for thirds in (False, True))
        self._loads = matrix.nnz * width

    def row(self, matrix: str) -> ScheduleRow:
        """Measure, and give everything under the matrix's name.

        Raises
        ------
        BuildError
            Every schedule failed.
        """
        top, bench = int(self._counts.widest[0]), self._bench
        powers = range(min(_NARROWEST, top), min(_WIDEST, top) + 1)
        given, together = bench.shares
        # Rows are gathered where blocks then read less.
        ways, middle = (False, True) if together < _LESS * given else (False,), self._middle()
        for power in powers:
            for least in (NEVER, 64) if power >= 6 else (NEVER,):
                self._try(power, False, [replace(middle, together=least)])
            if 1 << power > THIRDS[0]:
                self._try(power, False, [middle], whole=True)
        best = dict.fromkeys(powers, inf)
        for timed in self._timed():
            power = timed.max_width.bit_length() - 1
            best[power] = min(best[power], timed.time_us)
        for low, high in _CLASSES:
            power = min((one for one in powers if low <= one <= high), key=lambda one: best[one], default=-1)
            if power >= 0 and best[power] <= _NEAR * min(best.values()):
                for way in ways:
                    self._try(power, way, candidates(self._width, self._dtype, self._loads, 1 << power))
        if not self._timed():
            raise BuildError(
                f"{matrix}: expected a schedule that computes the product at J = {self._width}, found none"
            )
        self._refine(powers)
        counts = ((self._counts, COUNTED), (self._thirds, COUNTED_THIRDS))
        told = [{name: tuple(map(int, getattr(of, name)[0])) for name in names} for of, names in counts]
        return ScheduleRow(
            matrix=matrix,
            device=bench.device.name,
            dtype=self._dtype,
            width=self._width,
            num_cols=bench.matrix.num_cols,
            nnz=bench.matrix.nnz,
            counted=told[0],
            counted_thirds=told[1],
            given_share=given,
            gathered_share=together,
            timed=tuple(self._timed()),
        )

    def _refine(self, powers: Iterable[int]) -> None:
        """Try the fastest way with other widths, and without thirds."""
        fastest = min(self._timed(), key=lambda timed: timed.time_us)
        power = fastest.max_width.bit_length() - 1
        for other in powers:
            if other != power and abs(other - power) <= 2:
                self._try(other, fastest.gathered, [fastest.schedule])
        self._try(power, fastest.gathered, [fastest.schedule], whole=True)

    def _middle(self) -> CellSchedule:
        vector, vectors, lanes = max(
            tiles(self._width, self._dtype), key=lambda tile: (tile[0] * tile[1] * tile[2] <= 128, tile[1], tile[2])
        )
        return CellSchedule(vector, lanes, 16 if self._loads < 10_000_000 else 32, vectors)

    def _timed(self) -> list[TimedSchedule]:
        """Give the schedules that have times, in the order in which they were tried."""
        seen = [(*taken_apart(config, _Form._fields[1:]), us) for config, us, _ in self._race.seen if isfinite(us)]
        return [
            TimedSchedule(schedule=CellSchedule(**taken_apart(rest, ("partitions",))[1]), time_us=us, **form)
            for form, rest, us in seen
        ]

    def _try(self, power: int, way: bool, some: Iterable[CellSchedule], *, whole: bool = False) -> None:
        """Time schedules of one format, with widths between the powers of two unless ``whole``."""
        form = _Form(1, 1 << power, way, thirds=not whole and 1 << power > THIRDS[0])
        with suppress(SpmarkError, MemoryError):
            self._bench.hold(form)
            self._race.time_all(form._asdict() | asdict(schedule) for schedule in some)


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


def compile_schedules(device: DeviceSpec, dtypes: Sequence[DType], widths: Sequence[int]) -> None:
    """Compile the kernels that timing will need, on all cores, so that no compiling falls between two times."""
    shapes = [(dtype, *tile) for dtype, width in product(dtypes, widths) for tile in tiles(width, dtype, small=True)]
    instances = [
        SPMM_ELL_BUCKETS.instance(T=C_TYPES[dtype], vector=vector, vectors=vectors, lanes=lanes, threads=128)
        for dtype, vector, vectors, lanes in dict.fromkeys(shapes)
    ]
    open_target(device).load(instances)
