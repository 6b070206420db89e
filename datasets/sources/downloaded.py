"""What all sources of downloads share: addresses out of the list of origins, the cache, and edges to patterns."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from spmark.datasets.cache import Cache
from spmark.datasets.origins import find_origin, listed
from spmark.datasets.readers.archive import FETCH_AGAIN, unpacked
from spmark.datasets.source import Args, RawMatrix, Source, csr_from_edges, known, only
from spmark.impls.core.errors import DatasetError
from spmark.impls.core.untrusted import reading
from spmark.records.schema import MatrixKind


class DownloadedSource(Source):
    """Matrices of one publisher that are downloaded, without arguments: those that the list of origins has."""

    network = True
    cached = True

    def names(self, cache: Cache) -> tuple[str, ...]:
        """List the matrices."""
        return listed(self.name)

    def address(self, name: str) -> str:
        """Give what is downloaded for a matrix.

        Raises
        ------
        DatasetError
            There is no such matrix.
        """
        origin = find_origin(self.name, known(self.name, name, listed(self.name)))
        assert origin is not None
        return origin.url

    def place(self, name: str) -> str:
        """Give where the cache keeps the download."""
        return f"{self.name}/{PurePosixPath(urlsplit(self.address(name)).path).name}"

    def download(self, name: str) -> tuple[str, str]:
        """Give the address of a matrix and its place in the cache."""
        return self.address(name), self.place(name)

    @abstractmethod
    def read(self, path: Path, name: str) -> RawMatrix:
        """Read a matrix out of a downloaded file.

        Raises
        ------
        DatasetError
            The file is broken, or holds something else.
        """

    def package_copy(self, name: str) -> Path | None:
        """Give the download that the publisher's own package has made on this machine, if it is there."""
        return None

    def load(self, name: str, args: Args, cache: Cache) -> RawMatrix:
        """Fetch and read a matrix, out of the package's copy where there is one. Takes no arguments."""
        only(f"{self.name}/{name}", args)
        return self.read(self.package_copy(name) or cache.fetch(*self.download(name)), name)


class EdgeSource(DownloadedSource):
    """A publisher of edges without values: what a mirror may hold as values does not count."""

    valued = False


def square(size: int, rows: NDArray[np.int64], cols: NDArray[np.int64], path: Path) -> RawMatrix:
    """Give the pattern of a graph of ``size`` nodes; repeated edges count once."""
    return csr_from_edges((size, size), rows, cols, None, MatrixKind.PATTERN, merge=True, where=str(path))


def from_edges(edges: NDArray[np.int64], path: Path, *, both: bool = False) -> RawMatrix:
    """Give the pattern of (2, n) edges; there are as many nodes as the largest number says.

    Raises
    ------
    DatasetError
        There is no edge.
    """
    rows, cols = edges
    if rows.size == 0:
        raise DatasetError(f"{path}: expected lines of two node numbers, found none")
    size = int(edges.max()) + 1
    if both:
        rows, cols = np.concatenate([rows, cols]), np.concatenate([cols, rows])
    return square(size, rows, cols, path)


@contextmanager
def ogb_file(path: Path, file: str) -> Iterator[Path]:
    """Unpack a file of OGB out of the folder ``raw`` of an archive or of an unpacked folder."""
    place, member = (path / "raw" / file, "") if path.is_dir() else (path, f"raw/{file}")
    with unpacked(place, member, FETCH_AGAIN) as found:
        yield found


def read_integers(
    file: Path, where: str, *, columns: int = 2, delimiter: str | None = None, header: int = 0
) -> NDArray[np.int64]:
    """Read a table of integers; lines that start with ``#`` are comments.

    Parameters
    ----------
    file : Path
    where : str
        Name of the file in errors.
    columns : int
    delimiter : str, optional
        By default white space.
    header : int
        Lines before the table.

    Returns
    -------
    (columns, lines) int64, row-major.

    Raises
    ------
    DatasetError
        A line does not hold ``columns`` integers; names the line.
    """
    with reading(where, f"{columns} integers in every line"), warnings.catch_warnings():
        warnings.simplefilter("error")  # NumPy warns of integers that are written as reals
        warnings.filterwarnings("ignore", "loadtxt: input contained no data", UserWarning)
        # A relative path might be taken for the name of something to download.
        table = np.loadtxt(file.absolute(), np.int64, "#", delimiter, skiprows=header, ndmin=2, encoding="latin1")
    if table.size == 0:
        return np.empty((columns, 0), np.int64)
    if table.shape[1] != columns:
        raise DatasetError(f"{where}: expected {columns} integers in every line, found {table.shape[1]}")
    return np.ascontiguousarray(table.T)
