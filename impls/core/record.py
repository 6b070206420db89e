"""One record per case: facts only. Medians, speed-ups and intervals are derived in the report."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec, Whole
from spmark.impls.core.frozen import Frozen
from spmark.impls.core.problem import DType, Op
from spmark.impls.core.renamed_cases import CaseId

SCHEMA_VERSION: Final = 1
PROTOCOL_VERSION = 2
"""Counts up when what is timed, or how, changes: results of two protocols are not compared."""


def in_utc(time: datetime) -> datetime:
    """Give a time in UTC, so that any two times can be compared; a time without an offset counts as UTC.

    Raises
    ------
    ValueError
        The time in UTC lies outside of the years 1 to 9999.
    """
    try:
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"expected a time of the years 1 to 9999 in UTC, found {time.isoformat()}") from error


Time = Annotated[datetime, AfterValidator(in_utc)]
"""A time in UTC, whatever the offset that it was written with."""


class Status(StrEnum):
    """How a case ended; everything but ok is a failure that the record keeps."""

    OK = "ok"
    UNSUPPORTED = "unsupported"
    BUILD_ERROR = "build_error"
    RUN_ERROR = "run_error"
    WRONG_RESULT = "wrong_result"
    IMPLAUSIBLE = "implausible"
    OUT_OF_MEMORY = "out_of_memory"
    TIMEOUT = "timeout"


FINAL = frozenset({Status.OK, Status.UNSUPPORTED})
"""Statuses that a resumed sweep does not run again."""


class Flush(StrEnum):
    """How caches are emptied before a sample: results of two ways are not compared."""

    WRITE = "write"
    """A buffer is written. Its lines stay in the cache, and a run with a large result pays for storing them."""
    READ = "read"
    """The same, then another buffer as large as the cache is read, so that no written line is left."""


RUNS_ON = "runs on "
"""How the reason of an unsupported case begins that another kind of device could run."""


class MatrixKind(StrEnum):
    """Where a matrix comes from: with its own values, a real pattern, a formula or a stand-in for a named matrix."""

    REAL = "real"
    PATTERN = "pattern"
    SYNTHETIC = "synthetic"
    TWIN = "twin"


class Orientation(StrEnum):
    """Which of a graph's two matrices A is: as its source stores it, or the transpose."""

    A = "A"
    TRANSPOSED = "AT"


class ProblemFacts(Frozen):
    """What the report needs to know of a problem without loading its matrix."""

    num_rows: Whole
    num_cols: Whole
    nnz: Whole
    longest_row: Whole
    flops: Whole
    """2 nnz J."""
    compulsory_bytes: Whole
    """A in CSR, the used rows of operands and the result, each once."""


class SearchFacts(Frozen):
    """What a search cost; the side file ``candidates.jsonl`` holds what the search knew of each candidate."""

    model_config = ConfigDict(from_attributes=True)  # of `spmark.impls.core.interfaces.Search`

    candidates: Whole
    compiled: Whole
    measured: Whole
    cores: Whole
    eligible: Whole = 0
    """Configs that an exhaustive search would measure; 0 where the plan does not tell."""
    compile_s: float = 0.0
    """Of the phases ``search`` and ``select``, the seconds in which candidates were compiled; 0 where the plan does not
    tell."""
    run_s: float = 0.0
    """Of the same phases, the seconds in which candidates were run; likewise."""


class RefusedConfig(Frozen):
    """A config that a search could not use, and why."""

    model_config = ConfigDict(from_attributes=True)  # of `spmark.impls.core.interfaces.Candidate`

    config: dict[str, Any]
    reason: str


class Baseline(Frozen):
    """The baseline's times, taken in the same process and interleaved with this case's."""

    implementation: str
    config: dict[str, Any]
    samples_us: list[float]
    refused: list[RefusedConfig] = []
    """Configs that the baseline's search could not use: a baseline that lacks its fastest config flatters others."""


