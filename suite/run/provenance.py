"""What made a file of records, and how to make it again: the runs in ``runs.jsonl`` beside the file.

Every run appends one row before its first case: the words of its command, the whole sweep after overrides, and a digest
of what was changed in the checkout. Commit and versions stand in the row's environment. Records belong to the last run
that began before them.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import ConfigDict, Field

from spmark.datasets.sweep.model import Sweep
from spmark.impls.core.digest import implementation_version
from spmark.impls.core.errors import RecordError, printable
from spmark.impls.core.files import path_component
from spmark.impls.core.untrusted import Frozen
from spmark.impls.table import IMPLEMENTATIONS, module_of
from spmark.records.plausible import read_measurements
from spmark.records.rowfile import RUNS, read_rows, row_files
from spmark.records.schema import PROTOCOL_VERSION, Environment, Measurement, Time
from spmark.suite.environment import is_commit

_OF_THIS_MACHINE: Any = {key: {"__all__": {"folder"}} for key in ("matrices", "implementations")}
_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9][A-Za-z0-9.!+_-]*")
_PYTHON = re.compile(r"3\.\d{1,2}")


class RunRow(Frozen):
    """A line of ``runs.jsonl``: one run that wrote into this folder."""

    model_config = ConfigDict(extra="ignore")  # earlier versions held a digest of the sweep, too

    schema_version: Literal[1] = 1
    started_at: Time = Field(default_factory=lambda: datetime.now(UTC))
    environment: str
    """Digest of a row in ``environments.jsonl``."""
    command: tuple[str, ...] = ()
    """Words of the command line, with names in place of paths; empty where Python asked for the run."""
    sweep: dict[str, Any] | None = None
    """The whole sweep, after overrides."""
    changes_digest: str = ""
    """Digest of what was changed in the checkout but not committed; empty where nothing was."""
    cases: int
    """Number of cases that the run set out to measure."""

    @classmethod
    def of(cls, sweep: Sweep, environment: str, cases: int, changes_digest: str) -> Self:
        """Give the line of a run that begins now."""
        data = sweep.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude=_OF_THIS_MACHINE)
        return cls(
            environment=environment, command=command_words(), sweep=data, changes_digest=changes_digest, cases=cases
        )


def command_words(argv: Sequence[str] | None = None) -> tuple[str, ...]:
    """Give the words of this process's command line, without where records go and without the folders of its files."""
    program, *words = sys.argv if argv is None else argv
    if Path(program).stem not in ("spmark", "__main__"):
        return ()
    kept = [word for word, before in zip(words, ["", *words], strict=False) if "--out" not in (word, before)]
    return ("spmark", *(_without_folder(word) for word in kept if not word.startswith("--out=")))


def _without_folder(word: str) -> str:
    option, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
    path, colon, label = value.partition(":")
    return f"{option}{equals}{Path(path).name}{colon}{label}" if os.sep in path and Path(path).exists() else word


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

    batches_of = {file: _batches(file) for file in record_files([path])}
    batches_of = {file: batches for file, batches in batches_of.items() if batches}
    if not batches_of:
        raise RecordError(f"{path}: expected records, found none; run a sweep first")
    return batches_of


def _batches(file: Path) -> list[Batch]:
    from spmark.report.records import environments_beside

    environments = environments_beside(file)
    runs = [row for one in row_files(file.parent, RUNS) for row in read_rows(one, RunRow)]
    runs.sort(key=lambda run: run.started_at)
    batches: dict[object, Batch] = {}
    for record in sorted(read_measurements(file), key=lambda record: record.started_at):
        mine = [r for r in runs if r.environment == record.environment and r.started_at <= record.started_at]
        run = mine[-1] if mine else None
        # A run that was interrupted and resumed is one batch.
        key = (record.environment, run and (run.command, str(run.sweep), run.changes_digest))
        batches.setdefault(key, Batch(environments.get(record.environment), run)).records.append(record)
    return list(batches.values())


@dataclass(frozen=True)
class Recipe:
    """How to repeat one batch.

    Records may come from anywhere and commands are pasted into a shell: what spmark would not write is left out and
    named, all other words are quoted, and every line of text is printable.
    """

    about: list[str]
    """What it is, line by line."""
    commands: list[str]
    """For a shell in a clone of the project; a command may have several lines."""
    limits: list[str]
    """Differences to expect."""


