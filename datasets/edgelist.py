"""Lists of integer pairs in text, as SNAP and OGB publish them."""

from __future__ import annotations

from typing import IO

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.errors import DatasetError


def read_integers(
    stream: IO[bytes], where: str, *, columns: int = 2, delimiter: str | None = None
) -> NDArray[np.int64]:
    """Read a table of integers; lines that start with ``#`` are comments.

    Returns
    -------
    (columns, lines) int64, row-major.

    Raises
    ------
    DatasetError
        A line does not hold ``columns`` integers; names it.
    """
    try:
        table = np.loadtxt(stream, dtype=np.int64, comments="#", delimiter=delimiter, ndmin=2)
    except ValueError as error:
        raise DatasetError(f"{where}: expected {columns} integers in every line: {error}") from error
    if table.shape[1] != columns:
        raise DatasetError(f"{where}: expected {columns} integers in every line, found {table.shape[1]}")
    return np.ascontiguousarray(table.T)
