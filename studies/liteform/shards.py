"""Files of labels that grow, shard by shard: which matrices are measured, are still to measure, or cannot be."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence, Set
from pathlib import Path
from typing import TypeVar

from spmark.impls.core.errors import RecordError
from spmark.impls.core.problem import DType
from spmark.impls.core.recordfile import read_rows
from spmark.studies.liteform.labels import MatrixLabels
from spmark.studies.rows import Row

_log = logging.getLogger(__name__)
Matrix = TypeVar("Matrix")


class Skipped(Row):
    """A line of a file of matrices that could not be measured; the same version does not try them again."""

    matrix: str
    """``source/name``."""
    device: str
    dtype: DType
    width: int = 0
    """J; 0 stands for all."""
    reason: str
    implementation_version: str


def skipped_before(path: Path, device: str, version: str) -> set[tuple[str, DType, int]]:
    """Give every (matrix, dtype, J) that this version cannot measure on the device."""
    rows = read_rows(path, Skipped) if path.is_file() else ()
    own = (row for row in rows if (row.device, row.implementation_version) == (device, version))
    return {(row.matrix, row.dtype, row.width) for row in own}


def measured_before(paths: Sequence[Path], device: str, version: str) -> set[tuple[str, str]]:
    """Give (matrix, dtype) of every row in the files of labels to continue, however they were sharded.

    Rows that another version of the implementation measured count, with a warning.

    Raises
    ------
    RecordError
        The labels are another device's, or a line is not a label.
    """
    rows = [(path, row) for path in paths for row in read_rows(path, MatrixLabels)]
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


def by_dtype(
    matrices: Iterable[tuple[str, Matrix | str]], dtypes: Sequence[DType], have: Set[tuple[str, str]] = frozenset()
) -> Iterator[tuple[tuple[str, DType], Matrix | str]]:
    """Give each matrix once for every dtype in which it has no row yet, as `append_rows` takes them.

    Parameters
    ----------
    matrices : iterable of (name, matrix)
        A text in place of a matrix is the reason why the matrix is missing.
    dtypes : sequence of DType
    have : set of (matrix, dtype)
        Matrices to pass over: `measured_before`.
    """
    for name, matrix in matrices:
        for dtype in dtypes:
            if (name, dtype.value) not in have:
                yield (name, dtype), matrix
