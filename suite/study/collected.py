"""Samples of ``spmark study collect`` as measured configs of problems, whatever platform they are of."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from spmark.datasets.sweep.model import MatrixSpec
from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import DatasetError, RecordError
from spmark.impls.table import PLATFORMS, find_platform
from spmark.records.rowfile import read_rows
from spmark.records.schema import CandidateRow, CaseSpec, MatrixRef, Measurement
from spmark.studies.collected import CollectedRow, read_collected
from spmark.suite.study.train import labels_in


def holds_samples(path: Path) -> bool:
    """Tell whether a file, or the first file of a folder, begins with a row of collected samples."""
    with suppress(DatasetError, RecordError):
        return next(read_rows(labels_in(path)[0], CollectedRow), None) is not None
    return False


def read_samples(paths: Sequence[Path], left_out: list[LeftOut]) -> list[Searched]:
    """Read the problems of collected samples; those that cannot be replayed are added to ``left_out``.

    Parameters
    ----------
    paths : sequence of Path
        Files, or folders that hold some; each of one platform and machine.
    left_out : list of LeftOut

    Raises
    ------
    RecordError
        A file cannot be read.
    DatasetError
        Samples of one path are of several platforms, machines or versions of a space.
    """
    found = []
    for row in (row for path in paths for row in read_collected(labels_in(path))):
        try:
            spec = MatrixSpec.model_validate(row.spec)
        except ValidationError as error:
            left_out.append(LeftOut(row.matrix, "no sweep can ask for its matrix", str(error)))
            continue
        found.append(_searched(row, spec))
    return found


def _searched(row: CollectedRow, spec: MatrixSpec) -> Searched:
    case = CaseSpec(
        op=row.op,
        matrix=MatrixRef.model_validate(spec.model_dump(exclude={"widths"})),
        width=row.width,
        dtype=row.dtype,
        implementation=row.platform,
        label=row.platform,
        seed=0,
    )
    today = find_platform(row.platform).digest(row.op) if row.platform in PLATFORMS else row.space_digest
    told = [
        CandidateRow(
            case_id=case.case_id,
            implementation_version=row.version,
            environment="",
            config=one.config,
            samples_us=list(one.samples_us),
            reason=one.reason,
        )
        for one in row.configs
    ]
    return Searched(
        case=case,
        case_id=case.case_id,
        matrix_hash=row.pattern_sha256,
        machine=row.machine,
        measured=[one for one in told if one.samples_us],
        failed=[one for one in told if one.reason],
        note=row.note,
        outdated="" if row.space_digest == today else "its platform has another space today",
    )


@dataclass(frozen=True, eq=False)
class Searched:
    """A problem with the measured configs of an implementation, or of a platform that configs were collected on."""

    case: CaseSpec
    """For collected configs, the platform stands in for an implementation."""
    case_id: str
    matrix_hash: str
    machine: str
    """Name of the device, ``simulated``, or empty where the environment is not recorded."""
    measured: Sequence[CandidateRow]
    """Configs with samples, each once."""
    failed: Sequence[CandidateRow] = ()
    """Configs with a reason instead."""
    note: str = ""
    """What the times of collected configs are."""
    outdated: str = ""
    """Why no model of today knows the configs."""

    @property
    def times_us(self) -> NDArray[np.float64]:
        """Medians of the measured configs, (len(measured),) float64."""
        return np.array([np.median(row.samples_us) for row in self.measured], np.float64)


@dataclass(frozen=True, eq=False, kw_only=True)
class Recorded(Searched):
    """A recorded case with what its search saw."""

    record: Measurement
    device: DeviceSpec | None
    """None where the environment is not recorded."""

    @classmethod
    def of(
        cls,
        case: CaseSpec,
        record: Measurement,
        device: DeviceSpec | None,
        measured: Sequence[CandidateRow],
        failed: Sequence[CandidateRow] = (),
    ) -> Recorded:
        """Join a record, its case and its configs."""
        return cls(
            case=case,
            case_id=record.case_id,
            matrix_hash=record.matrix_hash,
            machine=device.name if device else "",
            measured=measured,
            failed=failed,
            record=record,
            device=device,
        )


@dataclass(frozen=True)
class LeftOut:
    """A case that cannot be replayed."""

    case_id: str
    reason: str
    """The same words for all cases of a kind."""
    detail: str = ""
