"""What regression tracking asks of a commit: plain questions in, plain facts out, in one process and one context.

`spmark.suite.measure.track` is the entry. Both its questions and its answers are JSON, so that a commit can be asked by
benchmarks that are younger than itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from statistics import median
from time import perf_counter, process_time
from typing import Any, Literal

from pydantic import Field, TypeAdapter, ValidationError
from scipy import sparse

from spmark.datasets.cache import Cache
from spmark.datasets.load import load_matrix
from spmark.datasets.sweep.model import MatrixSpec
from spmark.impls.core import errors
from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.interfaces import Implementation
from spmark.impls.core.problem import Csr, DType, Op, Problem
from spmark.impls.core.untrusted import Frozen
from spmark.impls.formats.bsr import BsrFormat
from spmark.impls.formats.hyb import HybFormat
from spmark.impls.runtime.device import calibrated, find, shipped
from spmark.impls.stile.calibration import published_a100
from spmark.impls.table import create
from spmark.records.schema import PROTOCOL_VERSION, CaseSpec, MatrixRef, Outcome, SeenConfig, Status
from spmark.suite.measure import Bench
from spmark.suite.plan.refusals import refusal

FORMATS: Mapping[str, Callable[..., BsrFormat | HybFormat]] = {"bsr": BsrFormat.from_csr, "hyb": HybFormat.from_csr}
"""Conversions that can be asked for, by name; a composition of formats could stand here, too."""
SEARCHES: Mapping[str, tuple[str, Mapping[str, Any], Callable[[], DeviceSpec]]] = {
    "stile_a100": ("stile", {}, published_a100),
    "liteform_build_h200": ("liteform", {}, partial(shipped, "nvidia-h200")),
    "liteform_h200": ("liteform", {"format": "cell"}, partial(shipped, "nvidia-h200")),
}
"""Searches for a GPU that may be absent: the implementation that forecasts, its tunables, and what gives the GPU."""


_REFUSALS = (
    ValidationError, errors.SweepError, errors.DatasetError, errors.DeviceError, errors.MatrixError,
    errors.ProblemError, errors.UnsupportedError
)  # fmt: skip
"""What says that this commit does not know, or cannot run, what is asked."""
_ENDINGS: Mapping[type[Exception], Status] = {
    **dict.fromkeys(_REFUSALS, Status.UNSUPPORTED),
    errors.KernelFault: Status.RUN_ERROR,
    errors.SpmarkError: Status.BUILD_ERROR,
    MemoryError: Status.OUT_OF_MEMORY,
    Exception: Status.RUN_ERROR,
}
"""How a question ends, by the exception raised: the first class that fits counts."""
_log = logging.getLogger(__name__)


class _OfMatrix(Frozen):
    """What every question names."""

    source: str
    matrix: str
    args: dict[str, Any] = {}
    """Arguments of the source."""
    seed: int = 0

    @property
    def matrix_spec(self) -> MatrixSpec:
        """As a sweep would name it."""
        return MatrixSpec(source=self.source, name=self.matrix, args=self.args)


class _OnHost(_OfMatrix):
    """Work on the host, done again and again."""

    samples: int = 25
    max_s: float = 1.5
    """No further sample is started after so many seconds."""


class RunCase(_OfMatrix):
    """An implementation on a problem: its time, and what building it costs."""

    what: Literal["run"]
    op: Op
    width: int = Field(gt=0)
    dtype: DType
    implementation: str
    config: dict[str, Any] = {}
    baseline: dict[DeviceKind, str] = {}
    """What is timed in alternation, by kind of device."""
    builds: int = 1
    """Most builds that the phases are taken from, beside a first one that fills caches."""
    builds_max_s: float = 1.0
    """No further build is started after so many seconds."""


class ConvertCase(_OnHost):
    """A matrix into a format, on the host."""

    what: Literal["convert"]
    format: str
    format_args: dict[str, int] = {}


class SearchCase(_OnHost):
    """A search for a calibrated GPU, on the host."""

    what: Literal["search"]
    search: str
    op: Op
    width: int = Field(gt=0)
    dtype: DType


class Tracked(Frozen):
    """An answer; fields that do not apply are empty."""

    protocol: int = PROTOCOL_VERSION
    status: str
    """As in records; ``unsupported`` also for what this commit does not know."""
    reason: str = ""
    samples_s: list[float] = []
    """Seconds of one run, conversion or search."""
    baseline_s: list[float] = []
    """Seconds of the baseline, sample by sample beside the runs."""
    cpu_s: list[float] = []
    """Seconds that all threads computed in each build, conversion or search: other work disturbs them less."""
    baseline_cpu_s: list[float] = []
    """Those of SciPy's conversion of the matrix into CSC, beside each of these: what slows the machine slows both."""
    phases_s: dict[str, list[float]] = {}
    """Seconds of each phase, in every build."""
    stored: int = 0
    device_bytes: int = 0
    predicted_s: float | None = None
    """Seconds that a search without its device predicts for its choice; None where it predicts nothing."""
    candidates: list[tuple[float | None, float]] = []
    """What a search measured: predicted (or none) and median seconds, in the order of the search."""