class Measurement(Frozen):
    """What happened when one implementation met one problem."""

    schema_version: Literal[1] = SCHEMA_VERSION
    protocol_version: Whole = PROTOCOL_VERSION
    case_id: CaseId
    """Readable key of the case; with the versions and the device it decides what a resumed sweep skips."""
    implementation_version: str
    """Digest of the code in the implementation's folder and in core, formats, kernels, runtime and tuning."""
    op: Op
    matrix: str
    """The matrix's name within its source."""
    source: str
    """Where the matrix comes from; ``source/matrix`` is its id."""
    orientation: Orientation = Orientation.A
    matrix_kind: MatrixKind | None = None
    matrix_hash: str = ""
    """SHA-256 of the pattern; empty where the matrix could not be loaded."""
    file_sha256: str = ""
    """SHA-256 of the user's own file that the matrix is read from; empty for other sources and unreadable files."""
    seed: Whole
    width: Whole
    """J."""
    dtype: DType
    scaled: bool = False
    problem: ProblemFacts | None = None
    device: str
    """Name of the device spec."""
    device_kind: DeviceKind
    implementation: str
    label: str
    """The name in legends: the implementation's, or the sweep's name for this config."""
    requested: dict[str, Any] = {}
    """Config that the sweep pinned."""
    config: dict[str, Any] = {}
    """Config that the plan chose."""
    status: Status
    reason: str = ""
    killed_from_outside: bool = False
    """Somebody ended the process by a signal, and memory had not run out: the case is not to blame."""
    flush: Flush = Flush.WRITE
    """How caches were emptied before each sample, or would have been where the case has none."""
    samples_us: list[float] = []
    """One launch each from a cold L2, in the order taken."""
    warm_samples_us: list[float] = []
    """Times without the flush, where they were asked for."""
    graph_samples_us: list[float] = []
    """Mean of a replayed graph of launches, warm, for kernels too short for events alone."""
    baseline: Baseline | None = None
    clocks_mhz: list[float] = []
    """Clock of the multiprocessors after each batch of samples."""
    throttled: list[str] = []
    """Reasons the driver gave for lowered clocks during the samples; samples are kept and flagged."""
    load_average: float | None = None
    """Load average of the minute before the last sample, own work included; None where it is not known."""
    free_cores: float | None = None
    """How many of the environment's cores others left free on average, from the check to the last sample; None where
    this time was below a tenth of a second, or the number is not known."""
    phases_s: dict[str, float] = {}
    """Seconds of building by phase (`spmark.impls.core.interfaces.PHASES`)."""
    search: SearchFacts | None = None
    max_rel_error: float | None = None
    """Largest error over the sum of the terms' magnitudes."""
    stored: Whole = 0
    device_bytes: Whole = 0
    peak_device_bytes: Whole = 0
    """Most device memory in use by the process from the start of the build to the end of the check."""
    environment: str = ""
    """Digest of a row in ``environments.jsonl``."""
    started_at: Time = Field(default_factory=lambda: datetime.now(UTC))

    @model_validator(mode="after")
    def _status_says_which_fields_exist(self) -> Self:
        timed = self.status in (Status.OK, Status.IMPLAUSIBLE)
        sampled = bool(self.samples_us)
        if sampled and not timed:
            raise ValueError(f"expected no samples with status {self.status}, found {len(self.samples_us)}")
        if timed and not sampled and self.device_kind is not DeviceKind.HOST_SIMT:
            raise ValueError(f"expected samples with status {self.status}, found none")
        if sampled and self.device_kind is DeviceKind.HOST_SIMT:
            raise ValueError("expected no samples from host-simt, whose times mean nothing")
        if not timed and not self.reason:
            raise ValueError(f"expected a reason with status {self.status}")
        return self

    @property
    def matrix_id(self) -> str:
        """``source/name``, with the orientation where it is the transpose."""
        return f"{self.source}/{self.matrix}" + ("" if self.orientation is Orientation.A else f"@{self.orientation}")


class Environment(Frozen):
    """The machine and the software of a run, written once per sweep."""

    device: DeviceSpec
    driver: str = ""
    cuda: str = ""
    """CUDA of the libraries in use."""
    packages: dict[str, str]
    cpu: str
    cores: Whole
    memory_bytes: Whole
    system: str
    commit: str = ""
    """Commit of the checkout, with ``+`` where it was changed."""

    @property
    def digest(self) -> str:
        """Sixteen hex digits that measurements refer to."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:16]


class EnvironmentRow(Frozen):
    """A line of ``environments.jsonl``."""

    digest: str
    environment: Environment


class CandidateRow(Frozen):
    """A line of ``candidates.jsonl``: what a search knew of one config of one case."""

    case_id: CaseId
    implementation_version: str
    environment: str
    config: dict[str, Any]
    predicted: float | None = None
    samples_us: list[float] = []
    reason: str = ""
