"""Files of labels that grow, shard by shard: what is there already, what is still to be done, what never can be."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence, Set
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict

from spmark.impls.core.errors import RecordError, SpmarkError
from spmark.impls.core.problem import DType
from spmark.impls.core.recordfile import RecordFile, read_rows
from spmark.impls.liteform.study.labels import LabelRow

_log = logging.getLogger(__name__)
Matrix = TypeVar("Matrix")


class Skipped(BaseModel):
    """A line of a file of what could not be measured, and is not tried again by the same version."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    schema_version: Literal[1] = 1
    matrix: str
    """``source/name``."""
    device: str
    dtype: DType
    width: int = 0
    """J; 0 stands for all."""
    reason: str
    implementation_version: str


def skipped_before(path: Path, device: str, version: str) -> set[tuple[str, DType, int]]:
    """Give (matrix, dtype, J) of what this version has found that it cannot measure on the device."""
    rows = read_rows(path, Skipped) if path.is_file() else ()
    found = (row for row in rows if (row.device, row.implementation_version) == (device, version))
    return {(row.matrix, row.dtype, row.width) for row in found}


def measured_before(paths: Sequence[Path], device: str, version: str) -> set[tuple[str, str]]:
    """Give (matrix, dtype) of every row in files of labels that are gone on with, however they were sharded.

    Rows that another version of the implementation measured count, with a warning.

    Raises
    ------
    RecordError
        The labels are another device's, or a line is no label.
    """
    rows = [(path, row) for path in paths for row in read_rows(path, LabelRow)]
    for path, row in rows:
        if row.device != device:
            raise RecordError(
                f"{path}: expected labels of {device}, found those of {row.device}; name another folder with --out"
            )
    others = sum(row.implementation_version != version for _, row in rows)
    if others:
        _log.warning(
            "%s: %d of %d labels were measured by another version and are kept; name another folder to measure anew",
            paths[0].parent, others, len(rows),
        )  # fmt: skip
    return {(row.matrix, row.dtype.value) for _, row in rows}


def label_all(  # noqa: PLR0917
    path: Path,
    matrices: Iterable[tuple[str, Matrix | str]],
    dtypes: Sequence[DType],
    make: Callable[[str, Matrix, DType], LabelRow],
    ends: float,
    have: Set[tuple[str, str]] = frozenset(),
    skip: Callable[[str, DType, str], None] = lambda *_: None,
) -> int:
    """Label what has no row yet, each row on disk before the next matrix begins.

    Parameters
    ----------
    path : Path
        File of labels, appended to.
    matrices : iterable of (name, matrix)
        Taken one after the other as long as there is time; a text instead of a matrix says why there is none.
    dtypes : sequence of DType
    make : callable
        Measures one; what it raises on purpose is passed over, so that one broken matrix does not end a shard.
    ends : float
        Of the monotonic clock: no matrix is begun after it.
    have : set of (matrix, dtype)
        What is passed over: `measured_before`.
    skip : callable
        Told of every matrix and dtype that cannot have a label, and why.

    Returns
    -------
    int
        Rows written.
    """
    made = 0
    with RecordFile(path) as file:
        for name, matrix in matrices:
            for dtype in dtypes:
                if (name, dtype.value) in have or time.monotonic() >= ends:
                    continue
                found = matrix if isinstance(matrix, str) else _made(make, name, matrix, dtype)
                if isinstance(found, str):
                    _log.warning("%s in %s has no label: %s", name, dtype, found)
                    skip(name, dtype, found)
                    continue
                file.append(found)
                made += 1
            if time.monotonic() >= ends:
                break
    return made


def _made(make: Callable[[str, Matrix, DType], LabelRow], name: str, matrix: Matrix, dtype: DType) -> LabelRow | str:
    try:
        return make(name, matrix, dtype)
    except SpmarkError as error:
        return str(error)