def recipe(batch: Batch) -> Recipe:
    """Give the commands that repeat a batch: checkout, packages, the sweep's file, and the run."""
    commands = [*_checkout(batch.environment), *_run(batch.run)]
    return Recipe([*map(printable, _about(batch))], commands, [*map(printable, _limits(batch))])


def _about(batch: Batch) -> Iterator[str]:
    records, environment = batch.records, batch.environment
    statuses = Counter(str(record.status) for record in records)
    counts = ", ".join(f"{count} {name}" for name, count in sorted(statuses.items()))
    first, last = records[0].started_at, records[-1].started_at
    yield f"{len(records)} records ({counts}), {first:%Y-%m-%d %H:%M:%S} to {last:%Y-%m-%d %H:%M:%S} UTC"
    if environment is None:
        return
    driver = f", driver {environment.driver}, CUDA {environment.cuda}" if environment.driver else ""
    memory = f"{environment.memory_bytes / 2**30:.0f} GiB"
    yield f"{environment.device.name}{driver}; {environment.cpu}, {environment.cores} cores, {memory}"


def _checkout(environment: Environment | None) -> Iterator[str]:
    if environment is None:
        return
    if is_commit(commit := environment.commit.removesuffix("+")):
        yield shlex.join(["git", "checkout", commit])
    python = ".".join(environment.packages.get("python", "").split(".")[:2])
    yield shlex.join([f"python{python if _PYTHON.fullmatch(python) else '3'}", "-m", "venv", ".venv"])
    yield shlex.join([".venv/bin/pip", "install", "--editable", ".", *filter(_PACKAGE.fullmatch, _pins(environment))])


def _pins(environment: Environment) -> list[str]:
    return [f"{name}=={version}" for name, version in environment.packages.items() if name not in ("python", "spmark")]


def _run(run: RunRow | None) -> Iterator[str]:
    if run is None:
        return
    command = run.command if _is_ours(run.command) else ()
    files = [word for word in command if word.endswith((".yaml", ".yml"))]
    if run.sweep is not None and (files or not command):
        file = files[0] if files else f"{path_component(str(run.sweep.get('name', 'sweep')))}.yaml"
        # Every line of a value is indented, so that no line of a value can be the END.
        text = yaml.safe_dump(run.sweep, sort_keys=False, default_flow_style=None, width=110)
        yield f"cat > {shlex.quote(file)} <<'END'\n{text}END"
        command = command or ("spmark", "run", file)
    if command:
        yield f".venv/bin/{shlex.join(command)}"


def _is_ours(command: Sequence[str]) -> bool:
    return command[:1] == ("spmark",) and all(map(str.isprintable, command))


def _limits(batch: Batch) -> Iterator[str]:
    records, environment, run = batch.records, batch.environment, batch.run
    if run is None:
        yield "the command is not on record: runs.jsonl has no row for these records"
    elif run.command and not _is_ours(run.command):
        yield f"the command on record is not repeated here: {shlex.join(run.command)}"
    if run and (files := [word for word in run.command if ".py:" in word]):
        yield f"the run imports code that is not part of the project, to be brought along: {', '.join(files)}"
    if environment is None:
        yield "the machine and the software are not on record: environments.jsonl has no row for these records"
    else:
        if not is_commit(environment.commit.removesuffix("+")):
            yield f"expected a commit on record, found {environment.commit!r}: nothing is checked out"
        elif environment.commit.endswith("+"):
            digest = f" (digest {run.changes_digest})" if run and run.changes_digest else ""
            yield f"the checkout had changes that were not committed{digest}"
        if odd := [pin for pin in _pins(environment) if not _PACKAGE.fullmatch(pin)]:
            yield f"packages on record with invalid names or versions are not installed: {', '.join(odd)}"
        yield f"times hold on {environment.device.name}" + f" with driver {environment.driver}" * bool(
            environment.driver
        )
    if protocols := {record.spec.protocol_version for record in records} - {PROTOCOL_VERSION}:
        yield f"this spmark measures by protocol {PROTOCOL_VERSION}, the records by {', '.join(map(str, protocols))}"
    versions = {(one.spec.implementation, one.spec.implementation_version) for one in records}
    other = {n for n, version in versions if n in IMPLEMENTATIONS and version != implementation_version(module_of(n))}
    if other:
        yield f"the code here is not the code of these records: {', '.join(sorted(other))}; check that commit out"
