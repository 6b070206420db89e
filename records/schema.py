"""One record per case: facts only. Medians, speed-ups and intervals are derived in the report."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec, Whole
from spmark.impls.core.enums import AnyOp
from spmark.impls.core.enums import Flush as Flush  # noqa: PLC0414 - is part of this module, too
from spmark.impls.core.enums import Status as Status  # noqa: PLC0414 - is part of this module, too
from spmark.impls.core.problem import DType
from spmark.impls.core.untrusted import Frozen

SCHEMA_VERSION: Final = 2
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


FINAL = frozenset({Status.OK, Status.UNSUPPORTED})
"""Statuses that a resumed sweep does not run again."""


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
    relations: Whole = 0
    """Matrices side by side, of RGMS; 0 of other operators."""
    flops: Whole
    """2 nnz J; of RGMS, the fewest with which it can be done."""
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


class MatrixSource(Frozen):
    """A matrix as its source knows it: enough to load it anywhere."""

    source: str
    """A name out of `spmark.datasets.sources.table.source_names`."""
    name: str = Field(min_length=1)
    """The matrix within its source: a name that the source holds, a formula, or a path."""
    args: dict[str, bool | int | float | str] = {}
    """Parameters of generators and readers; each source's docstring lists its own."""
    orientation: Orientation = Orientation.A
    """``A`` as the source stores it, ``AT`` its transpose."""
    values: Literal["seeded", "stored"] = "seeded"
    """Random values from the sweep's seed, or the values of the file."""
    relations: Whole = 0
    """RGMS: how many matrices of as many columns each stand side by side; 0 where they are square, whose number follows
    from the shape."""
    folder: str = ""
    """Where a relative path begins on this machine. Ids and records leave it out."""

    @property
    def id(self) -> str:
        """``source/name``, with ``@AT`` for the transpose."""
        return f"{self.source}/{self.name}" + ("" if self.orientation is Orientation.A else f"@{self.orientation}")


class MatrixRef(MatrixSource):
    """The matrix of a case."""

    file_sha256: str = ""
    """SHA-256 of the user's own file that the matrix is read from; empty for other sources and unreadable files."""
    origin: str = ""
    """Public address that the matrix comes from, where the list of origins has one."""
    aliases: tuple[str, ...] = ()
    """Other ids of the same matrix, under which earlier records may know it: the oldest last."""


Key = tuple[Any, ...]
"""What must be the same for an earlier record to count as a record of a case (`CaseSpec.key`)."""


def _case_id(fields: Mapping[str, Any]) -> str:
    op, matrix, config = fields["op"], fields["matrix"], fields["config"]
    op = f"{op}-scaled" if fields["scaled"] else str(op)
    width, width_in = fields["width"], fields["width_in"]
    widths = width if width_in in (0, width) else f"{width_in}x{width}"
    key = f"{op}/{matrix.id}/J{widths}/{fields['dtype']}/{fields['implementation']}/seed{fields['seed']}"
    if not config and not matrix.args and matrix.values == "seeded" and not matrix.relations:
        return key
    told = [config, matrix.args, matrix.values]
    rest = json.dumps([*told, matrix.relations] if matrix.relations else told, sort_keys=True, default=str)
    return f"{key}#{hashlib.sha256(rest.encode()).hexdigest()[:8]}"


