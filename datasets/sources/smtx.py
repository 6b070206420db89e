"""Pruned weights in the text format of the Deep Learning Matrix Collection (DLMC), by path."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from spmark.datasets.cache import Cache
from spmark.datasets.source import Args, Facts, RawMatrix, file_argument
from spmark.impls.core.errors import DatasetError
from spmark.impls.core.guard import reading
from spmark.impls.core.record import MatrixKind


class Smtx:
    """Pattern files, a line each of sizes, indptr and indices; the name is the path, or a label beside ``path``."""

    name: ClassVar[str] = "smtx"
    title: ClassVar[str] = "DLMC files"
    licence: ClassVar[str] = "the file's"
    citation: ClassVar[str] = "Gale, Zaharia, Young and Elsen, Sparse GPU kernels for deep learning, SC 2020"
    url: ClassVar[str] = "https://github.com/google-research/google-research/tree/master/sgk"
    network: ClassVar[bool] = False
    cached: ClassVar[bool] = False

    def names(self, cache: Cache) -> Sequence[str]:
        """List nothing: names are paths."""
        return ()

    def facts(self, name: str) -> Facts | None:
        """Know nothing: the file's header is checked against its content."""
        return None

    def load(self, name: str, args: Args, cache: Cache) -> RawMatrix:
        """Read the file."""
        return read_smtx(file_argument("smtx", name, args))


def read_smtx(path: Path) -> RawMatrix:
    """Read a DLMC file.

    Raises
    ------
    DatasetError
        It is truncated or something else; says which line.
    """
    with reading(path, "three lines of integers"):
        lines = path.read_text(encoding="ascii").splitlines()
        header, indptr, indices = (
            np.array(line.replace(",", " ").split(), np.int64) for line in (*lines, "", "", "")[:3]
        )
    if header.size != 3:
        raise DatasetError(f"{path}:1: expected rows, columns and non-zeros, found {header.size} numbers")
    rows, cols, nnz = (int(number) for number in header)
    for number, (found, expected) in enumerate(((indptr.size, rows + 1), (indices.size, nnz)), 2):
        if found != expected:
            raise DatasetError(
                f"{path}:{number}: expected {expected:,} numbers as line 1 says, found {found:,}: truncated?"
            )
    return RawMatrix((rows, cols), indptr, indices, None, MatrixKind.PATTERN)
