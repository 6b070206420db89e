"""One case from its recipe to its outcome: load, build, check, time.

A `Bench` stays on one device and keeps what cases of one problem share: matrix, operands, reference and the plan of the
baseline.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from spmark.datasets.cache import Cache
from spmark.datasets.load import LoadedMatrix, load_matrix
from spmark.datasets.relational import of_relations
from spmark.impls.core.devicespec import BUSY, DeviceKind, DeviceSpec
from spmark.impls.core.errors import BuildError, KernelFault, SpmarkError, UnsupportedError
from spmark.impls.core.interfaces import Implementation, Plan
from spmark.impls.core.machine import LoadMeter
from spmark.impls.core.network import NetworkOp, NetworkProblem
from spmark.impls.core.operators import (
    RandomOperand,
    random_operands,
    reference,
    sampled_rows,
)
from spmark.impls.core.problem import Csr, Op, Problem
from spmark.impls.core.relational import AnyProblem, RelationalCsr, RelationalOp, RelationalProblem
from spmark.impls.core.tolerance import why_wrong
from spmark.impls.runtime.lab import Lab, canary, open_lab
from spmark.impls.runtime.timing import Run, StepStopwatch, Stopping, Stopwatch, take_samples
from spmark.impls.table import create
from spmark.impls.tuning.cache import empty_cache
from spmark.records.schema import (
    Baseline,
    CaseSpec,
    Outcome,
    ProblemFacts,
    RefusedConfig,
    SearchFacts,
    SeenConfig,
    Status,
)
from spmark.records.sixdigits import six_digits
from spmark.suite.plan.options import Options
from spmark.suite.run.gpu_lock import turn, turn_file
from spmark.suite.run.messages import WAITING, Result
from spmark.suite.run.share import free_memory_bytes

_log = logging.getLogger(__name__)
_STOPPING = {
    DeviceKind.CUDA: Stopping(),
    # A host is never as quiet as a GPU: one per cent is out of reach, so the cap decides.
    DeviceKind.CPU: Stopping(half_width=0.02, min_samples=7, max_samples=200, max_seconds=0.5, warmups=1, batch=5),
}
_BELOW_FLOOR = {DeviceKind.CUDA: 0.95, DeviceKind.CPU: 0.5}
"""Share of the calibrated floor under which a time is implausible; a CPU's calibration is disturbed by other work."""
_GRAPH_BELOW_US = 20.0
"""Kernels faster than this are also replayed as a graph."""
_GRAPH_REPLAYS = 15
_PART = Stopping(half_width=0.03, max_seconds=0.02, warmups=1)
"""Parts of a network are a few times slower than single products, and many."""
_MEMORY_SHARE = 0.9
_CHECK_ARRAYS = 4
"""Of float64 and of the checked result's size: reference, magnitude, difference and error."""


class _WrongResultError(SpmarkError):
    """A plan was run and its result cannot be used; says why."""


_ENDINGS: Mapping[type[Exception], Status] = {
    MemoryError: Status.OUT_OF_MEMORY,
    _WrongResultError: Status.WRONG_RESULT,
    UnsupportedError: Status.UNSUPPORTED,
    KernelFault: Status.RUN_ERROR,
    SpmarkError: Status.BUILD_ERROR,
}
"""How a case ends, by the exception raised: the first class that fits counts."""


@dataclass
class _Setting:
    """A problem, the reference that its results are compared with and, once placed, its operands on the device."""

    key: object
    problem: Any
    """An `AnyProblem`, or a `NetworkProblem`, whose plans make operands of their own."""
    sources: tuple[RandomOperand, ...]
    reference: Any
    """A `Reference`; what a `NetworkProblem`'s outputs should be, once its first plan has told."""
    operands: tuple[Any, ...] = ()
    out: Any = None
    baselines: dict[str, Plan | None] = field(default_factory=dict)