class CaseSpec(Frozen):
    """One cell of a sweep: an operator on a matrix at a width and dtype by one implementation, and how it is measured.

    `spmark.datasets.sweep.model.expand` makes it, and the plan of a run adds what this machine's code and files are.
    """

    model_config = ConfigDict(ser_json_inf_nan="constants")  # a config may be infinite, and reaches the child as it is

    op: AnyOp
    matrix: MatrixRef
    width: Whole
    """J: columns of the dense operands, of RGMS those of Y."""
    width_in: Whole = 0
    """RGMS: columns of X; networks: as `spmark.impls.core.network.NetworkProblem` has it; 0 for other operators."""
    dtype: DType
    scaled: bool = False
    """Whether SDDMM is scaled by A's values."""
    implementation: str
    config: dict[str, Any] = {}
    """Config that the sweep pinned."""
    label: str
    """The name in legends: the implementation's, or the sweep's name for this config."""
    seed: Whole
    baseline: str | None = None
    """Implementation, with its default config, that is measured in the same process; None for no baseline."""
    time_limit_s: float | None = None
    """A case that takes longer is killed; None for no limit."""
    flush: Flush = Flush.WRITE
    """How caches are emptied before each sample, or would have been where the case has none."""
    implementation_version: str = ""
    """Digest of the code in the implementation's folder and in core, formats, kernels, runtime and tuning."""
    protocol_version: Whole = PROTOCOL_VERSION
    case_id: str = Field(default_factory=_case_id)
    """Readable key, such as ``spmm/ogb/ogbn-arxiv/J128/float32/cusparse_best/seed0``.

    A digest of config, matrix arguments and values follows where any of these is not the default.
    """

    @property
    def other_ids(self) -> tuple[str, ...]:
        """Ids of the same case under the other names of its matrix."""
        own = f"/{self.matrix.id}/J"
        return tuple(self.case_id.replace(own, f"/{alias}/J", 1) for alias in self.matrix.aliases)

    def keys(self, environment: Environment) -> tuple[Key, ...]:
        """Give the keys under which a resumed run looks for records of this case: its own, then those of other ids."""
        own = self.key(environment)
        return (own, *((other, *own[1:]) for other in self.other_ids))

    def key(self, environment: Environment) -> Key:
        """Give the one key by which a resumed run finds the records of this case on a machine."""
        own = (self.case_id, self.matrix.file_sha256, self.implementation_version, self.protocol_version, self.flush)
        return (*own, environment.device.name, environment.driver, environment.cuda)


class Outcome(Frozen):
    """What the process that measured a case tells of it."""

    status: Status
    reason: str = ""
    killed_from_outside: bool = False
    """Somebody ended the process by a signal, and memory had not run out: the case is not to blame."""
    matrix_kind: MatrixKind | None = None
    matrix_hash: str = ""
    """SHA-256 of the pattern; empty where the matrix could not be loaded."""
    problem: ProblemFacts | None = None
    config: dict[str, Any] = {}
    """Config that the plan chose."""
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
    parts_us: dict[str, float] = {}
    """Networks: median time of each sparse layer on its own, its gradients included where a step takes them, warm."""


class Measurement(Outcome):
    """A record: the case, what came of it, and where. The runner alone makes it."""

    schema_version: Literal[2] = SCHEMA_VERSION
    spec: Annotated[CaseSpec, PlainSerializer(lambda it: it.model_dump(mode="json", exclude={"matrix": {"folder"}}))]
    device: str
    """Name of the device spec."""
    device_kind: DeviceKind
    environment: str = ""
    """Digest of a row in ``environments.jsonl``; empty where it is not known."""
    started_at: Time = Field(default_factory=lambda: datetime.now(UTC))

    @model_validator(mode="before")
    @classmethod
    def _of_any_version(cls, data: Any, info: ValidationInfo) -> Any:
        old = isinstance(data, dict) and "spec" not in data and data.get("schema_version", 1) == 1
        return from_version_1(data, info.context or dict) if old else data

    @classmethod
    def of(cls, spec: CaseSpec, outcome: Outcome, environment: Environment) -> Self:
        """Join a case, its outcome and the machine."""
        device = environment.device
        return cls(
            spec=spec, device=device.name, device_kind=device.kind, environment=environment.digest, **dict(outcome)
        )

    @property
    def case_id(self) -> str:
        """Readable key of the case."""
        return self.spec.case_id

    @model_validator(mode="after")
    def _status_says_which_fields_exist(self) -> Self:
        timed, found = self.status in (Status.OK, Status.IMPLAUSIBLE), len(self.samples_us)
        if found and not timed:
            raise ValueError(f"expected no samples with status {self.status}, found {found}")
        if found and self.device_kind is DeviceKind.HOST_SIMT:
            raise ValueError("expected no samples from host-simt, whose times mean nothing")
        if timed and not found and self.device_kind is not DeviceKind.HOST_SIMT:
            raise ValueError(f"expected samples with status {self.status}, found none")
        if not timed and not self.reason:
            raise ValueError(f"expected a reason with status {self.status}")
        return self


