"""SciPy's npz files, read array by array without pickle; a CSR is ``indptr, indices, data, shape, format``."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from spmark.datasets.ceiling import check_bytes
from spmark.datasets.source import RawMatrix
from spmark.impls.core.errors import DatasetError
from spmark.impls.core.files import in_place_of_file, is_file
from spmark.impls.core.guard import reading
from spmark.impls.core.record import MatrixKind

_NEEDED = ("indptr", "indices", "shape")
_NAMES = frozenset({*_NEEDED, "data", "format", "row", "col", "offsets"})
"""Arrays of SciPy's layouts."""
_PACKING = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: 1032}
"""How many bytes one packed byte can hold, by the methods that NumPy writes."""
_EXPECTED = "a complete npz file without pickled objects"


@dataclass(frozen=True, eq=False)
class NpzArrays:
    """The arrays of a file that may be a sparse matrix of SciPy."""

    path: Path
    arrays: Mapping[str, NDArray[Any]]
    """Those that belong to one of SciPy's layouts, by name."""
    members: Sequence[str]
    """Names of all arrays of the file."""

    @property
    def layout(self) -> str:
        """``csr``, ``csc``, ``coo``, ``bsr`` or ``dia``, or whatever else the file says."""
        if "format" not in self.arrays:
            return "csr"
        item = self.arrays["format"].item()
        return item.decode("ascii", "replace") if isinstance(item, bytes) else str(item)

    @property
    def described(self) -> str:
        """What an error says of the file."""
        stated = f"format {self.layout!r}" if "format" in self.arrays else "no format"
        return f"{stated} with arrays {', '.join(sorted(self.members))}"


def read_npz(path: Path, kind: MatrixKind = MatrixKind.REAL) -> RawMatrix:
    """Read a CSR; ``data`` may be missing (a pattern).

    Raises
    ------
    DatasetError
        The file is missing, corrupt, truncated, or holds something else; names the file.
    """
    file = read_arrays(path)
    with reading(path, _EXPECTED):
        return csr_of(file, kind)


def read_arrays(path: Path) -> NpzArrays:
    """Read the arrays of SciPy's layouts; other arrays in the file are left alone.

    Raises
    ------
    DatasetError
        The file is missing, corrupt or truncated, or an array holds objects; names the file.
    """
    if not is_file(path):
        raise DatasetError(f"{path}: expected an npz file, found {in_place_of_file(path)}")
    with reading(path, _EXPECTED), zipfile.ZipFile(path) as file:
        members = {info.filename.removesuffix(".npy"): info for info in file.infolist()}
        arrays = {name: _array(file, members[name], f"{path}: {name}") for name in members if name in _NAMES}
    return NpzArrays(path, arrays, list(members))


def csr_of(file: NpzArrays, kind: MatrixKind = MatrixKind.REAL) -> RawMatrix:
    """Give the CSR of a file.

    Raises
    ------
    DatasetError
        The file has another layout.
    """
    path, arrays = file.path, file.arrays
    if file.layout != "csr" or not arrays.keys() >= set(_NEEDED):
        raise DatasetError(
            f"{path}: expected a CSR as SciPy saves it (indptr, indices, data, shape), found {file.described}"
        )
    shape = shape_of(file)
    dimensions = {name: arrays[name].ndim for name in ("indptr", "indices")}
    if set(dimensions.values()) != {1}:
        raise DatasetError(f"{path}: expected indptr and indices of one dimension, found {dimensions}")
    return RawMatrix(shape, arrays["indptr"], arrays["indices"], arrays.get("data"), kind)


def shape_of(file: NpzArrays) -> tuple[int, int]:
    """Give the shape (I, K) that a file states.

    Raises
    ------
    DatasetError
        The shape has other than two numbers.
    """
    shape = tuple(int(n) for n in file.arrays["shape"].ravel()[:3])
    if len(shape) != 2:
        raise DatasetError(f"{file.path}: expected a shape of two numbers, found {shape}")
    return shape[0], shape[1]


def _array(file: zipfile.ZipFile, info: zipfile.ZipInfo, where: str) -> NDArray[Any]:
    """Read an array whose header agrees with its member's size; NumPy would allocate what the header claims."""
    most = _PACKING.get(info.compress_type, 0) * info.compress_size
    if info.file_size > most:
        raise DatasetError(
            f"{where}: expected a member that is stored or deflated, of at most {most:,} bytes, found a claim of "
            f"{info.file_size:,} bytes"
        )
    check_bytes(where, "an array", info.file_size)
    with file.open(info) as stream:
        version = npy.read_magic(stream)
        read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read_header(stream)
        if dtype.hasobject:
            raise DatasetError(f"{where}: expected an array without pickled objects, found one of {dtype}")
        claimed = math.prod(shape) * dtype.itemsize
        if min(shape, default=0) < 0 or claimed != info.file_size - stream.tell():
            raise DatasetError(
                f"{where}: expected {shape} of {dtype} to take {info.file_size - stream.tell():,} bytes, as its "
                f"member says, found {claimed:,}"
            )
    with file.open(info) as stream:
        return np.asarray(npy.read_array(stream, allow_pickle=False))


def write_npz(path: Path, matrix: RawMatrix) -> None:
    """Write a CSR, uncompressed, so that reading the file costs little more than the disk."""
    arrays: dict[str, Any] = {
        "indptr": matrix.indptr,
        "indices": matrix.indices,
        "shape": np.asarray(matrix.shape, np.int64),
        "format": np.asarray(b"csr"),
    }
    if matrix.values is not None:
        arrays["data"] = matrix.values
    with path.open("wb") as file:
        np.savez(file, **arrays)
