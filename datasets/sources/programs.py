"""Constraint matrices of linear and quadratic programs, and the pattern of power networks, from public repositories."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from spmark.datasets.readers.archive import FETCH_AGAIN
from spmark.datasets.readers.matlab import read_matlab
from spmark.datasets.source import RawMatrix, check_bytes, check_shape
from spmark.datasets.sources.downloaded import DownloadedSource, EdgeSource, square
from spmark.impls.core.errors import DatasetError
from spmark.impls.core.problem import canonical_rows
from spmark.impls.core.untrusted import reading
from spmark.records.schema import MatrixKind

_CHUNK_BYTES = 1 << 24


class NetlibLp(DownloadedSource):
    """Linear programs of Netlib as SciPy's benchmarks keep them: the rows of A_ub, then those of A_eq."""

    name = "netlib_lp"
    title = "Netlib's linear programs"
    licence = "BSD-3 (repository)"
    citation = "Gay, Electronic mail distribution of linear programming test problems, COAL Newsletter 13, 1985"
    url = "https://github.com/scipy/scipy/tree/main/benchmarks/benchmarks/linprog_benchmark_files"

    def read(self, path: Path, name: str) -> RawMatrix:
        """Read two dense arrays of an npz file, some rows at a time."""
        from scipy import sparse

        with reading(path, "an npz file with A_ub and A_eq", remedy=FETCH_AGAIN):
            with zipfile.ZipFile(path) as archive:
                parts = [part for key in ("A_ub", "A_eq") if (part := _sparse(archive, f"{key}.npy", path)) is not None]
            rows = canonical_rows(sparse.vstack(parts).tocoo(), str(path))
            return RawMatrix(rows.shape, rows.indptr, rows.indices, rows.data, MatrixKind.REAL)


def _sparse(archive: zipfile.ZipFile, member: str, path: Path) -> Any:
    """Give a dense array of a zip archive as a sparse one; None where the program has no such constraints."""
    from scipy import sparse

    with archive.open(member) as file:
        header = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if header == (1, 0) else np.lib.format.read_array_header_2_0
        shape, columns_first, dtype = read(file)
        if dtype.kind == "O" and not shape:  # an object that stands for nothing; it is not read
            return None
        if len(shape) != 2 or dtype.kind not in "fiu":
            raise DatasetError(f"{path}: {member}: expected a dense matrix of numbers, found {dtype} {shape}")
        check_shape(str(path), *shape)
        lines, length = shape[::-1] if columns_first else shape
        if not lines or not length:
            return None
        check_bytes(str(path), f"a line of {member}", length * dtype.itemsize)
        parts, step = [], max(1, _CHUNK_BYTES // (length * dtype.itemsize))
        for start in range(0, lines, step):
            count = min(step, lines - start)
            block = np.frombuffer(file.read(count * length * dtype.itemsize), dtype).reshape(count, length)
            parts.append(sparse.coo_array(block))
    found = sparse.vstack(parts)
    return found.T if columns_first else found


class MarosMeszaros(DownloadedSource):
    """Quadratic programs of Maros and Meszaros: ``NAME_A`` the constraints, ``NAME_P`` the Hessian."""

    name = "maros_meszaros"
    title = "Maros and Meszaros' quadratic programs"
    licence = "Apache-2.0 (repository)"
    citation = "Maros and Meszaros, A repository of convex quadratic programming problems, OMS 11, 1999"
    url = "https://github.com/osqp/osqp_benchmarks"

    def read(self, path: Path, name: str) -> RawMatrix:
        """Read one sparse matrix of a MATLAB file."""
        return read_matlab(path, name.rpartition("_")[2], FETCH_AGAIN)


class Matpower(EdgeSource):
    """Power networks: a row for each bus, non-zeros on the diagonal and, in both directions, where a branch runs."""

    name = "matpower"
    title = "MATPOWER's power networks"
    licence = "CC-BY 4.0, or as the case's file says"
    citation = "Zimmerman, Murillo-Sanchez and Thomas, MATPOWER, IEEE Trans. Power Systems 26(1), 2011"
    url = "https://github.com/MATPOWER/matpower"

    def read(self, path: Path, name: str) -> RawMatrix:
        """Read the tables of buses and branches out of a case's file."""
        with reading(path, "a case of MATPOWER with mpc.bus and mpc.branch", remedy=FETCH_AGAIN):
            text = path.read_text(encoding="latin1")
            buses, branches = (_numbers(text, table, columns) for table, columns in (("bus", 1), ("branch", 2)))
            order = np.argsort(buses[:, 0])
            place = np.searchsorted(buses[order, 0], branches)
            if (buses[order, 0][np.minimum(place, len(order) - 1)] != branches).any():
                raise DatasetError(f"{path}: expected branches between buses of the case, found another bus")
            start, to = order[place].T
        all_buses = np.arange(len(buses))
        return square(len(buses), np.concatenate([start, to, all_buses]), np.concatenate([to, start, all_buses]), path)


def _numbers(text: str, table: str, columns: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Give the first columns of a case's table, whose rows are lines."""
    begin = text.index(f"\nmpc.{table} = [")
    lines = text[begin : text.index("\n]", begin)].splitlines()[2:]
    rows = [re.split(r"[\s;]+", line.strip())[:columns] for line in lines if line.strip() and line.lstrip()[0] != "%"]
    return np.array(rows, np.float64).reshape(-1, columns).astype(np.int64)
