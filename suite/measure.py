"""One case from its recipe to its record: load, build, check, time.

A `Bench` stays on one device and keeps what cases of one problem share: matrix, operands, reference and the plan of the
baseline.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from spmark.datasets.cache import Cache
from spmark.datasets.load import LoadedMatrix, load_matrix
from spmark.datasets.sweep import Case
from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.errors import BuildError, KernelFault, SpmarkError, UnsupportedError
from spmark.impls.core.interfaces import Implementation, Plan
from spmark.impls.core.operators import (
    RandomOperand,
    Reference,
    compulsory_bytes,
    flops,
    operand_bytes,
    random_operands,
    reference,
    sampled_rows,
    why_wrong,
)
from spmark.impls.core.problem import Problem
from spmark.impls.core.record import Baseline, CandidateRow, Measurement, ProblemFacts, SearchFacts, Status
from spmark.impls.runtime.lab import Lab, canary, open_lab
from spmark.impls.runtime.load import LoadMeter
from spmark.impls.runtime.timing import Run, Stopping, take_samples
from spmark.impls.table import create
from spmark.suite.rows import make_row

_log = logging.getLogger(__name__)
_STOPPING = {
    DeviceKind.CUDA: Stopping(),
    # A host is never as quiet as a GPU: one per cent is out of reach, so the cap decides.
    DeviceKind.CPU: Stopping(half_width=0.02, min_samples=7, max_samples=200, max_seconds=0.5, warmups=1, batch=5),
}
_BELOW_FLOOR = {DeviceKind.CUDA: 0.95, DeviceKind.CPU: 0.5}
"""Share of the calibrated floor under which a time is implausible; a CPU's calibration is disturbed by other work."""
_INFINITE = 1e308
_GRAPH_REPLAYS = 15
_MEMORY_SHARE = 0.9


@dataclass(frozen=True)
class Options:
    """What is timed beside the cold runs."""

    warm: bool = False
    """Also take samples without flushing caches."""
    graph_below_us: float = 20.0
    """Kernels faster than this are also replayed as a graph."""
    half_width: float | None = None
    """Relative half-width of the median's interval to reach, instead of the device kind's own."""
    max_seconds: float | None = None
    """Time cap of a case's samples, instead of the device kind's own."""

    def stopping(self, kind: DeviceKind) -> Stopping:
        """Give the stopping rule on a kind of device."""
        rule = _STOPPING[kind]
        return replace(
            rule,
            half_width=rule.half_width if self.half_width is None else self.half_width,
            max_seconds=rule.max_seconds if self.max_seconds is None else self.max_seconds,
        )


@dataclass
class _Failed(Exception):
    """A case that ends here, and how."""

    status: Status
    reason: str


@dataclass
class _Setting:
    """A problem with its operands on the device, and what its results are held against."""

    key: object
    problem: Problem
    sources: tuple[RandomOperand, ...]
    operands: tuple[Any, ...]
    out: Any
    reference: Reference
    baselines: dict[str, Plan | None]