class Bench:
    """Measures cases on one device, one after the other.

    Parameters
    ----------
    device : DeviceSpec
        Calibrated.
    cache : Cache
        Where matrices come from.
    options : Options, optional
    on_phase : callable, optional
        Told ``loading``, ``placing``, ``building``, ``checking`` and ``timing``; ``waiting`` while another process
        measures on the same GPU.

    Raises
    ------
    DeviceError
        The device is not here.
    """

    def __init__(
        self,
        device: DeviceSpec,
        cache: Cache,
        options: Options | None = None,
        on_phase: Callable[[str], None] = lambda phase: None,
    ) -> None:
        self._device, self._cache = device, cache
        self._options, self._on_phase = options or Options(), on_phase
        self._lab: Lab = open_lab(device, self._options.flush)
        self._turn_file = turn_file(device, self._lab)
        self._matrix: tuple[object, LoadedMatrix] | None = None
        self._setting: _Setting | None = None

    def canary(self) -> None:
        """Raise `KernelFault` when the device does not compute."""
        canary(self._lab)

    def measure(self, case: CaseSpec) -> Result:
        """Measure a case.

        Returns
        -------
        Result
            The outcome's status says how the case ended: failures of building, running or checking are outcomes, too.
        """
        facts: dict[str, Any] = {"status": Status.OK}
        try:
            self._measure(case, facts)
        except tuple(_ENDINGS) as error:
            facts["status"] = next(status for kind, status in _ENDINGS.items() if isinstance(error, kind))
            facts["reason"] = str(error) or "memory ran out"
        if facts["status"] in (Status.WRONG_RESULT, Status.RUN_ERROR, Status.OUT_OF_MEMORY):
            self._forget()
        search = facts.get("search")
        seen = [SeenConfig.model_validate(one) for one in (search.seen if search else ())]
        if search:
            rounded = {"compile_s": six_digits(search.compile_s), "run_s": six_digits(search.run_s)}
            facts["search"] = SearchFacts.model_validate(search).model_copy(update=rounded)
        return Result(Outcome(**facts), seen)

    def _measure(self, case: CaseSpec, facts: dict[str, Any]) -> None:
        """Fill in the fields of an `Outcome` step by step; where a step raises, earlier facts are kept."""
        implementation = create(case.implementation, case.config)
        self._on_phase("loading")
        matrix = self._load(case)
        problem: Any = problem_of(case, matrix.csr)
        facts.update(matrix_kind=matrix.kind, matrix_hash=problem.matrix.hash, problem=_problem_facts(problem))
        self._refuse(implementation, problem)
        setting = self._set(case, problem)
        with turn(self._turn_file, lambda: self._on_phase(WAITING)):
            self._on_device(case, implementation, setting, facts)

    def _on_device(
        self, case: CaseSpec, implementation: Implementation, setting: _Setting, facts: dict[str, Any]
    ) -> None:
        self._on_phase("placing")
        self._place(setting)
        with self._lab.peak() as peak:
            try:
                self._on_phase("building")
                plan = _build(implementation, setting.problem, self._device, case.config)
                facts.update(
                    config=dict(plan.config),
                    phases_s=six_digits(dict(plan.phases_s)),
                    stored=plan.stored,
                    device_bytes=plan.device_bytes,
                    search=plan.search,
                )
                self._on_phase("checking")
                meter = LoadMeter()  # the samples of a fast kernel alone are too short to tell a load from
                error = self._check(plan, setting)
            finally:
                self._lab.release()
        facts.update(max_rel_error=six_digits(error), peak_device_bytes=peak.bytes)
        if self._lab.stopwatch is None:
            return
        self._on_phase("timing")
        facts.update(self._time(case, plan, setting, self._lab.stopwatch, meter))
        median_us, floor_us = float(np.median(facts["samples_us"])), floor_s(setting.problem, self._device) * 1e6
        if median_us < _BELOW_FLOOR[self._device.kind] * floor_us:
            floor = f"{floor_us:.2f} us, the floor of bytes and flops by the rates of `spmark calibrate`"
            facts["status"] = Status.IMPLAUSIBLE
            facts["reason"] = f"expected a median of at least {floor}, found {median_us:.2f} us"

    def _refuse(self, implementation: Implementation, problem: AnyProblem | NetworkProblem) -> None:
        """Raise where an implementation says that it cannot build a problem."""
        reason = implementation.unsupported(problem, self._device)
        if reason is not None:
            raise UnsupportedError(reason)

    def _load(self, case: CaseSpec) -> LoadedMatrix:
        key = (case.matrix.model_dump_json(), case.seed)
        if self._matrix is None or self._matrix[0] != key:
            self._matrix = None
            self._forget()
            self._matrix = key, load_matrix(case.matrix, self._cache, case.seed)
        return self._matrix[1]

    def _set(self, case: CaseSpec, problem: AnyProblem | NetworkProblem) -> _Setting:
        """Give the problem with its reference, computed on the host once for all cases of the problem."""
        key = (case.matrix.model_dump_json(), case.seed, case.op, case.width, case.width_in, case.dtype, case.scaled)
        if self._setting is None or self._setting.key != key:
            self._forget()
            if isinstance(problem, NetworkProblem):
                self._setting = _Setting(key, problem, (), None, out=())
                return self._setting
            sources = random_operands(problem, case.seed)
            rows = sampled_rows(problem, case.seed)
            checked = problem.matrix.nnz if problem.op is Op.SDDMM else rows.size * problem.width
            needed, free = 8 * _CHECK_ARRAYS * checked, free_memory_bytes()
            if needed > _MEMORY_SHARE * free:
                raise MemoryError(f"checking the result takes {needed:,} bytes of the host, {free:,} are free")
            expected = reference(problem, sources, rows)
            self._setting = _Setting(key, problem, sources, expected)
        return self._setting

    def _place(self, setting: _Setting) -> None:
        """Put the problem's operands on the device, unless they are there."""
        if setting.out is not None:
            return
        with suppress(KernelFault):
            self._lab.release()  # memory of the problem before
        problem = setting.problem
        shapes = (*problem.operand_shapes, problem.out_shape)
        needed = problem.dtype.itemsize * sum(int(np.prod(shape, dtype=np.int64)) for shape in shapes)
        free = self._lab.free_bytes()
        if needed > _MEMORY_SHARE * free:
            raise MemoryError(f"operands and result take {needed:,} bytes, {free:,} are free")
        setting.operands = tuple(self._lab.empty(shape, problem.dtype.numpy) for shape in problem.operand_shapes)
        self._fill(setting)
        setting.out = self._lab.empty(problem.out_shape, problem.dtype.numpy)

    def _fill(self, setting: _Setting) -> None:
        """Write the operands' values to their place on the device."""
        for source, operand in zip(setting.sources, setting.operands, strict=True):
            self._lab.draw(source, operand)

    def _forget(self) -> None:
        """Drop everything of the last problem; its memory on the device goes back before the next is placed."""
        self._setting = None
        gc.collect()

    def _check(self, plan: Plan, setting: _Setting) -> float:
        """Run once into a poisoned result; give its error, or raise where it is wrong."""
        xp, problem = self._lab.xp, setting.problem
        if isinstance(problem, NetworkProblem):
            return _check_network(plan, setting)
        setting.out.fill(problem.dtype.nan)
        plan.run(setting.operands, setting.out)
        self._lab.synchronize()
        selected = setting.reference.select(problem, setting.out, plan.order)
        error: float = setting.reference.max_error(self._lab.download(selected))
        unwritten = int(xp.count_nonzero(xp.isnan(problem.dtype.numbers(setting.out))))
        reason = why_wrong(problem, error, unwritten, plan.half_sums)
        if reason is not None:
            raise _WrongResultError(reason)
        for position, (source, operand) in enumerate(zip(setting.sources, setting.operands, strict=True)):
            if not source.equals(operand, xp):
                raise _WrongResultError(f"expected operand {position} unchanged, found it overwritten")
        return error

    def _time(
        self, case: CaseSpec, plan: Plan, setting: _Setting, stopwatch: Stopwatch, meter: LoadMeter
    ) -> dict[str, Any]:
        """Sample the plan beside its baseline; gives fields of an `Outcome`."""
        run: Run = lambda: plan.run(setting.operands, setting.out)  # noqa: E731
        if network := isinstance(setting.problem, NetworkProblem):
            stopwatch = StepStopwatch(stopwatch, self._lab.synchronize)
        runs, baseline = [run], self._baseline(case, setting)
        if baseline is not None:
            runs.append(lambda: baseline.run(setting.operands, setting.out))
        stopping = _STOPPING[self._device.kind]
        samples, load = take_samples(stopwatch, runs, stopping, cold=not network), meter.read()
        warm = take_samples(stopwatch, [run], stopping, cold=False).times_us[0] if self._options.warm else []
        graph: list[float] = []
        if np.median(samples.times_us[0]) < _GRAPH_BELOW_US and not network:
            with suppress(KernelFault):  # a library that cannot be captured has no time as a graph
                graph = self._lab.graph_times_us(run, _GRAPH_REPLAYS)
        return {
            "samples_us": samples.times_us[0],
            "baseline": None if baseline is None else _told(str(case.baseline), baseline, samples.times_us[1]),
            "warm_samples_us": warm,
            "graph_samples_us": six_digits(graph),
            "clocks_mhz": samples.clocks_mhz,
            "throttled": samples.throttled,
            "parts_us": six_digits(self._parts_us(plan)) if network else {},
            "load_average": load.load_average,
            "free_cores": load.free_cores,
        }

    def _parts_us(self, plan: Any) -> dict[str, float]:
        """Give the median time of each sparse layer of a network on its own."""
        assert self._lab.stopwatch is not None
        watch = self._lab.stopwatch
        return {
            name: float(np.median(take_samples(watch, [part], _PART, cold=False).times_us[0]))
            for name, part in plan.parts.items()
        }

    def _baseline(self, case: CaseSpec, setting: _Setting) -> Plan | None:
        """Give the checked plan of the case's baseline, built once for the problem; None where there is none."""
        name = case.baseline
        if name is None or (name == case.implementation and not case.config):
            return None
        if name not in setting.baselines:
            plan, implementation = None, create(name)
            try:
                self._refuse(implementation, setting.problem)
                built = _build(implementation, setting.problem, self._device, {})
                self._check(built, setting)
                plan = built
            except MemoryError as error:  # beside this case's plan; the next plan may leave room
                _log.warning("%s: no baseline: %s", case.case_id, error)
                return None
            except SpmarkError as error:
                _log.warning("%s: no baseline: %s", case.case_id, error)
                self._fill(setting)  # a wrong baseline may have written to the operands
            setting.baselines[name] = plan
        return setting.baselines[name]


