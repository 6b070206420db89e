"""Lists of integer pairs in text, as SNAP and OGB publish them."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.errors import DatasetError
from spmark.impls.core.guard import reading


def read_integers(file: Path, where: str, *, columns: int = 2, delimiter: str | None = None) -> NDArray[np.int64]:
    """Read a table of integers; lines that start with ``#`` are comments.

    Parameters
    ----------
    file : Path
    where : str
        Name of the file in errors.
    columns : int
    delimiter : str, optional
        By default white space.

    Returns
    -------
    (columns, lines) int64, row-major.

    Raises
    ------
    DatasetError
        A line does not hold ``columns`` integers; names the line.
    """
    with reading(where, f"{columns} integers in every line"), warnings.catch_warnings():
        warnings.simplefilter("error")  # NumPy warns of integers that are written as reals
        warnings.filterwarnings("ignore", "loadtxt: input contained no data", UserWarning)
        # A relative path might be taken for the name of something to download.
        table = np.loadtxt(file.absolute(), np.int64, comments="#", delimiter=delimiter, ndmin=2, encoding="latin1")
    if table.size == 0:
        return np.empty((columns, 0), np.int64)
    if table.shape[1] != columns:
        raise DatasetError(f"{where}: expected {columns} integers in every line, found {table.shape[1]}")
    return np.ascontiguousarray(table.T)
