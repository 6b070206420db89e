"""CSR matrices in SciPy's npz layout (``indptr, indices, data, shape, format``), read array by array without pickle."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from spmark.datasets.ceiling import check_bytes
from spmark.datasets.source import RawMatrix
from spmark.impls.core.errors import DatasetError
from spmark.impls.core.files import is_file
from spmark.impls.core.guard import reading
from spmark.impls.core.record import MatrixKind

_NEEDED, _OPTIONAL = ("indptr", "indices", "shape"), ("data", "format")
_PACKING = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: 1032}
"""How many bytes one packed byte can hold, by the methods that NumPy writes."""


def read_npz(path: Path, kind: MatrixKind = MatrixKind.REAL) -> RawMatrix:
    """Read a CSR; ``data`` may be missing (a pattern).

    Raises
    ------
    DatasetError
        The file is missing, corrupt, truncated, or holds something else; names the file.
    """
    if not is_file(path):
        raise DatasetError(f"{path}: expected an npz file, found none")
    expected = "a complete npz file without pickled objects"
    with reading(path, expected, remedy="it is corrupt or another file: delete it and fetch it again"):
        with zipfile.ZipFile(path) as file:
            members = {info.filename.removesuffix(".npy"): info for info in file.infolist()}
            arrays = {
                name: _array(file, info, f"{path}: {name}")
                for name, info in members.items()
                if name in (*_NEEDED, *_OPTIONAL)
            }
        layout = _layout(arrays["format"]) if "format" in arrays else "csr"
        if layout != "csr" or not arrays.keys() >= set(_NEEDED):
            raise DatasetError(
                f"{path}: expected a CSR as SciPy saves it (indptr, indices, data, shape), "
                f"found format {layout!r} with arrays {', '.join(sorted(members))}"
            )
        shape = tuple(int(n) for n in arrays["shape"].ravel()[:3])
        if len(shape) != 2:
            raise DatasetError(f"{path}: expected a shape of two numbers, found {shape}")
        dimensions = {name: arrays[name].ndim for name in ("indptr", "indices")}
        if set(dimensions.values()) != {1}:
            raise DatasetError(f"{path}: expected indptr and indices of one dimension, found {dimensions}")
    return RawMatrix((shape[0], shape[1]), arrays["indptr"], arrays["indices"], arrays.get("data"), kind)


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


def _layout(array: NDArray[Any]) -> str:
    item = array.item()
    return item.decode("ascii", "replace") if isinstance(item, bytes) else str(item)


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
