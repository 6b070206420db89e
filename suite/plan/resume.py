"""What earlier runs left behind, and so which cases of a sweep are still to run.

A case is known by its id, the content of the user's file that its matrix is read from, the digest of its
implementation's code, the protocol, the flush, the device, the driver and CUDA: when any of them changes, the case is
measured again. ok is final, unsupported as long as the same packages are
installed, and a failure is tried twice; a case that somebody killed did not fail.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from spmark.datasets.download import file_digest
from spmark.datasets.sweep.model import Case
from spmark.impls.core.digest import implementation_version
from spmark.impls.core.files import is_file
from spmark.impls.core.names import path_component
from spmark.impls.core.record import (
    FINAL,
    PROTOCOL_VERSION,
    Environment,
    EnvironmentRow,
    Flush,
    Measurement,
    ProblemFacts,
    Status,
)
from spmark.impls.core.recordfile import read_rows
from spmark.impls.table import package

RECORDS, ENVIRONMENTS, CANDIDATES = "records.jsonl", "environments.jsonl", "candidates.jsonl"
"""Files of a folder of records."""
TRIES = 2
"""How often a case that fails is run without being asked for."""
_log = logging.getLogger(__name__)


class Key(NamedTuple):
    """What must be the same for an earlier record to count."""

    case_id: str
    file_sha256: str
    implementation_version: str
    protocol_version: int
    flush: Flush
    device: str
    driver: str
    cuda: str


@dataclass
class Earlier:
    """What earlier records say of one key."""

    last: Status
    packages: Mapping[str, str]
    """Versions of the packages that were installed then."""
    warm: bool
    """Whether the last record has warm samples."""
    baseline: str | None = None
    """What was measured beside the last record."""
    failures: int = 0
    """Records in a row, up to the last, that are not final; those that somebody killed are not counted."""


@dataclass
class History:
    """The records of one folder, reduced to what deciding needs."""

    tried: dict[Key, Earlier] = field(default_factory=dict)
    problems: dict[str, ProblemFacts] = field(default_factory=dict)
    """By matrix id: sizes of matrices that some record has loaded."""
    environments: frozenset[str] = frozenset()
    """Digests that are on file."""

    @classmethod
    def read(cls, folder: Path) -> History:
        """Read a folder of records; one without records gives an empty history.

        Raises
        ------
        RecordError
            A file cannot be read or is not a record file.
        """
        known: dict[str, Environment] = {}
        if (folder / ENVIRONMENTS).exists():
            for row in read_rows(folder / ENVIRONMENTS, EnvironmentRow):
                known[row.digest] = row.environment
        history = cls(environments=frozenset(known))
        if (folder / RECORDS).exists():
            for record in read_rows(folder / RECORDS, Measurement):
                if record.environment in known:
                    history._add(record, known[record.environment])
                else:
                    _log.warning("%s: passed over a record of an unknown environment: %s", folder, record.case_id)
        return history

    def _add(self, record: Measurement, environment: Environment) -> None:
        key = Key(
            record.case_id,
            record.file_sha256,
            record.implementation_version,
            record.protocol_version,
            record.flush,
            record.device,
            environment.driver,
            environment.cuda,
        )
        before = self.tried.get(key)
        earlier = before.failures if before else 0
        failures = 0 if record.status in FINAL else earlier + (not record.killed_from_outside)
        baseline = record.baseline.implementation if record.baseline else None
        self.tried[key] = Earlier(record.status, environment.packages, bool(record.warm_samples_us), baseline, failures)
        if record.problem is not None:
            self.problems[record.matrix_id] = record.problem


def record_folder(out: Path, sweep: str, device: str) -> Path:
    """Give the folder below ``out`` that a sweep's records on a device go to."""
    return out / path_component(sweep) / path_component(device)


def keys_of(cases: Sequence[Case], environment: Environment, flush: Flush = Flush.WRITE) -> list[Key]:
    """Give the key of a record of each case made here and now. O(bytes of the files that matrices are read from)."""
    versions = {name: implementation_version(package(name)) for name in {case.implementation for case in cases}}
    files = {file: _content(file) for file in {case.matrix.file for case in cases}}
    device, driver, cuda = environment.device.name, environment.driver, environment.cuda
    return [
        Key(
            case.case_id,
            files[case.matrix.file],
            versions[case.implementation],
            PROTOCOL_VERSION,
            flush,
            device,
            driver,
            cuda,
        )
        for case in cases
    ]


def _content(file: Path | None) -> str:
    """Give the digest of a file; empty where the file is missing or unreadable, which loading the matrix explains."""
    if file is None or not is_file(file):
        return ""
    try:
        return file_digest(file)
    except OSError:
        return ""


def why_skipped(
    tried: Earlier | None, packages: Mapping[str, str], retry: Collection[Status], warm: bool
) -> str | None:
    """Say why a case is not run again, or None where it is to run.

    Parameters
    ----------
    tried : Earlier or None
        What earlier runs say.
    packages : mapping of str to str
        What is installed now: a case that lacked a package is run once that is there.
    retry : collection of Status
        Endings that the user wants to try again, final or not.
    warm : bool
        Whether warm samples are wanted, too: an ok record without warm samples then does not count.
    """
    if tried is None or tried.last in retry:
        return None
    if tried.last is Status.OK and warm and not tried.warm:
        return None
    if tried.last is Status.UNSUPPORTED and tried.packages != packages:
        return None
    if tried.last in FINAL:
        return f"done ({tried.last})"
    if tried.failures >= TRIES:
        return f"failed {tried.failures} times ({tried.last}); --retry {tried.last} tries it again"
    return None
