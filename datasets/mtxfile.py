"""Matrix Market files, plain, gzipped or in an archive as the SuiteSparse collection ships them."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np
from scipy import io, sparse

from spmark.datasets.archive import open_gzip, open_member
from spmark.datasets.source import RawMatrix, csr_from_edges
from spmark.impls.core.errors import DatasetError, MatrixError
from spmark.impls.core.problem import MAX_NNZ
from spmark.impls.core.record import MatrixKind


def read_mtx(path: Path) -> RawMatrix:
    """Read a coordinate matrix: ``.mtx``, ``.mtx.gz`` or a ``.tar.gz`` that holds one.

    Symmetric, skew-symmetric and Hermitian storage is expanded; explicit zeros stay in the pattern. In an archive
    with many ``.mtx`` files (right-hand sides, coordinates) the one named like the archive is meant.

    Raises
    ------
    DatasetError
        The file is corrupt, truncated or something else; names it.
    MatrixError
        It is complex, too large for int32, or has an entry out of range or twice.
    """
    try:
        with _opened(path) as stream:
            rows, cols, entries, layout, field, _ = io.mminfo(stream)
        if layout != "coordinate":
            raise DatasetError(f"{path}: expected a coordinate matrix, found layout {layout!r}")
        if field == "complex":
            raise MatrixError(f"{path}: expected real values or a pattern, found complex values")
        if max(rows, cols, entries) > MAX_NNZ:
            raise MatrixError(
                f"{path}: expected at most 2^31 - 1 rows, columns and non-zeros, found {rows} x {cols} with {entries:,}"
            )
        with _opened(path) as stream, warnings.catch_warnings():
            warnings.simplefilter("error")
            matrix = sparse.coo_array(io.mmread(stream, spmatrix=False))
    except (ValueError, OverflowError, UnicodeDecodeError, Warning) as error:
        if isinstance(error, MatrixError):
            raise
        raise DatasetError(f"{path}: expected a complete Matrix Market file, found: {error}") from error
    values = None if field == "pattern" else np.asarray(matrix.data)
    kind = MatrixKind.PATTERN if values is None else MatrixKind.REAL
    return csr_from_edges((rows, cols), matrix.row, matrix.col, values, kind, merge=False, where=str(path))


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    if path.name.endswith((".tar.gz", ".tgz", ".tar", ".zip")):
        stem = path.name.partition(".tar")[0].removesuffix(".tgz").removesuffix(".zip")
        with open_member(path, lambda member: member.name == f"{stem}.mtx", f"{stem}.mtx") as stream:
            yield stream
    elif path.suffix == ".gz":
        with open_gzip(path) as stream:
            yield stream
    else:
        with path.open("rb") as stream:
            yield stream
