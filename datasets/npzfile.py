"""CSR matrices in SciPy's npz layout (``indptr, indices, data, shape, format``), read array by array without pickle."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from spmark.datasets.source import RawMatrix
from spmark.impls.core.errors import DatasetError
from spmark.impls.core.record import MatrixKind


def read_npz(path: Path, kind: MatrixKind = MatrixKind.REAL) -> RawMatrix:
    """Read a CSR; ``data`` may be missing (a pattern).

    Raises
    ------
    DatasetError
        The file is missing, corrupt, truncated, or holds something else; names it.
    """
    try:
        with np.load(path, allow_pickle=False) as arrays:
            names = set(arrays.files)
            layout = _layout(arrays["format"]) if "format" in names else "csr"
            if layout != "csr" or not {"indptr", "indices", "shape"} <= names:
                raise DatasetError(
                    f"{path}: expected a CSR as SciPy saves it (indptr, indices, data, shape), "
                    f"found format {layout!r} with arrays {', '.join(sorted(names))}"
                )
            shape = tuple(int(n) for n in arrays["shape"].ravel())
            if len(shape) != 2:
                raise DatasetError(f"{path}: expected a shape of two numbers, found {shape}")
            values = arrays["data"] if "data" in names else None
            return RawMatrix((shape[0], shape[1]), arrays["indptr"], arrays["indices"], values, kind)
    except FileNotFoundError as error:
        raise DatasetError(f"{path}: expected an npz file, found none") from error
    except (OSError, ValueError, EOFError, KeyError, AttributeError, zipfile.BadZipFile, zlib.error) as error:
        raise DatasetError(
            f"{path}: expected a complete npz file without pickled objects, found a corrupt or other file ({error}); "
            "delete it and fetch it again"
        ) from error


def _layout(array: Any) -> str:
    item = array.item()
    return item.decode("ascii", "replace") if isinstance(item, bytes) else str(item)


def write_npz(path: Path, matrix: RawMatrix) -> None:
    """Write a pattern, uncompressed, so that reading it costs little more than the disk."""
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
