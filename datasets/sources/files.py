"""Matrices in files of one format, by path."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path

import numpy as np

from spmark.datasets.cache import Cache
from spmark.datasets.readers.matrix_market import read_mtx
from spmark.datasets.readers.npz import read_scipy
from spmark.datasets.source import Args, RawMatrix, Source, only
from spmark.impls.core.errors import DatasetError
from spmark.impls.core.files import at_home, in_place_of_file, is_file
from spmark.impls.core.untrusted import reading
from spmark.records.schema import MatrixKind


class FileSource(Source):
    """Files of one format; a matrix's name is its path, or a label beside the argument ``path``."""

    licence = "the file's"

    @abstractmethod
    def read(self, path: Path) -> RawMatrix:
        """Read a file.

        Raises
        ------
        DatasetError
            The file is truncated or something else; says where.
        """

    def load(self, name: str, args: Args, cache: Cache) -> RawMatrix:
        """Read the file that ``args.path``, else the name, leads to."""
        where = f"{self.name}/{name}"
        only(where, args, "path")
        path = at_home(str(args.get("path", name)))
        if not is_file(path):
            raise DatasetError(f"{where}: expected a file at {path.absolute()}, found {in_place_of_file(path)}")
        return self.read(path)


class MatrixMarket(FileSource):
    """``.mtx`` and ``.mtx.gz`` files, and ``.tar.gz``, ``.tgz`` and ``.zip`` archives."""

    name = "matrix_market"
    title = "Matrix Market files"
    url = "https://math.nist.gov/MatrixMarket/formats.html"

    def read(self, path: Path) -> RawMatrix:
        """Read a file."""
        return read_mtx(path, merge=True)


class Npz(FileSource):
    """Files that ``scipy.sparse.save_npz`` wrote."""

    name = "npz"
    title = "SciPy files"

    def read(self, path: Path) -> RawMatrix:
        """Read a file."""
        return read_scipy(path)


class Smtx(FileSource):
    """Pruned weights of the Deep Learning Matrix Collection (DLMC): a line each of sizes, indptr and indices."""

    name = "smtx"
    title = "DLMC files"
    citation = "Gale, Zaharia, Young and Elsen, Sparse GPU kernels for deep learning, SC 2020"
    url = "https://github.com/google-research/google-research/tree/master/sgk"

    def read(self, path: Path) -> RawMatrix:
        """Read a file; its first line has to agree with the other two."""
        with reading(path, "three lines of integers"):
            lines = path.read_text(encoding="ascii").splitlines()
            header, indptr, indices = (
                np.array(line.replace(",", " ").split(), np.int64) for line in (*lines, "", "", "")[:3]
            )
        if header.size != 3:
            raise DatasetError(f"{path}:1: expected rows, columns and non-zeros, found {header.size} numbers")
        rows, cols, nnz = (int(number) for number in header)
        for number, (count, expected) in enumerate(((indptr.size, rows + 1), (indices.size, nnz)), 2):
            if count != expected:
                raise DatasetError(
                    f"{path}:{number}: expected {expected:,} numbers as line 1 says, found {count:,}: truncated?"
                )
        return RawMatrix((rows, cols), indptr, indices, None, MatrixKind.PATTERN)
