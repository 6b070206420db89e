"""What a run will do with each case of a sweep: run the case, record why the case cannot run, or leave it alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from spmark.datasets.sweep.model import Case
from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.errors import SweepError
from spmark.impls.core.files import in_place_of_file, is_file
from spmark.impls.core.record import Environment
from spmark.suite.plan.options import Options
from spmark.suite.plan.resume import History, keys_of, why_skipped


@dataclass(frozen=True)
class Item:
    """One case and the action to take."""

    case: Case
    skipped: str | None = None
    """Why it is left alone."""
    refused: str | None = None
    """Why it cannot run on this device: recorded without loading the matrix."""
    file_sha256: str = ""
    """Digest of the user's own file that the matrix is read from, for the record."""
    other_baseline: str = ""
    """What a skipped case was measured beside, where the case asks for another baseline now."""

    @property
    def action(self) -> str:
        """``skip``, ``refuse`` or ``run``."""
        if self.skipped is not None:
            return "skip"
        return "run" if self.refused is None else "refuse"


@dataclass(frozen=True)
class Agenda:
    """The cases of a run, in their order."""

    items: tuple[Item, ...]

    def todo(self) -> Iterator[Item]:
        """Give the items that a record will be written for."""
        return (item for item in self.items if item.skipped is None)

    def count(self, action: str) -> int:
        """Count the items with an action."""
        return sum(item.action == action for item in self.items)


def refuse_missing_files(agenda: Agenda) -> None:
    """Refuse to run cases whose matrix is a missing file.

    Raises
    ------
    SweepError
        A file is missing; the message names every missing file.
    """
    files = dict.fromkeys(item.case.matrix.file for item in agenda.items if item.action == "run")
    found: dict[str, list[str]] = {}
    for file in files:
        if file is not None and not is_file(file):
            found.setdefault(in_place_of_file(file), []).append(str(file.absolute()))
    if found:
        told = " and ".join(f"{what} at {', '.join(paths)}" for what, paths in found.items())
        raise SweepError(
            f"expected the sweep's matrices in files, found {told}; a relative path begins at the folder of the "
            "sweep's file"
        )


def make_agenda(
    cases: Sequence[Case],
    refused: Mapping[str, str],
    environment: Environment,
    history: History,
    options: Options,
) -> Agenda:
    """Decide over every case.

    Parameters
    ----------
    cases : sequence of Case
        In the order to run them.
    refused : mapping of str to str
        Why a case cannot run here, by case id (`spmark.suite.plan.refusals.refusals`).
    environment : Environment
        Of this machine and device.
    history : History
        Of the folder that records go to.
    options : Options
        ``retry``, ``warm``, ``flush`` and ``limit``; cases that cannot run do not count for ``limit``.
    """
    # Where times mean nothing, warm samples are never missing.
    warm = options.warm and environment.device.kind is not DeviceKind.HOST_SIMT
    items, running = [], 0
    for case, key in zip(cases, keys_of(cases, environment, options.flush), strict=True):
        reason = refused.get(case.case_id)
        tried, other = history.tried.get(key), ""
        skipped = why_skipped(tried, environment.packages, options.retry, warm)
        if skipped is not None and tried is not None and tried.baseline and case.baseline not in (None, tried.baseline):
            other = tried.baseline
        if skipped is None and reason is None:
            running += 1
            if options.limit is not None and running > options.limit:
                skipped = f"over --limit {options.limit}"
        items.append(Item(case, skipped, reason, key.file_sha256, other))
    return Agenda(tuple(items))