class Bench:
    """Measures cases on one device, one after the other.

    Parameters
    ----------
    device : DeviceSpec
        Calibrated.
    cache : Cache
        Where matrices come from.
    environment : str
        Digest that the records name.
    options : Options, optional
    on_phase : callable, optional
        Told ``loading``, ``building``, ``checking`` and ``timing``.

    Raises
    ------
    DeviceError
        The device is not here.
    """

    def __init__(
        self,
        device: DeviceSpec,
        cache: Cache,
        environment: str,
        options: Options | None = None,
        on_phase: Callable[[str], None] = lambda phase: None,
    ) -> None:
        self._device, self._cache, self._environment = device, cache, environment
        self._options, self._on_phase = options or Options(), on_phase
        self._lab: Lab = open_lab(device)
        self._matrix: tuple[object, LoadedMatrix] | None = None
        self._setting: _Setting | None = None

    def canary(self) -> None:
        """Raise `KernelFault` when the device does not compute."""
        canary(self._lab)

    def measure(self, case: Case) -> tuple[Measurement, list[CandidateRow]]:
        """Measure a case.

        Returns
        -------
        Measurement
            With the status that says how it ended: what goes wrong in building, running or checking is a row.
        list of CandidateRow
            What the plan's search saw.
        """
        facts: dict[str, Any] = {}
        candidates: list[CandidateRow] = []
        try:
            status, reason = self._measure(case, facts, candidates), ""
        except _Failed as failed:
            status, reason = failed.status, failed.reason
        except MemoryError as error:
            status, reason = Status.OUT_OF_MEMORY, str(error) or "memory ran out"
        except UnsupportedError as error:
            status, reason = Status.UNSUPPORTED, str(error)
        except KernelFault as error:
            status, reason = Status.RUN_ERROR, str(error)
        except SpmarkError as error:
            status, reason = Status.BUILD_ERROR, str(error)
        if status in (Status.WRONG_RESULT, Status.RUN_ERROR, Status.OUT_OF_MEMORY):
            facts = {name: value for name, value in facts.items() if not name.endswith("samples_us")}
            self._forget()
        row = make_row(case, self._device, self._environment, status, reason, **facts)
        return row, candidates

    def _measure(self, case: Case, facts: dict[str, Any], candidates: list[CandidateRow]) -> Status:
        implementation = create(case.implementation, case.config)
        if case.op not in implementation.ops:
            raise _Failed(Status.UNSUPPORTED, f"{implementation.name} has no {case.op}")
        if self._device.kind not in implementation.devices:
            kinds = " and ".join(sorted(implementation.devices))
            raise _Failed(Status.UNSUPPORTED, f"{implementation.name} runs on {kinds}, this is {self._device.kind}")
        self._on_phase("loading")
        matrix = self._load(case)
        facts |= {"matrix_kind": matrix.kind, "matrix_hash": matrix.csr.hash}
        problem = Problem(case.op, matrix.csr, case.width, case.dtype, case.scaled)
        facts["problem"] = _problem_facts(problem)
        reason = implementation.unsupported(problem, self._device)
        if reason is not None:
            raise _Failed(Status.UNSUPPORTED, reason)
        setting = self._set(case, problem)
        with self._lab.peak() as peak:
            try:
                self._on_phase("building")
                plan = _build(implementation, setting.problem, self._device)
                facts |= _plan_facts(plan)
                candidates += self._candidates(case, plan)
                self._on_phase("checking")
                meter = LoadMeter()  # the samples of a fast kernel alone are too short to tell a load from
                facts["max_rel_error"] = self._check(plan, setting)
            finally:
                self._lab.release()
        facts["peak_device_bytes"] = peak.bytes
        if self._lab.stopwatch is None:
            return Status.OK
        self._on_phase("timing")
        return self._time(case, plan, setting, meter, facts)

    def _load(self, case: Case) -> LoadedMatrix:
        key = (case.matrix.model_dump_json(), case.seed)
        if self._matrix is None or self._matrix[0] != key:
            self._matrix = None
            self._forget()
            self._matrix = key, load_matrix(case.matrix, self._cache, case.seed)
        return self._matrix[1]

    def _set(self, case: Case, problem: Problem) -> _Setting:
        """Give the problem's operands on the device and its reference, made once for all cases of the problem."""
        key = (case.matrix.model_dump_json(), case.seed, case.op, case.width, case.dtype, case.scaled)
        if self._setting is not None and self._setting.key == key:
            return self._setting
        self._forget()
        sources = random_operands(problem, case.seed)
        shapes = (*problem.operand_shapes, problem.out_shape)
        needed = problem.dtype.itemsize * sum(int(np.prod(shape, dtype=np.int64)) for shape in shapes)
        free = self._lab.free_bytes()
        if needed > _MEMORY_SHARE * free:
            raise _Failed(Status.OUT_OF_MEMORY, f"operands and result take {needed:,} bytes, {free:,} are free")
        operands = tuple(self._lab.empty(source.shape, problem.dtype.numpy) for source in sources)
        for source, operand in zip(sources, operands, strict=True):
            source.fill(operand, self._lab.xp)
        out = self._lab.empty(problem.out_shape, problem.dtype.numpy)
        expected = reference(problem, sources, sampled_rows(problem, case.seed))
        self._setting = _Setting(key, problem, sources, operands, out, expected, {})
        return self._setting

    def _forget(self) -> None:
        """Drop everything of the last problem, so that its memory is there for the next."""
        self._setting = None
        gc.collect()
        with suppress(KernelFault):
            self._lab.release()

    def _check(self, plan: Plan, setting: _Setting) -> float:
        """Run once into a poisoned result; give its error, or raise `_Failed` where it is wrong."""
        xp, problem = self._lab.xp, setting.problem
        setting.out.fill(np.nan)
        plan.run(setting.operands, setting.out)
        self._lab.synchronize()
        selected = setting.reference.select(problem, setting.out, plan.order)
        error = setting.reference.max_error(self._lab.to_host(selected))
        unwritten = int(xp.count_nonzero(xp.isnan(setting.out)))
        reason = why_wrong(problem, error, unwritten, plan.half_sums)
        if reason is not None:
            raise _Failed(Status.WRONG_RESULT, reason)
        for position, (source, operand) in enumerate(zip(setting.sources, setting.operands, strict=True)):
            if not source.equals(operand, xp):
                raise _Failed(Status.WRONG_RESULT, f"expected operand {position} unchanged, found it overwritten")
        return min(error, _INFINITE)

    def _time(self, case: Case, plan: Plan, setting: _Setting, meter: LoadMeter, facts: dict[str, Any]) -> Status:
        assert self._lab.stopwatch is not None
        run: Run = lambda: plan.run(setting.operands, setting.out)  # noqa: E731
        runs = [run]
        baseline = self._baseline(case, setting)
        if baseline is not None:
            runs.append(lambda: baseline.run(setting.operands, setting.out))
        stopping = self._options.stopping(self._device.kind)
        samples = take_samples(self._lab.stopwatch, runs, stopping)
        facts |= {"samples_us": samples.times_us[0], "clocks_mhz": samples.clocks_mhz, "throttled": samples.throttled}
        load = meter.read()
        facts |= {"load_average": load.load_average, "free_cores": load.free_cores}
        if baseline is not None:
            facts["baseline"] = Baseline(
                implementation=str(case.baseline), config=dict(baseline.config), samples_us=samples.times_us[1]
            )
        median_us = float(np.median(samples.times_us[0]))
        if self._options.warm:
            warm = take_samples(self._lab.stopwatch, [run], stopping, cold=False)
            facts["warm_samples_us"] = warm.times_us[0]
        if median_us < self._options.graph_below_us:
            with suppress(KernelFault):  # a library that cannot be captured has no such figure
                facts["graph_samples_us"] = self._lab.graph_times_us(run, _GRAPH_REPLAYS)
        floor_us = floor_s(setting.problem, self._device) * 1e6
        if median_us < _BELOW_FLOOR[self._device.kind] * floor_us:
            floor = f"{floor_us:.2f} us, the floor of bytes and flops"
            raise _Failed(Status.IMPLAUSIBLE, f"expected a median of at least {floor}, found {median_us:.2f} us")
        return Status.OK

    def _baseline(self, case: Case, setting: _Setting) -> Plan | None:
        """Give the checked plan of the case's baseline, built once for the problem; None where there is none."""
        name = case.baseline
        if name is None or (name == case.implementation and not case.config):
            return None
        if name not in setting.baselines:
            setting.baselines[name] = None
            implementation = create(name)
            reason = implementation.unsupported(setting.problem, self._device)
            try:
                if reason is None:
                    plan = _build(implementation, setting.problem, self._device)
                    self._check(plan, setting)
                    setting.baselines[name] = plan
            except (SpmarkError, _Failed, MemoryError) as error:
                _log.warning("%s: no baseline: %s", case.case_id, error)
        return setting.baselines[name]

    def _candidates(self, case: Case, plan: Plan) -> list[CandidateRow]:
        row = make_row(case, self._device, self._environment, Status.UNSUPPORTED, "identity")
        seen = plan.search.seen if plan.search is not None else ()
        return [
            CandidateRow(
                case_id=row.case_id,
                implementation_version=row.implementation_version,
                environment=self._environment,
                config=dict(candidate.config),
                predicted=candidate.predicted,
                samples_us=list(candidate.samples_us),
                reason=candidate.reason,
            )
            for candidate in seen
        ]


