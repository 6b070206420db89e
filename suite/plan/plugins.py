"""Sweeps that name classes in files: the files are imported here, when a sweep is run and not when it is read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from spmark.datasets.sweep.model import ImplementationSpec, Sweep
from spmark.impls.core.errors import SweepError
from spmark.impls.core.fileclass import is_file_class
from spmark.impls.core.record import CaseSpec
from spmark.impls.table import file_of, name_of


def with_files(sweep: Sweep) -> Sweep:
    """Import the files that a sweep names, and put the names of their classes in the place of the files.

    Raises
    ------
    SweepError
        A file cannot be used, or two entries name one implementation with one config.
    """
    names = {
        entry.name: name_of(entry.name, Path(entry.folder))
        for entry in sweep.implementations
        if is_file_class(entry.name)
    }
    if not names:
        return sweep

    def named(entry: ImplementationSpec) -> ImplementationSpec:
        name = names.get(entry.name, entry.name)
        return entry.model_copy(update={"name": name, "label": name if entry.label == entry.name else entry.label})

    changed = {
        "implementations": tuple(map(named, sweep.implementations)),
        "baseline": {kind: names.get(name, name) for kind, name in sweep.baseline.items()},
    }
    try:
        # A model's own rules once more: two files may be one, and a file may have the name of another entry.
        return Sweep.model_validate(sweep.model_copy(update=changed).model_dump(by_alias=True))
    except ValidationError as error:
        raise SweepError(f"{sweep.name}: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from error


def files_of(cases: Iterable[CaseSpec]) -> tuple[str, ...]:
    """List the files and classes that the cases' implementations and baselines come from, for another process."""
    names = dict.fromkeys(name for case in cases for name in (case.implementation, case.baseline) if name is not None)
    return tuple(file for name in names if (file := file_of(name)) is not None)
