"""web-NotreDame from the Stanford Network Analysis Project."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from spmark.datasets.archive import unpacked_gzip
from spmark.datasets.cache import Cache
from spmark.datasets.edgelist import read_integers
from spmark.datasets.source import Args, Facts, RawMatrix, csr_from_edges, known, only
from spmark.impls.core.errors import DatasetError
from spmark.impls.core.record import MatrixKind

BASE_URL = "https://snap.stanford.edu/data/"
_FACTS = {"web-NotreDame": Facts(325_729, 325_729, 1_497_134)}


class Snap:
    """Pages of nd.edu and their links, directed: a line ``from to`` is the entry A[from, to].

    The longest row of A has 3,445 entries, the longest of its transpose 10,721.
    """

    name: ClassVar[str] = "snap"
    title: ClassVar[str] = "Stanford Network Analysis Project"
    licence: ClassVar[str] = "none stated"
    citation: ClassVar[str] = (
        "Leskovec and Krevl, SNAP Datasets, 2014; Albert, Jeong and Barabasi, Diameter of the World-Wide Web, "
        "Nature 1999"
    )
    url: ClassVar[str] = "https://snap.stanford.edu/data/web-NotreDame.html"
    network: ClassVar[bool] = True
    cached: ClassVar[bool] = True

    def names(self, cache: Cache) -> Sequence[str]:
        """List the graphs."""
        return tuple(_FACTS)

    def facts(self, name: str) -> Facts | None:
        """Give the published counts."""
        return _FACTS.get(name)

    def load(self, name: str, args: Args, cache: Cache) -> RawMatrix:
        """Fetch and read a graph. Takes no arguments."""
        only(f"snap/{name}", args)
        file = f"{known('snap', name, _FACTS)}.txt.gz"
        return read_edges(cache.fetch(BASE_URL + file, f"snap/{file}"))


def read_edges(path: Path) -> RawMatrix:
    """Read lines of two node numbers; there are as many nodes as the largest number says.

    Raises
    ------
    DatasetError
        The file is broken, empty, or holds something else.
    """
    with unpacked_gzip(path) as file:
        rows, cols = read_integers(file, str(path))
    if rows.size == 0:
        raise DatasetError(f"{path}: expected lines of two node numbers, found none")
    size = int(max(rows.max(), cols.max())) + 1
    return csr_from_edges((size, size), rows, cols, None, MatrixKind.PATTERN, merge=True, where=str(path))
