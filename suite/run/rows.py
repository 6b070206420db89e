"""Records out of typed parts: each step of measuring adds a part, and the last part says how the case ended.

The runner makes a record itself where a bench cannot: a case that a device cannot run needs no matrix to be loaded, and
a case that killed its process cannot speak.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from spmark.datasets.sweep.model import Case
from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.digest import implementation_version
from spmark.impls.core.interfaces import Search
from spmark.impls.core.record import Baseline, CandidateRow, Flush, MatrixKind, Measurement, ProblemFacts, Status
from spmark.impls.core.sixdigits import six_digits
from spmark.impls.table import package


@dataclass(frozen=True)
class Loaded:
    """The matrix is there, and so is the problem."""

    matrix_kind: MatrixKind
    matrix_hash: str
    problem: ProblemFacts


@dataclass(frozen=True)
class Planned:
    """What a plan that was built says of itself."""

    config: Mapping[str, Any]
    phases_s: Mapping[str, float]
    stored: int
    device_bytes: int
    search: Search | None


@dataclass(frozen=True)
class Checked:
    """The plan's result is right."""

    max_rel_error: float
    peak_device_bytes: int


@dataclass(frozen=True)
class Timed:
    """The plan was timed: microseconds and megahertz."""

    samples_us: Sequence[float]
    baseline: Baseline | None = None
    warm_samples_us: Sequence[float] = ()
    graph_samples_us: Sequence[float] = ()
    clocks_mhz: Sequence[float] = ()
    throttled: Sequence[str] = ()
    load_average: float | None = None
    free_cores: float | None = None


@dataclass(frozen=True)
class Failed:
    """The case ended without a result."""

    status: Status
    reason: str
    killed_from_outside: bool = False


_NOISY = ("phases_s", "max_rel_error", "graph_samples_us")
"""Fields that are seconds of a host's clock, an error or a mean; a sample of one launch has the GPU's ticks."""
Part = Loaded | Planned | Checked | Timed | Failed
"""The known facts of a case, by the names of `Measurement`'s fields."""


class Result(NamedTuple):
    """The outcome of a case."""

    row: Measurement
    candidates: Sequence[CandidateRow] = ()
    """What the plan's search saw."""


def make_row(case: Case, device: DeviceSpec, environment: str, *parts: Part, flush: Flush = Flush.WRITE) -> Measurement:
    """Give the record of ``case``: its identity and the parts that are known; ok unless one of them is `Failed`.

    Parameters
    ----------
    case : Case
        What was asked for.
    device : DeviceSpec
        What ran it, or should have.
    environment : str
        Digest of the row in ``environments.jsonl``.
    *parts
        In the order in which they were found.
    flush : Flush
        How the run empties caches.

    Raises
    ------
    ValidationError
        The parts contradict each other, as samples and a wrong result do.
    """
    facts: dict[str, Any] = {"status": Status.OK}
    for part in parts:
        facts |= vars(part)
    facts |= {name: six_digits(facts[name]) for name in _NOISY if name in facts}
    if search := facts.get("search"):
        facts["search"] = replace(search, compile_s=six_digits(search.compile_s), run_s=six_digits(search.run_s))
    return Measurement(
        case_id=case.case_id,
        implementation_version=implementation_version(package(case.implementation)),
        op=case.op,
        matrix=case.matrix.name,
        source=case.matrix.source,
        orientation=case.matrix.orientation,
        seed=case.seed,
        width=case.width,
        dtype=case.dtype,
        scaled=case.scaled,
        device=device.name,
        device_kind=device.kind,
        implementation=case.implementation,
        label=case.label,
        requested=dict(case.config),
        environment=environment,
        flush=flush,
        **facts,
    )


def candidate_rows(row: Measurement, search: Search | None) -> list[CandidateRow]:
    """Give the lines of the side file for what the search of a record's plan saw."""
    return [
        CandidateRow(
            case_id=row.case_id,
            implementation_version=row.implementation_version,
            environment=row.environment,
            config=dict(candidate.config),
            predicted=candidate.predicted,
            samples_us=list(candidate.samples_us),
            reason=candidate.reason,
        )
        for candidate in (search.seen if search is not None else ())
    ]
