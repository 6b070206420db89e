"""What made a file of records, and how to make it again: the runs and commands in ``runs.jsonl`` beside the file.

Every run appends one row before its first case: the command without the paths of the machine, the whole sweep after
overrides, and a digest of what was changed in the checkout. Records belong to the last run that began before them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeVar

from pydantic import BaseModel, Field, ValidationError

from spmark.datasets.sweep.model import Case, MatrixSpec, Sweep
from spmark.datasets.sweep.reading import packaged_sweeps
from spmark.impls.core.errors import RecordError
from spmark.impls.core.frozen import Frozen
from spmark.impls.core.record import Environment, EnvironmentRow, Measurement, Time
from spmark.impls.core.recordfile import read_rows, row_files
from spmark.suite.plan.options import Options
from spmark.suite.plan.resume import ENVIRONMENTS

RUNS: Final = "runs.jsonl"
_WORDS = {
    "device": "--device", "only": "--only", "retry": "--retry", "overrides": "--set", "limit": "--limit",
    "flush": "--flush",
}  # fmt: skip
"""Options of ``spmark run`` that take a value, by field of `Options`."""
_OF_THIS_MACHINE: Any = {key: {"__all__": {"folder"}} for key in ("matrices", "implementations")}
Row = TypeVar("Row", bound=BaseModel)


class RunRow(Frozen):
    """A line of ``runs.jsonl``: one run that wrote into this folder."""

    schema_version: Literal[1] = 1
    started_at: Time = Field(default_factory=lambda: datetime.now(UTC))
    environment: str
    """Digest of a row in ``environments.jsonl``."""
    command: tuple[str, ...] = ()
    """Words of the command line, with names in place of paths; empty where no such words ask for the run."""
    sweep: dict[str, Any] | None = None
    """The whole sweep, after overrides."""
    sweep_digest: str = ""
    changes_digest: str = ""
    """Digest of what was changed in the checkout but not committed; empty where nothing was."""
    cases: int
    """Number of cases that the run set out to measure."""

    @classmethod
    def of(cls, options: Options, sweep: Sweep | None, environment: str, cases: int, changes_digest: str) -> Self:
        """Give the line of a run that begins now."""
        return cls(
            environment=environment,
            command=command_line(options),
            sweep=None if sweep is None else sweep_data(sweep),
            sweep_digest="" if sweep is None else sweep_digest(sweep),
            changes_digest=changes_digest,
            cases=cases,
        )


def sweep_data(sweep: Sweep) -> dict[str, Any]:
    """Give a sweep as plain data that a YAML file may hold; defaults are left out."""
    data: dict[str, Any] = sweep.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude=_OF_THIS_MACHINE)
    return data


def sweep_digest(sweep: Sweep) -> str:
    """Give sixteen hex digits over everything that a sweep says, defaults included."""
    return hashlib.sha256(sweep.model_dump_json(by_alias=True, exclude=_OF_THIS_MACHINE).encode()).hexdigest()[:16]


def command_line(options: Options) -> tuple[str, ...]:
    """Give the words of a ``spmark run`` that measures the same on any machine; no words where none does.

    Python may hand over cases without a sweep, and set options that the command line lacks.
    A sweep's file is named without its folder, and where records went is left out.
    """
    told = options.model_dump(mode="json", exclude_defaults=True)
    if not options.sweep or told.keys() - {"sweep", "warm", *_WORDS}:
        return ()
    sweep = options.sweep if options.sweep in packaged_sweeps() else Path(options.sweep).name
    words = []
    for name, option in _WORDS.items():
        value = told.get(name, [])
        for one in value if isinstance(value, list) else [value]:
            words += [option, str(one)]
    return ("spmark", "run", sweep, *words, *(["--warm"] if options.warm else []))


def is_run(command: Sequence[str]) -> bool:
    """Tell whether words are a command as `command_line` gives it: a row of records may hold any words."""
    if len(command) < 3 or tuple(command[:2]) != ("spmark", "run") or not all(map(str.isprintable, command)):
        return False
    if command[2].startswith("-") or command[2] != Path(command[2]).name:
        return False
    words = iter(command[3:])
    return all(word == "--warm" or (word in _WORDS.values() and next(words, None) is not None) for word in words)


@dataclass
class Batch:
    """Records of one run, as far as the files say."""

    environment: Environment | None
    run: RunRow | None
    records: list[Measurement] = field(default_factory=list)


def read_batches(path: Path) -> dict[Path, list[Batch]]:
    """Group the records under a path by file, and those of a file by run.

    Raises
    ------
    RecordError
        There are no records, or a file cannot be read.
    """
    from spmark.report.records import record_files

    # Result files of airspeed velocity (.json) name no run.
    batches_of = {file: _batches(file) for file in record_files([path]) if file.suffix != ".json"}
    batches_of = {file: batches for file, batches in batches_of.items() if batches}
    if not batches_of:
        raise RecordError(f"{path}: expected records, found none; run a sweep first")
    return batches_of


def _batches(file: Path) -> list[Batch]:
    environments = {row.digest: row.environment for row in _side_rows(file, ENVIRONMENTS, EnvironmentRow)}
    runs = sorted(_side_rows(file, RUNS, RunRow), key=lambda run: run.started_at)
    batches: dict[tuple[object, ...], Batch] = {}
    for record in sorted(read_rows(file, Measurement), key=lambda record: record.started_at):
        mine = [r for r in runs if r.environment == record.environment and r.started_at <= record.started_at]
        run = mine[-1] if mine else None
        # A run that was interrupted and resumed is one batch.
        key = (record.environment, run and (run.command, run.sweep_digest, run.changes_digest))
        if key not in batches:
            batches[key] = Batch(environments.get(record.environment), run)
        batches[key].records.append(record)
    return list(batches.values())


def _side_rows(file: Path, name: str, kind: type[Row]) -> list[Row]:
    return [row for path in row_files(file.parent, name) for row in read_rows(path, kind)]


def matrices_of(run: RunRow | None) -> dict[str, MatrixSpec]:
    """Give the matrices of a run's sweep by id: a record does not hold the arguments of a source."""
    told = run.sweep.get("matrices") if run is not None and run.sweep else None
    try:
        specs = [MatrixSpec.model_validate(one) for one in told] if isinstance(told, list) else []
    except ValidationError:
        return {}
    return {spec.id: spec for spec in specs}


def case_of(record: Measurement, specs: Mapping[str, MatrixSpec]) -> Case:
    """Give the case that a record is of, without a baseline and a limit of time.

    Raises
    ------
    ValidationError
        No sweep can ask for the record's matrix.
    """
    spec = specs.get(record.matrix_id)
    return Case(
        op=record.op,
        matrix=spec or MatrixSpec(source=record.source, name=record.matrix, orientation=record.orientation),
        width=record.width,
        dtype=record.dtype,
        scaled=record.scaled,
        implementation=record.implementation,
        config=record.requested,
        label=record.label,
        seed=record.seed,
        time_limit_s=math.inf,
        baseline=None,
    )
