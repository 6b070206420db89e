"""What earlier runs left behind, and so which cases of a sweep are still to run.

A case is known by `spmark.records.schema.CaseSpec.key`: when any part of it changes, the case is measured again. ok
is final, unsupported as long as the same packages are installed, and a failure is tried twice; a case that somebody
killed did not fail.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from spmark.records.rowfile import ENVIRONMENTS, RECORDS, read_rows
from spmark.records.schema import (
    FINAL,
    SPARSE_PACKAGE,
    CaseSpec,
    Environment,
    EnvironmentRow,
    Key,
    Measurement,
    ProblemFacts,
    Status,
)

TRIES = 2
"""How often a case that fails is run without being asked for."""
_log = logging.getLogger(__name__)


@dataclass
class Earlier:
    """What earlier records say of one case."""

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

    def earlier(self, spec: CaseSpec, environment: Environment, *, of_this_library: bool = False) -> Earlier | None:
        """Give what records say of a case, under whichever of its ids they know it; of any cuSPARSE unless asked."""
        end = (environment.packages.get(SPARSE_PACKAGE),) if of_this_library else ()
        return next((self.tried[(*key, *end)] for key in spec.keys(environment) if (*key, *end) in self.tried), None)

    def _add(self, record: Measurement, environment: Environment) -> None:
        key = record.spec.key(environment)
        for known_by in (key, (*key, environment.packages.get(SPARSE_PACKAGE))):
            self._count(known_by, record, environment)
        if record.problem is not None:
            self.problems[record.spec.matrix.id] = record.problem

    def _count(self, key: Key, record: Measurement, environment: Environment) -> None:
        before = self.tried.get(key)
        earlier = before.failures if before else 0
        failures = 0 if record.status in FINAL else earlier + (not record.killed_from_outside)
        baseline = record.baseline.implementation if record.baseline else None
        self.tried[key] = Earlier(record.status, environment.packages, bool(record.warm_samples_us), baseline, failures)


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
