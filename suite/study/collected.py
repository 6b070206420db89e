"""Samples of ``spmark study collect`` as measured configs of problems, whatever platform they are of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from spmark.datasets.sweep.model import MatrixSpec
from spmark.impls.core.errors import DatasetError, RecordError
from spmark.impls.core.record import CandidateRow, CaseSpec, MatrixRef
from spmark.impls.core.recordfile import read_rows
from spmark.impls.study.collected import CollectedRow, read_collected
from spmark.impls.table import PLATFORMS, find_platform
from spmark.suite.study.searched import LeftOut, Searched
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
        scaled=False,
        implementation=row.platform,
        config={},
        label=row.platform,
        seed=0,
        time_limit_s=math.inf,
        baseline=None,
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
