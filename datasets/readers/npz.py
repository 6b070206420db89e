"""Sparse matrices as ``scipy.sparse.save_npz`` writes them, read without pickle, as a CSR.

The files that spmark writes for itself are mapped and not read: processes of one machine share a matrix's memory.
"""

from __future__ import annotations

import io
import mmap
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.datasets.source import RawMatrix, check_bytes, check_shape
from spmark.impls.core.errors import DatasetError, MatrixError
from spmark.impls.core.files import in_place_of_file, is_file
from spmark.impls.core.problem import canonical_rows
from spmark.impls.core.untrusted import reading
from spmark.records.schema import MatrixKind

_PLACES: Mapping[str, tuple[str, ...]] = {
    "csr": ("indices", "indptr"),
    "csc": ("indices", "indptr"),
    "coo": ("row", "col"),
    "bsr": ("indices", "indptr"),
    "dia": ("offsets",),
}
"""The arrays of each layout that say where the entries are."""
_NAMES = frozenset({"shape", "format", "data", "kind", *(name for names in _PLACES.values() for name in names)})
_EXPECTED = "a complete npz file without pickled objects"
LARGE_BYTES = 1 << 24
"""Smaller files are read: a mapping saves little of their memory, and holds a file open."""
_ALIGNED = 64
_LOCAL = struct.Struct("<26xHH")
"""What stands before a member of a zip file. Its last two numbers are the bytes of the name and the extra field that
follow (APPNOTE 6.3.10, 4.3.7)."""
_ZIP64_BYTES = 20
"""What `zipfile` adds to the extra field of a member that may exceed 4 GiB."""
_FILLED = struct.Struct("<HH")
"""Head of a part of the extra field: an id, here one that nobody has registered, and the bytes that follow."""


def read_npz(path: Path) -> RawMatrix:
    """Give a CSR, whose arrays loading checks; ``data`` may be missing (a pattern), and ``kind`` (a real matrix).

    Arrays of a large file are read-only and mapped if they are as `write_npz` writes them, and else read. Their
    checksums are compared either way. A mapping sees the file that it was made of, also after another takes its name.

    Raises
    ------
    DatasetError
        The file is missing, corrupt, truncated, or holds something else; names the file.
    """
    return _csr(path, *_layout(path, ("csr",), mapped=True))


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
    layout, arrays = _layout(path, tuple(_PLACES))
    with reading(path, "a sparse matrix as SciPy saves it"):
        raw = _csr(path, layout, arrays) if layout == "csr" else None
        if raw is not None and not _out_of_order(raw):
            return raw
        shape = _shape(path, arrays)
        rows = canonical_rows(_matrix(path, layout, arrays, shape), str(path))
        return RawMatrix(shape, rows.indptr, rows.indices, rows.data if "data" in arrays else None, MatrixKind.REAL)


def _layout(path: Path, layouts: tuple[str, ...], mapped: bool = False) -> tuple[str, Mapping[str, NDArray[Any]]]:
    """Read the arrays of SciPy's layouts, which have to be those of one of ``layouts``; others are left alone."""
    if not is_file(path):
        raise DatasetError(f"{path}: expected an npz file, found {in_place_of_file(path)}")
    with reading(path, _EXPECTED), np.load(path, allow_pickle=False) as file:
        check_bytes(str(path), "its arrays", sum(info.file_size for info in file.zip.infolist()))
        names, arrays = file.files, _mapped(file.zip) if mapped and path.stat().st_size >= LARGE_BYTES else {}
        arrays |= {name: file[name] for name in file.files if name in _NAMES - arrays.keys()}
        layout = str(arrays["format"].astype(str)) if "format" in arrays else "csr"
    needed = {"shape", *_PLACES.get(layout, ()), *(["data"] if layout in {"bsr", "dia"} else [])}
    if layout not in layouts or not arrays.keys() >= needed:
        stated = f"format {layout!r}" if "format" in arrays else "no format"
        raise DatasetError(
            f"{path}: expected a matrix of SciPy in the layout {', '.join(layouts)}, found {stated} with arrays "
            f"{', '.join(sorted(names))}; write it with scipy.sparse.save_npz(path, scipy.sparse.csr_array(matrix))"
        )
    return layout, arrays