Matrices = Mapping[str, Sequence[Mapping[str, Any]]]
"""Entries of sweeps by the id of their matrix."""
_SPEC_1 = {name: name for name in CaseSpec.model_fields.keys() - {"matrix", "baseline", "time_limit_s"}}
_SPEC_1["config"] = "requested"
_MATRIX_1 = {"name": "matrix", "source": "source", "orientation": "orientation", "file_sha256": "file_sha256"}
"""What version 1 called the fields of a case and of its matrix."""


def from_version_1(data: dict[str, Any], matrices: Callable[[], Matrices] = dict) -> dict[str, Any]:
    """Give a record of schema version 1 as one of version 2.

    Version 1 held the case flat among the facts, without the arguments of the matrix's source.

    Parameters
    ----------
    data : dict
        An object of JSON.
    matrices : callable, optional
        Gives what the sweeps of the record's folder say of their matrices, by id. Where one of them has the record's
        case id, its arguments are the record's.
    """
    moved = {*_SPEC_1.values(), *_MATRIX_1.values(), "schema_version"}
    facts = {key: value for key, value in data.items() if key not in moved}
    spec: dict[str, Any] = {new: data[old] for new, old in _SPEC_1.items() if old in data}
    spec["matrix"] = {new: data[old] for new, old in _MATRIX_1.items() if old in data}
    if isinstance(beside := data.get("baseline"), dict):
        spec["baseline"] = beside.get("implementation")
    # The digest at the end of an id is of a config, of arguments or of stored values.
    if "#" in str(spec.get("case_id")):
        with suppress(ValidationError):
            spec["matrix"] |= _arguments(spec, matrices())
    return facts | {"spec": spec}


def _arguments(spec: dict[str, Any], matrices: Matrices) -> dict[str, Any]:
    anew = {key: value for key, value in spec.items() if key != "case_id"}
    for told in matrices.get(MatrixRef.model_validate(spec["matrix"]).id, ()):
        arguments = {key: told[key] for key in ("args", "values") if key in told}
        if CaseSpec.model_validate(anew | {"matrix": spec["matrix"] | arguments}).case_id == spec["case_id"]:
            return arguments
    return {}


SPARSE_PACKAGE = "nvidia-cusparse"
"""The package whose version tells one cuSPARSE from another, whichever way the library came onto the machine."""


def _without_folders(file: str) -> str:
    """Give the path of a file below its package, or below the home folder."""
    _, inside, rest = file.rpartition("/nvidia/")
    return f"nvidia/{rest}" if inside else file.replace(f"{Path.home()}/", "~/", 1)


class Environment(Frozen):
    """The machine and the software of a run, written once per sweep."""

    device: DeviceSpec
    driver: str = ""
    cuda: str = ""
    """CUDA of the libraries in use."""
    packages: dict[str, str]
    sparse_library: Annotated[str, PlainSerializer(_without_folders)] = ""
    """The file of the cuSPARSE that measuring processes have loaded, whose version stands among the packages. Records
    leave folders of this machine out. Empty where there is none, and in earlier records."""
    cpu: str
    cores: Whole
    memory_bytes: Whole
    system: str
    commit: str = ""
    """Commit of the checkout, with ``+`` where it was changed."""
    gpu: str = ""
    """UUID of the GPU, which tells it from others of its name; empty on a CPU."""

    @property
    def digest(self) -> str:
        """Sixteen hex digits that measurements refer to."""
        # Environments of CPUs keep the digests that they had before there was this field.
        told = self.model_dump_json(exclude=None if self.gpu else {"gpu"})
        return hashlib.sha256(told.encode()).hexdigest()[:16]


class EnvironmentRow(Frozen):
    """A line of ``environments.jsonl``."""

    digest: str
    environment: Environment


class SeenConfig(Frozen):
    """What a search knew of one config."""

    model_config = ConfigDict(from_attributes=True)  # of `spmark.impls.core.interfaces.Candidate`

    config: dict[str, Any]
    predicted: float | None = None
    samples_us: list[float] = []
    reason: str = ""


class CandidateRow(SeenConfig):
    """A line of ``candidates.jsonl``: what a search knew of one config of one case."""

    case_id: str
    implementation_version: str
    environment: str

    @classmethod
    def of(cls, row: Measurement, seen: SeenConfig) -> Self:
        """Give the line for a config that the search of a record's plan saw."""
        version = row.spec.implementation_version
        return cls(case_id=row.case_id, implementation_version=version, environment=row.environment, **dict(seen))
