"""Matrix Market files, plain, gzipped or in an archive as the SuiteSparse collection ships them.

This module reads the header, and NumPy's reader of text reads the entries: SciPy's native reader ends the process on
some damaged files.
"""

from __future__ import annotations

import contextlib
import os
import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.datasets.readers.archive import unpacked
from spmark.datasets.source import RawMatrix, check_shape, csr_from_edges
from spmark.impls.core.errors import DatasetError, MatrixError
from spmark.impls.core.untrusted import reading
from spmark.records.schema import MatrixKind

_BANNER = "%%MatrixMarket matrix coordinate real general"
_SIZES = re.compile(r"\s*([0-9]{1,19})\s+([0-9]{1,19})\s+([0-9]{1,19})\s*", re.ASCII)
_ARCHIVES = (".tar.gz", ".tgz", ".tar", ".zip")
_ENCODING = "latin1"
"""Comments hold names of people; every byte is a character."""
_LONGEST_LINE = 1 << 16
"""Characters of a line of the header; the standard allows 1,024."""
_DTYPES = {"real": np.float64, "double": np.float64, "integer": np.int64, "unsigned-integer": np.uint64}
_SKEW = "skew-symmetric"
_SYMMETRIES = ("general", "symmetric", _SKEW, "hermitian")
_SHORTEST_ENTRY = {False: len(b"1 1 1\n"), True: len(b"1 1\n")}
"""Characters of the shortest line of an entry, by whether the file is a pattern."""


@dataclass(frozen=True)
class _Header:
    field: str
    symmetry: str
    shape: tuple[int, int]
    entries: int
    lines: int
    """Lines of the header, comments included."""

    @property
    def is_pattern(self) -> bool:
        return self.field == "pattern"


def read_mtx(path: Path, *, merge: bool = False, remedy: str = "") -> RawMatrix:
    """Read a coordinate matrix: ``.mtx``, ``.mtx.gz`` or a ``.tar.gz`` that holds one.

    Symmetric, skew-symmetric and Hermitian storage is expanded; explicit zeros stay in the pattern. An archive may hold
    many ``.mtx`` files (right-hand sides, coordinates): the matrix is the file that is named like the archive.

    Parameters
    ----------
    path : Path
    merge : bool
        Entries of one place are added up, as SciPy reads them; else such an entry is an error.
    remedy : str
        What to do about a broken archive.

    Raises
    ------
    DatasetError
        The file is corrupt, truncated or something else, or claims more than the ceiling allows; names the file.
    MatrixError
        The matrix is complex, too large for int32, or has an entry out of range or, without ``merge``, twice.
    """
    where = str(path)
    with _plain(path, remedy) as file:
        with reading(path, "a Matrix Market file"):
            header = _header(file, where, merge)
        table = _entries(file, header, where)
    values = None if header.is_pattern else table["value"]
    for axis, length in zip(("row", "column"), header.shape, strict=True):
        for at in np.flatnonzero((table[axis] < 1) | (table[axis] > length))[:1]:
            raise MatrixError(
                f"{where}: expected {axis} numbers in [1, {length}], found {table[axis][at]} in entry {at + 1}"
            )
    rows, cols = table["row"] - 1, table["column"] - 1
    if header.symmetry == _SKEW:
        for at in np.flatnonzero((rows == cols) & (True if values is None else values != 0))[:1]:
            raise MatrixError(
                f"{where}: expected no diagonal in a {_SKEW} matrix, found row and column {rows[at] + 1} in entry "
                f"{at + 1}"
            )
    if header.symmetry != "general":  # the file has one triangle
        off = rows != cols
        if values is not None:
            values = np.concatenate([values, values[off] * (-1 if header.symmetry == _SKEW else 1)])
        rows, cols = np.concatenate([rows, cols[off]]), np.concatenate([cols, rows[off]])
    kind = MatrixKind.PATTERN if values is None else MatrixKind.REAL
    return csr_from_edges(header.shape, rows, cols, values, kind, merge=merge, where=where)


