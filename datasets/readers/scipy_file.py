"""Sparse matrices as ``scipy.sparse.save_npz`` writes them, in any of its layouts, as a CSR."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.datasets.ceiling import check_bytes, check_shape
from spmark.datasets.readers.npz import NpzArrays, csr_of, read_arrays, shape_of
from spmark.datasets.source import RawMatrix
from spmark.impls.core.canonical import canonical_rows
from spmark.impls.core.errors import DatasetError, MatrixError
from spmark.impls.core.guard import reading
from spmark.impls.core.record import MatrixKind

_PLACES: Mapping[str, tuple[str, ...]] = {
    "csr": ("indices", "indptr"),
    "csc": ("indices", "indptr"),
    "coo": ("row", "col"),
    "bsr": ("indices", "indptr"),
    "dia": ("offsets",),
}
"""The arrays of each layout that say where the entries are."""
_EXPANDED = ("bsr", "dia")
"""Layouts that state no row and column of an entry, and always hold ``data``."""


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
    file = read_arrays(path)
    with reading(path, "a sparse matrix as SciPy saves it"):
        needed = {"shape", *_PLACES.get(file.layout, ()), *(["data"] if file.layout in _EXPANDED else [])}
        if file.layout not in _PLACES or not file.arrays.keys() >= needed:
            raise DatasetError(
                f"{path}: expected a matrix of SciPy in the layout {', '.join(_PLACES)}, found {file.described}; "
                "write it with scipy.sparse.save_npz(path, scipy.sparse.csr_array(matrix))"
            )
        if file.layout == "csr":
            raw = csr_of(file)
            if not _out_of_order(raw):
                return raw
        shape = shape_of(file)
        check_shape(str(path), *shape)
        rows = canonical_rows(_matrix(file, shape), str(path))
        values = rows.data if "data" in file.arrays else None
        return RawMatrix(shape, rows.indptr, rows.indices, values, MatrixKind.REAL)


def _out_of_order(raw: RawMatrix) -> bool:
    """Tell whether the columns of a row do not increase.

    False for arrays that are no legal CSR, too: loading checks every CSR, and says which entry is wrong.
    """
    indptr, indices = raw.indptr, raw.indices
    if {indptr.dtype.kind, indices.dtype.kind} - {"i", "u"}:
        return False
    falls = indices[1:] <= indices[:-1]
    falls[indptr[(indptr > 0) & (indptr < indices.size)] - 1] = False  # where a row begins
    return bool(falls.any() and indices.min() >= 0 and indices.max() < raw.shape[1])


def _matrix(file: NpzArrays, shape: tuple[int, int]) -> Any:
    """Make SciPy's matrix, whose arrays `canonical_rows` checks."""
    from scipy import sparse

    where, layout = str(file.path), file.layout
    places = [_integers(file.arrays[name], name, where) for name in _PLACES[layout]]
    data = file.arrays["data"] if "data" in file.arrays else np.ones(places[0].size, np.float32)
    if data.dtype.kind not in "fiub":
        raise MatrixError(f"{where}: expected real values, found {data.dtype}")
    # SciPy has loops for neither halves nor another order of bytes.
    data = data.astype(np.float32 if data.dtype == np.float32 else np.float64, copy=False)
    if layout in _EXPANDED:
        check_bytes(where, "the rows and columns of its elements", 2 * 8 * data.size)
    with reading(where, f"legal arrays of a {layout} matrix", MatrixError):
        if layout == "coo":
            return sparse.coo_array((data, tuple(places)), shape=shape)
        if layout == "dia":
            # SciPy keeps offsets in int32, and adds the number of rows to them there; tocoo() does so in int64.
            (offsets,) = places
            if len(data) != offsets.size:
                raise ValueError(f"{len(data)} diagonals with {offsets.size} offsets")
            inside = (offsets > -shape[0]) & (offsets < shape[1])
            return sparse.dia_array((data[inside], offsets[inside]), shape=shape).tocoo()
        return getattr(sparse, f"{layout}_array")((data, *places), shape=shape)


def _integers(array: NDArray[Any], name: str, where: str) -> NDArray[Any]:
    """Refuse what SciPy would round to integers."""
    if array.ndim != 1 or array.dtype.kind not in "iu":
        found = f"{array.dtype} of shape {array.shape}"
        raise MatrixError(f"{where}: expected integers in one dimension as {name}, found {found}")
    return array
