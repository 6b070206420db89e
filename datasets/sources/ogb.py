"""ogbn-arxiv from the Open Graph Benchmark's raw archive, read without the ``ogb`` package."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from spmark.datasets.archive import unpacked_gzip, unpacked_member
from spmark.datasets.cache import Cache
from spmark.datasets.edgelist import read_integers
from spmark.datasets.source import Args, Facts, RawMatrix, csr_from_edges, known, only
from spmark.impls.core.errors import DatasetError
from spmark.impls.core.record import MatrixKind

BASE_URL = "http://snap.stanford.edu/ogb/data/nodeproppred/"
_FACTS = {"ogbn-arxiv": Facts(169_343, 169_343, 1_166_243)}


class Ogb:
    """The citation graph of arXiv, directed: row i of A lists the papers that paper i cites.

    An edge (u, v) of ``edge.csv.gz`` is the entry A[u, v]. The longest row of A has 436 entries, the longest of its
    transpose 13,155 (the most cited paper). Aggregation over incoming edges multiplies by the transpose, ``@AT``.
    """

    name: ClassVar[str] = "ogb"
    title: ClassVar[str] = "Open Graph Benchmark"
    licence: ClassVar[str] = "ODC-BY"
    citation: ClassVar[str] = "Hu et al., Open Graph Benchmark: datasets for machine learning on graphs, NeurIPS 2020"
    url: ClassVar[str] = "https://ogb.stanford.edu/docs/nodeprop/"
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
        only(f"ogb/{name}", args)
        file = known("ogb", name, _FACTS).removeprefix("ogbn-") + ".zip"
        return read_archive(cache.fetch(BASE_URL + file, f"ogb/{file}"))


def read_archive(path: Path) -> RawMatrix:
    """Read ``*/raw/edge.csv.gz`` and the number of nodes beside it.

    Raises
    ------
    DatasetError
        The archive is broken or holds something else.
    """
    counts = _table(path, "num-node-list.csv.gz", 1)
    if counts.size != 1:
        raise DatasetError(f"{path}: num-node-list.csv.gz: expected one number of nodes, found {counts.size}")
    rows, cols = _table(path, "edge.csv.gz", 2)
    shape = (int(counts[0, 0]), int(counts[0, 0]))
    return csr_from_edges(shape, rows, cols, None, MatrixKind.PATTERN, merge=True, where=str(path))


def _table(path: Path, file: str, columns: int) -> NDArray[np.int64]:
    where = f"{path}: {file}"
    with (
        unpacked_member(path, lambda m: m.name == file and m.parent.name == "raw", f"raw/{file}") as packed,
        unpacked_gzip(packed, where) as table,
    ):
        return read_integers(table, where, columns=columns, delimiter=",")
