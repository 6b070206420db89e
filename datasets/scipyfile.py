"""Sparse matrices as ``scipy.sparse.save_npz`` writes them, in any of its layouts, as a CSR.

NumPy does all of the conversion and checks every index first: SciPy's native code trusts the indices of a matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spmark.datasets.ceiling import check_bytes, check_shape
from spmark.datasets.npzfile import csr_of, read_arrays, shape_of
from spmark.datasets.source import RawMatrix, csr_from_edges
from spmark.impls.core.errors import DatasetError, MatrixError
from spmark.impls.core.guard import reading
from spmark.impls.core.problem import check_indptr
from spmark.impls.core.record import MatrixKind

Arrays = Mapping[str, NDArray[Any]]
Shape = tuple[int, int]
_PLACES = "the rows and columns of its elements"


class _Edges(NamedTuple):
    rows: NDArray[Any]
    cols: NDArray[Any]
    values: NDArray[Any] | None


class _Layout(NamedTuple):
    needed: tuple[str, ...]
    edges: Callable[[Arrays, Shape, str], _Edges]


def read_scipy(path: Path) -> RawMatrix:
    """Read a CSR, CSC, COO, BSR or DIA matrix; ``data`` may be missing from the first three (a pattern).

    Rows are sorted and entries of one place added up, in float64 where values are integers. O(nnz) time for a canonical
    CSR, else O(nnz log nnz).

    Raises
    ------
    DatasetError
        The file is missing, corrupt, truncated, or holds something else; names the file.
    MatrixError
        An index is out of range, or arrays do not fit each other.
    """
    file, where = read_arrays(path), str(path)
    with reading(path, "a sparse matrix as SciPy saves it"):
        if file.layout == "csr":
            return _ordered(csr_of(file), where)
        layout = _LAYOUTS.get(file.layout)
        if layout is None or not file.arrays.keys() >= {*layout.needed, "shape"}:
            raise DatasetError(
                f"{path}: expected a matrix of SciPy in the layout csr, {', '.join(_LAYOUTS)}, found {file.described}; "
                "write it with scipy.sparse.save_npz(path, scipy.sparse.csr_array(matrix))"
            )
        shape = shape_of(file)
        check_shape(where, *shape)
        return _csr(shape, layout.edges(file.arrays, shape, where), where)


def _csr(shape: Shape, edges: _Edges, where: str) -> RawMatrix:
    rows, cols, values = edges
    if rows.shape != cols.shape or (values is not None and values.shape != rows.shape):
        told = f"{rows.shape} rows, {cols.shape} columns, {None if values is None else values.shape} values"
        raise MatrixError(f"{where}: expected a row, a column and a value for every entry, found {told}")
    if values is not None and values.dtype.kind not in "fiub":
        raise MatrixError(f"{where}: expected real values, found {values.dtype}")
    return csr_from_edges(shape, rows, cols, values, MatrixKind.REAL, merge=True, where=where)


def _ordered(raw: RawMatrix, where: str) -> RawMatrix:
    """Sort the rows of a CSR and add up entries of one place, unless that is done already.

    A matrix that is no CSR may come back as it is: loading checks every CSR.
    """
    indptr, indices = raw.indptr, raw.indices
    if {indptr.dtype.kind, indices.dtype.kind} - {"i", "u"}:
        return raw
    falls = indices[1:] <= indices[:-1]
    falls[indptr[(indptr > 0) & (indptr < indices.size)] - 1] = False  # where a row begins
    if not falls.any() or indices.min() < 0 or indices.max() >= raw.shape[1]:
        return raw
    return _csr(raw.shape, _Edges(_repeated(indptr, raw.shape[0], indices.size, where), indices, raw.values), where)


def _of_csc(arrays: Arrays, shape: Shape, where: str) -> _Edges:
    rows = _index(arrays, "indices", where)
    return _Edges(rows, _repeated(_index(arrays, "indptr", where), shape[1], rows.size, where), arrays.get("data"))


def _of_coo(arrays: Arrays, shape: Shape, where: str) -> _Edges:
    return _Edges(_index(arrays, "row", where), _index(arrays, "col", where), arrays.get("data"))


def _of_bsr(arrays: Arrays, shape: Shape, where: str) -> _Edges:
    """Give all elements of the blocks: SciPy keeps zeros in blocks, too."""
    data, block_cols = arrays["data"], _index(arrays, "indices", where)
    height, width = data.shape[1:] if data.ndim == 3 and 0 not in data.shape[1:] else (0, 0)
    if not height or shape[0] % height or shape[1] % width or data.shape[0] != block_cols.size:
        raise MatrixError(
            f"{where}: expected {block_cols.size:,} blocks whose sides divide {shape[0]} and {shape[1]}, found data of "
            f"shape {data.shape}"
        )
    block_rows = _repeated(_index(arrays, "indptr", where), shape[0] // height, block_cols.size, where)
    wrong = np.flatnonzero((block_cols < 0) | (block_cols >= shape[1] // width))
    if wrong.size:
        found = f"{block_cols[wrong[0]]} in block {wrong[0]}"
        raise MatrixError(f"{where}: expected columns of blocks in [0, {shape[1] // width}), found {found}")
    check_bytes(where, _PLACES, 2 * 8 * data.size)
    rows = block_rows[:, None, None] * height + np.arange(height)[:, None]
    cols = block_cols.astype(np.int64)[:, None, None] * width + np.arange(width)
    return _Edges(*(np.broadcast_to(index, data.shape).ravel() for index in (rows, cols)), data.ravel())


def _of_dia(arrays: Arrays, shape: Shape, where: str) -> _Edges:
    """Give the elements that are no zeros: SciPy takes the zeros of a diagonal for places without an entry."""
    data, offsets = arrays["data"], _index(arrays, "offsets", where)
    if data.ndim != 2 or data.shape[0] != offsets.size:
        raise MatrixError(f"{where}: expected {offsets.size:,} diagonals, found data of shape {data.shape}")
    check_bytes(where, _PLACES, 2 * 8 * data.size)
    data = data[:, : shape[1]]
    cols = np.arange(data.shape[1])
    rows = cols - offsets.astype(np.int64)[:, None]
    kept = (data != 0) & (rows >= 0) & (rows < shape[0])
    return _Edges(rows[kept], np.broadcast_to(cols, data.shape)[kept], data[kept])


_LAYOUTS: Mapping[str, _Layout] = {
    "csc": _Layout(("indptr", "indices"), _of_csc),
    "coo": _Layout(("row", "col"), _of_coo),
    "bsr": _Layout(("indptr", "indices", "data"), _of_bsr),
    "dia": _Layout(("offsets", "data"), _of_dia),
}


def _index(arrays: Arrays, name: str, where: str) -> NDArray[Any]:
    array = arrays[name]
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise MatrixError(
            f"{where}: expected integer {name} of one dimension, found {array.dtype} of shape {array.shape}"
        )
    return array


def _repeated(indptr: NDArray[Any], lines: int, entries: int, where: str) -> NDArray[np.int64]:
    """Give the line of each entry, where ``indptr`` says how entries are cut into lines."""
    if indptr.size != lines + 1:
        raise MatrixError(f"{where}: expected indptr of shape ({lines + 1},), found {indptr.shape}")
    check_indptr(indptr, entries, where)
    return np.repeat(np.arange(lines), np.diff(indptr.astype(np.int64)))