def _plain(path: Path, remedy: str) -> contextlib.AbstractContextManager[Path]:
    """Give the text file itself, unpacked where it is packed."""
    ending = next((ending for ending in _ARCHIVES if path.name.lower().endswith(ending)), "")
    if ending:
        return unpacked(path, path.name[: -len(ending)] + ".mtx", remedy)
    return unpacked(path, remedy=remedy) if path.suffix.lower() == ".gz" else contextlib.nullcontext(path)


def _header(file: Path, where: str, merge: bool) -> _Header:
    """Read the banner, the comments and the line of sizes, and check that the file is long enough for the sizes."""
    # Text is decoded as NumPy's reader does, which has to count the same lines.
    with file.open(encoding=_ENCODING) as stream:
        line = stream.readline(_LONGEST_LINE)
        field, symmetry = _banner(line, where)
        number, bytes_left = 1, os.fstat(stream.fileno()).st_size - len(line)
        while number == 1 or line.lstrip().startswith("%") or line.isspace():
            line, number = stream.readline(_LONGEST_LINE), number + 1
            bytes_left -= len(line)
    sizes = _SIZES.fullmatch(line)
    if sizes is None:
        raise DatasetError(f"{where}:{number}: expected rows, columns and entries, found {_shown(line)}")
    rows, cols, entries = (int(size) for size in sizes.groups())
    header = _Header(field, symmetry, (rows, cols), entries, number)
    check_shape(where, rows, cols, entries)
    if entries > rows * cols and not merge:
        raise MatrixError(f"{where}:{number}: expected each entry once, found {entries:,} in {rows:,} x {cols:,}")
    if symmetry != "general" and rows != cols:
        raise MatrixError(f"{where}:{number}: expected a square matrix, being {symmetry}, found {rows:,} x {cols:,}")
    least = entries * _SHORTEST_ENTRY[header.is_pattern] - 1  # the last line may lack its end
    if least > bytes_left:
        raise DatasetError(
            f"{where}:{number}: expected {entries:,} entries as this line says, of {least:,} bytes at least, found "
            f"{bytes_left:,} bytes after it: truncated?"
        )
    return header


def _banner(line: str, where: str) -> tuple[str, str]:
    words = line.lower().split()
    if len(words) != 5 or words[:2] != ["%%matrixmarket", "matrix"]:
        raise DatasetError(f"{where}:1: expected a line like {_BANNER!r}, found {_shown(line)}")
    layout, field, symmetry = words[2:]
    if layout != "coordinate":
        raise DatasetError(
            f"{where}: expected a coordinate matrix, found layout {layout!r}; write a dense matrix a with "
            "scipy.io.mmwrite(path, scipy.sparse.coo_array(a))"
        )
    if field == "complex":
        raise MatrixError(f"{where}: expected real values or a pattern, found complex values")
    if field not in (*_DTYPES, "pattern") or symmetry not in _SYMMETRIES:
        raise DatasetError(
            f"{where}:1: expected a field out of {', '.join(_DTYPES)} and pattern, and a symmetry out of "
            f"{', '.join(_SYMMETRIES)}, found {field!r} and {symmetry!r}"
        )
    return field, symmetry


def _shown(line: str) -> str:
    return repr(line[:100]) if line else "the end of the file"


def _entries(file: Path, header: _Header, where: str) -> NDArray[Any]:
    """Read the lines below the header: a structured array of ``row``, ``column`` and, except in patterns, ``value``."""
    columns: list[tuple[str, Any]] = [("row", np.int64), ("column", np.int64)]
    if not header.is_pattern:
        # The other half has the other sign, which integers need not have.
        columns.append(("value", np.float64 if header.symmetry == _SKEW else _DTYPES[header.field]))
    with reading(where, "a complete Matrix Market file"), warnings.catch_warnings():
        warnings.simplefilter("error")  # NumPy warns of integers that are written as reals
        warnings.filterwarnings("ignore", "loadtxt: input contained no data", UserWarning)
        # A relative path might be taken for the name of something to download.
        table = np.atleast_1d(
            np.loadtxt(file.absolute(), columns, comments="%", skiprows=header.lines, encoding=_ENCODING)
        )
    if table.size != header.entries:
        raise DatasetError(
            f"{where}: expected a complete Matrix Market file with {header.entries:,} entries as its header says, "
            f"found {table.size:,}"
        )
    return table