def _check_network(plan: Any, setting: _Setting) -> float:
    """Compare what a network's first steps compute with float64, which is computed once for a problem."""
    if setting.reference is None:
        setting.reference = plan.expected()
    error, allowed = plan.error(setting.reference)
    if error > allowed:
        raise _WrongResultError(f"expected an error of at most {allowed:.3g}, found {error:.3g}")
    return float(error)


def _told(name: str, plan: Plan, samples_us: list[float]) -> Baseline:
    """Say what a record keeps of a baseline."""
    seen = plan.search.seen if plan.search else ()
    refused = [RefusedConfig.model_validate(one) for one in seen if one.reason]
    return Baseline(implementation=name, config=dict(plan.config), samples_us=samples_us, refused=refused)


def track(cases: Sequence[Mapping[str, Any]], device: str = "auto") -> list[dict[str, Any]]:
    """Answer what regression tracking asks, in one process: **frozen**, since today's benchmarks ask old commits.

    Parameters
    ----------
    cases : sequence of mappings
        JSON, by the models of `spmark.suite.asv.track`. They may grow; what a key means never changes.
    device : str
        As `spmark.impls.runtime.device.find` takes it.

    Returns
    -------
    list of dict
        One JSON answer (`spmark.suite.asv.track.Tracked`) each, in order. What this commit does not know or cannot
        run has the status ``unsupported``.
    """
    from spmark.suite.asv.track import answer_all

    return answer_all(cases, device)