def _mapped(file: zipfile.ZipFile) -> dict[str, NDArray[Any]]:
    """Map the arrays of numbers that stand in a file uncompressed and aligned; their checksums bring them to memory."""
    assert file.fp is not None
    memory, arrays = memoryview(mmap.mmap(file.fp.fileno(), 0, access=mmap.ACCESS_READ)), {}
    for member in file.infolist():
        start = member.header_offset + _LOCAL.size + sum(_LOCAL.unpack_from(memory, member.header_offset))
        content = memory[start : start + member.file_size]
        name, header = member.filename.removesuffix(".npy"), io.BytesIO(content[: 1 << 16])
        if member.compress_type != zipfile.ZIP_STORED or np.lib.format.read_magic(header) != (1, 0):
            continue
        shape, by_columns, dtype = np.lib.format.read_array_header_1_0(header)
        begin = header.tell()
        if dtype.kind not in "iuf" or by_columns or (start + begin) % _ALIGNED or begin == len(content):
            continue
        if zlib.crc32(content) != member.CRC:
            raise zipfile.BadZipFile(f"Bad CRC-32 for file {member.filename!r}")
        arrays[name] = np.frombuffer(content[begin:], dtype).reshape(shape)
    return arrays


def _shape(path: Path, arrays: Mapping[str, NDArray[Any]]) -> tuple[int, int]:
    shape = tuple(int(size) for size in arrays["shape"].ravel()[:3])
    if len(shape) != 2:
        raise DatasetError(f"{path}: expected a shape of two numbers, found {shape}")
    check_shape(str(path), *shape)
    return shape


def _csr(path: Path, layout: str, arrays: Mapping[str, NDArray[Any]]) -> RawMatrix:
    """Give the arrays of a CSR as they stand in the file."""
    with reading(path, _EXPECTED):
        dimensions = {name: arrays[name].ndim for name in _PLACES[layout]}
        if set(dimensions.values()) != {1}:
            raise DatasetError(f"{path}: expected indptr and indices of one dimension, found {dimensions}")
        kind = MatrixKind(str(arrays.get("kind", MatrixKind.REAL)))
        return RawMatrix(_shape(path, arrays), arrays["indptr"], arrays["indices"], arrays.get("data"), kind)


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


def _matrix(path: Path, layout: str, arrays: Mapping[str, NDArray[Any]], shape: tuple[int, int]) -> Any:
    """Make SciPy's matrix, whose arrays `canonical_rows` checks."""
    from scipy import sparse

    places = [arrays[name] for name in _PLACES[layout]]
    for name, place in zip(_PLACES[layout], places, strict=True):  # SciPy would round
        if place.ndim != 1 or place.dtype.kind not in "iu":
            found = f"{place.dtype} of shape {place.shape}"
            raise MatrixError(f"{path}: expected integers in one dimension as {name}, found {found}")
    data = arrays["data"] if "data" in arrays else np.ones(places[0].size, np.float32)
    if data.dtype.kind not in "fiub":
        raise MatrixError(f"{path}: expected real values, found {data.dtype}")
    # SciPy has loops for neither halves nor another order of bytes.
    data = data.astype(np.float32 if data.dtype == np.float32 else np.float64, copy=False)
    if layout in {"bsr", "dia"}:
        check_bytes(str(path), "the rows and columns of its elements", 2 * 8 * data.size)
    with reading(path, f"legal arrays of a {layout} matrix", MatrixError):
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


def write_npz(path: Path, matrix: RawMatrix) -> None:
    """Write a CSR as `numpy.savez` does, and each array at a multiple of 64 bytes, so that the file can be mapped."""
    arrays: dict[str, Any] = {name: getattr(matrix, name) for name in ("indptr", "indices", "shape")}
    arrays |= {"format": b"csr", "kind": str(matrix.kind)} | ({} if matrix.values is None else {"data": matrix.values})
    with path.open("wb") as out, zipfile.ZipFile(out, "w") as file:
        for name, array in arrays.items():
            member = zipfile.ZipInfo(f"{name}.npy")
            # NumPy's header takes a multiple of 64 bytes, and so has to begin at one.
            fill = -(out.tell() + _LOCAL.size + len(member.filename) + _FILLED.size + _ZIP64_BYTES) % _ALIGNED
            member.extra = _FILLED.pack(0x5053, fill) + bytes(fill)
            with file.open(member, "w", force_zip64=True) as content:
                np.lib.format.write_array(content, np.asanyarray(array), allow_pickle=False)
