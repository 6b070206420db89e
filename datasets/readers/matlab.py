"""Sparse matrices in MATLAB's files of version 5. SciPy's own reader ends the process on some damaged files.

A file is a header of 128 bytes, then elements: a type, a size and content in steps of eight bytes. A variable is an
element of elements, and may be packed by zlib.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.datasets.source import RawMatrix, check_bytes, check_shape
from spmark.impls.core.errors import DatasetError
from spmark.impls.core.problem import canonical_rows
from spmark.impls.core.untrusted import reading
from spmark.records.schema import MatrixKind

_HEADER = 128
_MATRIX, _PACKED, _SPARSE = 14, 15, 5
_DTYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_COMPLEX = 0x800
_DENSEST = 1100
"""Most bytes that a byte of zlib can stand for, rounded up."""


def read_matlab(path: Path, variable: str, remedy: str = "") -> RawMatrix:
    """Read one sparse matrix of a file.

    Raises
    ------
    DatasetError
        The file is corrupt, truncated or of another version, or has no real sparse matrix of this name.
    MatrixError
        The arrays are no legal matrix.
    """
    from scipy import sparse

    with reading(path, f"a MATLAB file of version 5 with a sparse matrix {variable}", remedy=remedy):
        content = path.read_bytes()
        order = {b"IM": "<", b"MI": ">"}[content[_HEADER - 2 : _HEADER]]
        for kind, variable_bytes in _elements(content[_HEADER:], order):
            body = _unpacked(variable_bytes, order, path) if kind == _PACKED else variable_bytes
            parts = _elements(body, order)
            flags, size, name = _array(next(parts), order), _array(next(parts), order), next(parts)[1]
            if name.decode("ascii") != variable:
                continue
            if int(flags[0]) & 0xFF != _SPARSE or int(flags[0]) & _COMPLEX or size.size != 2:
                raise DatasetError(f"{path}: expected {variable} to be a real sparse matrix, found another array")
            shape = int(size[0]), int(size[1])
            check_shape(str(path), *shape)
            indices, indptr, values = (_array(next(parts), order) for _ in range(3))
            count = int(indptr[-1])  # what is beyond was allocated for later
            found = sparse.csc_array((values[:count].astype(np.float64), indices[:count], indptr), shape=shape)
            rows = canonical_rows(found, str(path))
            return RawMatrix(shape, rows.indptr, rows.indices, rows.data, MatrixKind.REAL)
        raise DatasetError(f"{path}: expected a matrix {variable}, found none of this name")


def _elements(content: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    """Give the type and the content of each element."""
    at = 0
    while at < len(content):
        kind, size = struct.unpack_from(f"{order}II", content, at)
        start, step = at + 8, size if kind == _PACKED else -(-size // 8) * 8
        if kind >> 16:  # both in four bytes, and the content in the next four
            kind, size, start, step = kind & 0xFFFF, kind >> 16, at + 4, 0
        if start + size > len(content):
            raise ValueError(f"an element of {size:,} bytes where {len(content) - start:,} are left")
        yield kind, content[start : start + size]
        at += 8 + step


def _unpacked(packed: bytes, order: str, path: Path) -> bytes:
    """Unpack a variable, which is one element."""
    unpacker = zlib.decompressobj()
    kind, size = struct.unpack(f"{order}II", unpacker.decompress(packed, 8))
    check_bytes(str(path), "a variable", size)
    if kind != _MATRIX or size > _DENSEST * len(packed):
        raise ValueError(f"a variable of type {kind} and {size:,} bytes in {len(packed):,}")
    return unpacker.decompress(unpacker.unconsumed_tail, size)


def _array(element: tuple[int, bytes], order: str) -> NDArray[Any]:
    kind, content = element
    return np.frombuffer(content, np.dtype(order + _DTYPES[kind])).astype(_DTYPES[kind])