_QUESTION: TypeAdapter[RunCase | ConvertCase | SearchCase] = TypeAdapter(RunCase | ConvertCase | SearchCase)


def answer_all(cases: Sequence[Mapping[str, Any]], device: str) -> list[dict[str, Any]]:
    """Answer every question, in order; see `spmark.suite.measure.track`."""
    tracker = _Tracker(device)
    return [tracker.answer(case).model_dump(mode="json") for case in cases]


class _Tracker:
    """Keeps the device, and the matrix of the last question."""

    def __init__(self, device: str) -> None:
        self._name, self._cache = device, Cache.default()
        self._matrix: tuple[str, Csr] | None = None

    @cached_property
    def _bench(self) -> Bench:
        return Bench(self._device, self._cache)

    @cached_property
    def _device(self) -> DeviceSpec:
        return calibrated(find(self._name))

    def answer(self, case: Mapping[str, Any]) -> Tracked:
        try:
            question = _QUESTION.validate_python(dict(case))
        except ValidationError as error:
            return Tracked(status=Status.UNSUPPORTED, reason=f"this commit does not understand the question: {error}")
        try:
            if isinstance(question, RunCase):
                return self._run(question)
            return self._convert(question) if isinstance(question, ConvertCase) else self._search(question)
        except Exception as error:  # a fault of this commit costs the value of its question, not those of the others
            status = next(status for kind, status in _ENDINGS.items() if isinstance(error, kind))
            return Tracked(status=status, reason=_reason(error))

    def _csr(self, question: _OfMatrix) -> Csr:
        key = f"{question.matrix_spec.model_dump_json()} {question.seed}"
        if self._matrix is None or self._matrix[0] != key:
            self._matrix = None
            self._matrix = key, load_matrix(question.matrix_spec, self._cache, question.seed).csr
        return self._matrix[1]

    def _run(self, question: RunCase) -> Tracked:
        if reason := refusal(question.implementation, question.config, self._device.kind, question.op):
            raise errors.UnsupportedError(f"{question.implementation} {reason}")
        implementation = create(question.implementation, question.config)
        outcome, seen = self._bench.measure(_case(question, self._device.kind))
        told = of_outcome(outcome, seen)
        return told.model_copy(update=self._builds(question, implementation) if outcome.status is Status.OK else {})

    def _builds(self, question: RunCase, implementation: Implementation) -> dict[str, Any]:
        """Build again and again: the bench's own first build filled the caches of compiled kernels."""
        builds: list[dict[str, float]] = []
        timed = _Timed()
        try:
            problem = Problem(question.op, self._csr(question), question.width, question.dtype)

            def build() -> None:
                builds.append(dict(implementation.build(problem, self._device).phases_s))

            timed.repeat(build, problem.matrix, question.builds, question.builds_max_s)
        except Exception as error:  # the case was measured: its samples, and the builds so far, are an answer
            _log.warning("%s: build %d failed: %s", question.implementation, len(builds) + 2, _reason(error))
        phases = dict.fromkeys(name for build in builds for name in build)
        phases_s = {name: [build.get(name, 0.0) for build in builds] for name in phases}
        computed = {"cpu_s": timed.cpu_s, "baseline_cpu_s": timed.baseline_cpu_s}
        return {**computed, "phases_s": phases_s} if builds else {}

    def _convert(self, question: ConvertCase) -> Tracked:
        convert = FORMATS.get(question.format)
        if convert is None:
            raise errors.UnsupportedError(f"expected a format out of {', '.join(FORMATS)}, found {question.format!r}")
        matrix = self._csr(question)
        stored, timed = convert(matrix, **question.format_args).stored, _Timed()
        timed.repeat(lambda: convert(matrix, **question.format_args), matrix, question.samples, question.max_s)
        return Tracked(status=Status.OK, stored=stored, **vars(timed))

    def _search(self, question: SearchCase) -> Tracked:
        if question.search not in SEARCHES:
            raise errors.UnsupportedError(f"expected a search out of {', '.join(SEARCHES)}, found {question.search!r}")
        name, config, device = SEARCHES[question.search]
        spec, timed = device(), _Timed()
        if reason := refusal(name, config, spec.kind, question.op):
            raise errors.UnsupportedError(f"{name}: {reason}")
        how: Any = create(name, config)
        problem = Problem(question.op, self._csr(question), question.width, question.dtype)
        predicted_s = how.forecast(problem, spec).predicted_s
        timed.repeat(lambda: how.forecast(problem, spec), problem.matrix, question.samples, question.max_s)
        return Tracked(status=Status.OK, predicted_s=predicted_s, **vars(timed))