def track(cases: Sequence[Mapping[str, Any]], device: str = "auto") -> list[dict[str, Any]]:
    """Answer what regression tracking asks, in one process: **frozen**, since today's benchmarks ask old commits.

    Parameters
    ----------
    cases : sequence of mappings
        JSON, by the models of `spmark.suite.track`. They may grow; what a key means never changes.
    device : str
        As `spmark.impls.runtime.device.find` takes it.

    Returns
    -------
    list of dict
        One JSON answer (`spmark.suite.track.Tracked`) each, in order. What this commit does not know or cannot run has
        the status ``unsupported``.
    """
    from spmark.suite.track import answer_all

    return answer_all(cases, device)


def floor_s(problem: Problem, device: DeviceSpec) -> float:
    """Give the time under which no cold run can be: operand bytes at read bandwidth, or flops at the highest rate.

    Zero where the device's rates are not known.
    """
    rate = device.flops_per_s(problem.dtype)
    bytes_s = operand_bytes(problem) / device.read_bytes_per_s if device.read_bytes_per_s else 0.0
    return max(bytes_s, flops(problem) / rate if rate else 0.0)


def _build(implementation: Implementation, problem: Problem, device: DeviceSpec) -> Plan:
    """Build; what an implementation did not foresee is a `BuildError` that names it."""
    try:
        return implementation.build(problem, device)
    except (SpmarkError, MemoryError):
        raise
    except Exception as error:
        raise BuildError(f"{implementation.name}: {type(error).__name__}: {error}") from error


def _problem_facts(problem: Problem) -> ProblemFacts:
    matrix = problem.matrix
    return ProblemFacts(
        num_rows=matrix.num_rows,
        num_cols=matrix.num_cols,
        nnz=matrix.nnz,
        longest_row=int(matrix.row_lengths.max()),
        flops=flops(problem),
        compulsory_bytes=compulsory_bytes(problem),
    )


def _plan_facts(plan: Plan) -> dict[str, Any]:
    search = plan.search
    facts: dict[str, Any] = {
        "config": dict(plan.config),
        "phases_s": dict(plan.phases_s),
        "stored": plan.stored,
        "device_bytes": plan.device_bytes,
    }
    if search is not None:
        facts["search"] = SearchFacts(
            candidates=search.candidates,
            compiled=search.compiled,
            measured=search.measured,
            cores=search.cores,
            eligible=search.eligible,
            compile_s=search.compile_s,
            run_s=search.run_s,
        )
    return facts
