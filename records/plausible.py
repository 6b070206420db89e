"""Readers that pass over records with impossible numbers, with a message, before anything is derived from them.

A file that was damaged or made by hand may hold a time of zero, a negative size or no number at all in a valid line.
Such lines stay in their file, and resuming still counts them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from spmark.records.rowfile import RUNS, read_rows, row_files
from spmark.records.schema import CandidateRow, Matrices, MatrixSource, Measurement

_LEAST_US, _MOST_US = 1e-6, 1e13
"""A picosecond, and a hundred days."""
_MOST_S = 1e9
_ONLY_SCORED = b'"samples_us":[]'
_log = logging.getLogger(__name__)


class _Matrix(MatrixSource):
    model_config = ConfigDict(extra="ignore")


class _Run(BaseModel):
    sweep: Any = None


def read_measurements(path: Path) -> Iterator[Measurement]:
    """Read the records of a file, oldest first; see `spmark.records.rowfile.read_rows`.

    Records of schema version 1 lack the arguments of matrices, which the runs beside the file tell.
    """
    context = cache(partial(_matrices, path.parent))
    return plausible(read_rows(path, Measurement, context=context), path)


def _matrices(folder: Path) -> Matrices:
    """Give the matrices of the sweeps of a folder's runs, by id."""
    found: dict[str, list[dict[str, Any]]] = {}
    for run in (run for file in row_files(folder, RUNS) for run in read_rows(file, _Run)):
        told = run.sweep.get("matrices") if isinstance(run.sweep, dict) else None
        for one in told if isinstance(told, list) else ():
            with suppress(ValidationError):
                matrix = _Matrix.model_validate(one)
                found.setdefault(matrix.id, []).append(matrix.model_dump(include={"args", "values"}))
    return found


def plausible(rows: Iterable[Measurement], path: Path) -> Iterator[Measurement]:
    """Give the records that a run can have made; any other is passed over with a warning."""
    for row in rows:
        reason = implausible(row)
        if reason:
            _log.warning("%s: passed over a record of %s: %s", path, row.case_id, reason)
        else:
            yield row


def read_candidates(path: Path, *, timed: bool = False) -> Iterator[CandidateRow]:
    """Read the candidates of searches; one with impossible numbers is passed over with a warning.

    With ``timed``, candidates that were only scored are passed over unread, which two of three are.
    """
    for row in read_rows(path, CandidateRow, _ONLY_SCORED if timed else None):
        if are_times(row.samples_us) and (row.predicted is None or abs(row.predicted) < _MOST_US):
            yield row
        else:
            _log.warning("%s: passed over a candidate of %s: no search gives its numbers", path, row.case_id)


def implausible(row: Measurement) -> str:
    """Say which number of a record is impossible; empty where all are possible."""
    base = row.baseline.samples_us if row.baseline else []
    if not are_times(chain(row.samples_us, row.warm_samples_us, row.graph_samples_us, base)):
        return f"expected times from {_LEAST_US:g} to {_MOST_US:g} us, found others"
    if not all(0 <= seconds <= _MOST_S for seconds in row.phases_s.values()):
        return f"expected seconds of phases from 0 to {_MOST_S:g}, found others"
    if not all(0 <= clock <= _MOST_US for clock in row.clocks_mhz):
        return "expected clocks of at least 0 MHz, found others"
    sizes = row.problem.model_dump().values() if row.problem else ()
    if min(row.stored, row.device_bytes, row.peak_device_bytes, *sizes) < 0 or row.spec.width < 1:
        return "expected a width of at least 1 and sizes of at least 0, found others"
    return ""


def are_times(samples_us: Iterable[float]) -> bool:
    """Say whether all are times that something can take."""
    return all(_LEAST_US <= us <= _MOST_US for us in samples_us)