@dataclass
class _Timed:
    """Seconds of work on the host, as `Tracked` has them."""

    samples_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    baseline_cpu_s: list[float] = field(default_factory=list)

    def repeat(self, work: Callable[[], object], matrix: Csr, most: int, max_s: float) -> None:
        """Do work again and again, and SciPy's conversion of the matrix into CSC beside each."""
        held = sparse.csr_array((matrix.values, matrix.indices, matrix.indptr), shape=matrix.shape)
        held.tocsc()  # the first one takes memory from the system
        started = perf_counter()
        while len(self.samples_s) < most and perf_counter() - started < max_s:
            wall, cpu = perf_counter(), process_time()
            work()
            self.samples_s.append(perf_counter() - wall)
            done = process_time()
            self.cpu_s.append(done - cpu)
            held.tocsc()
            self.baseline_cpu_s.append(process_time() - done)


def _reason(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return str(error) or "memory ran out"
    return str(error) if isinstance(error, errors.SpmarkError | ValidationError) else f"{type(error).__name__}: {error}"


def of_outcome(row: Outcome, candidates: Sequence[SeenConfig], protocol: int = PROTOCOL_VERSION) -> Tracked:
    """Give the answer that an outcome holds, with what its search saw."""
    told = Tracked(protocol=protocol, status=row.status, reason=row.reason)
    if row.status is not Status.OK:
        return told
    # The baseline's samples say nothing unless there is one for each sample of the case.
    paired = row.baseline is not None and len(row.baseline.samples_us) == len(row.samples_us)
    facts = {
        "samples_s": _seconds(row.samples_us),
        "baseline_s": _seconds(row.baseline.samples_us) if row.baseline and paired else [],
        "phases_s": {name: [seconds] for name, seconds in row.phases_s.items()},
        "stored": row.stored,
        "device_bytes": row.device_bytes,
        "candidates": [(c.predicted, median(c.samples_us) * 1e-6) for c in candidates if c.samples_us],
    }
    return told.model_copy(update=facts)


def _seconds(samples_us: Sequence[float]) -> list[float]:
    return [us * 1e-6 for us in samples_us]


def _case(question: RunCase, kind: DeviceKind) -> CaseSpec:
    same = question.model_dump(include={"op", "width", "dtype", "implementation", "config", "seed"})
    return CaseSpec(
        **same,
        matrix=MatrixRef.model_validate(question.matrix_spec.model_dump(exclude={"widths"})),
        label=question.implementation,
        baseline=question.baseline.get(kind),
    )