def problem_of(case: CaseSpec, csr: Csr) -> AnyProblem | NetworkProblem:
    """Make the problem of a case on its matrix as it was loaded.

    Raises
    ------
    DatasetError, MatrixError
        A case of RGMS or of its network does not say how many relations its matrix has, or has too many.
    """
    if case.op is RelationalOp.RGMS:
        return RelationalProblem(of_relations(case.matrix, csr), case.width_in, case.width, case.dtype)
    if isinstance(case.op, NetworkOp):
        relations = of_relations(case.matrix, csr).relations if case.op is NetworkOp.RGCN else 0
        sizes = case.width_in, case.width, case.dtype, case.seed
        return NetworkProblem(case.op, case.matrix.name, csr, *sizes, relations)
    return Problem(case.op, csr, case.width, case.dtype, case.scaled)


def floor_s(problem: AnyProblem | NetworkProblem, device: DeviceSpec) -> float:
    """Give the least time that a cold run can take: operand bytes at read bandwidth, or flops at the highest rate.

    Zero where the device's rates are not known, or were measured on a busy machine.
    """
    if BUSY in device.calibrated_with:
        return 0.0
    rate = device.flops_per_s(problem.dtype)
    bytes_s = problem.operand_bytes() / device.read_bytes_per_s if device.read_bytes_per_s else 0.0
    return max(bytes_s, problem.flops() / rate if rate else 0.0)


def _build(implementation: Implementation, problem: Any, device: DeviceSpec, config: Mapping[str, Any]) -> Plan:
    """Build as a config's switches say; an exception that an implementation did not foresee becomes a `BuildError`."""
    empty = config.get("anew") and device.kind is DeviceKind.CUDA
    try:
        with empty_cache() if empty else nullcontext():
            how: Any = implementation  # `create` refuses the switch where there is nothing to load
            return how.load(problem, device) if config.get("again") else implementation.build(problem, device)
    except (SpmarkError, MemoryError):
        raise
    except Exception as error:
        raise BuildError(f"{implementation.name}: {type(error).__name__}: {error}") from error


def _problem_facts(problem: AnyProblem | NetworkProblem) -> ProblemFacts:
    matrix = problem.graph if isinstance(problem, NetworkProblem) and problem.relations else problem.matrix
    return ProblemFacts(
        num_rows=matrix.num_rows,
        num_cols=matrix.num_cols,
        nnz=matrix.nnz,
        longest_row=matrix.longest_row,
        relations=matrix.relations if isinstance(matrix, RelationalCsr) else 0,
        flops=problem.flops(),
        compulsory_bytes=problem.compulsory_bytes(),
    )
