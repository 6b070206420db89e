"""Published graphs, one download each: Planetoid, OGB, DGL and SNAP in their raw files, and SuiteSparse's collection.

Reading them needs neither ``ogb`` nor ``dgl``.
"""

from __future__ import annotations

import io
import json
import pickle
import re
import warnings
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from spmark.datasets.cache import Cache
from spmark.datasets.readers.archive import FETCH_AGAIN, unpacked
from spmark.datasets.readers.matrix_market import read_mtx
from spmark.datasets.source import Args, Facts, RawMatrix, Source, csr_from_edges, known, only
from spmark.impls.core.errors import DatasetError
from spmark.impls.core.guard import reading
from spmark.impls.core.record import MatrixKind

Graphs = Mapping[str, tuple[str, Facts]]
"""By name: the file below a publisher's address, and the published counts."""


class GraphSource(Source):
    """Graphs of one publisher, with known counts and without arguments."""

    network = True
    cached = True
    base_url: ClassVar[str]
    graphs: ClassVar[Graphs] = {}

    def names(self, cache: Cache) -> tuple[str, ...]:
        """List the graphs."""
        return tuple(self.graphs)

    def facts(self, name: str) -> Facts | None:
        """Give the published counts."""
        return self.graphs[name][1] if name in self.graphs else None

    def file(self, name: str) -> str:
        """Give the file of a graph, below ``base_url``."""
        return self.graphs[known(self.name, name, self.graphs)][0]

    @abstractmethod
    def read(self, path: Path) -> RawMatrix:
        """Read a downloaded file.

        Raises
        ------
        DatasetError
            The file is broken, or holds something else.
        """

    def load(self, name: str, args: Args, cache: Cache) -> RawMatrix:
        """Fetch and read a graph. Takes no arguments."""
        only(f"{self.name}/{name}", args)
        file = self.file(name)
        return self.read(cache.fetch(self.base_url + file, f"{self.name}/{file}"))


class Planetoid(GraphSource):
    """Citation graphs, undirected: the union of the lists and their transpose, every entry once, self-loops kept."""

    name = "planetoid"
    title = "Planetoid"
    licence = "MIT (repository)"
    citation = "Yang, Cohen and Salakhutdinov, Revisiting semi-supervised learning with graph embeddings, ICML 2016"
    url = "https://github.com/kimiyoung/planetoid"
    base_url = "https://raw.githubusercontent.com/kimiyoung/planetoid/master/data/"
    graphs: ClassVar[Graphs] = {
        "cora": ("ind.cora.graph", Facts(2_708, 2_708, 10_556)),
        "citeseer": ("ind.citeseer.graph", Facts(3_327, 3_327, 9_228)),
        "pubmed": ("ind.pubmed.graph", Facts(19_717, 19_717, 88_651)),
    }

    def read(self, path: Path) -> RawMatrix:
        """Read an ``ind.*.graph`` file: a pickle of a ``defaultdict`` from nodes to lists of their neighbours."""
        with reading(path, "a pickled dictionary of lists of integers", remedy=FETCH_AGAIN):
            lists: Mapping[int, list[int]] = _GraphReader(io.BytesIO(path.read_bytes()), encoding="latin1").load()
            if type(lists) is not _Lists:
                raise DatasetError(f"{path}: expected a defaultdict, found {type(lists).__name__}")
            to = np.array([node for neighbours in lists.values() for node in neighbours], np.int64)
            start = np.repeat(np.fromiter(lists, np.int64, len(lists)), [len(one) for one in lists.values()])
        return _square(len(lists), np.concatenate([start, to]), np.concatenate([to, start]), path)


class _Lists(dict[int, list[int]]):
    """Stands in for a ``defaultdict(list)``, and takes lists of integers by integers alone."""

    def __init__(self, _: object) -> None:
        super().__init__()

    def __setitem__(self, key: int, value: list[int]) -> None:
        if type(key) is not int or type(value) is not list or any(type(one) is not int for one in value):
            raise DatasetError("expected lists of integers by integers, found something else; nothing was executed")
        super().__setitem__(key, value)


class _GraphReader(pickle._Unpickler):
    """An unpickler in Python that knows the steps of such a file and two types: a file can execute nothing.

    The unpickler in C trusts what a file claims of places and sizes.
    """

    dispatch: ClassVar = {
        getattr(pickle, step)[0]: pickle._Unpickler.dispatch[getattr(pickle, step)[0]]
        for step in (
            "PROTO FRAME STOP MARK GLOBAL STACK_GLOBAL REDUCE TUPLE TUPLE1 PUT BINPUT LONG_BINPUT MEMOIZE GET BINGET "
            "LONG_BINGET INT LONG LONG1 BININT BININT1 BININT2 SHORT_BINUNICODE LIST EMPTY_LIST APPEND APPENDS "
            "SETITEM SETITEMS"
        ).split()
    }

    def find_class(self, module: str, name: str, /) -> Any:
        """Give a known type, or refuse."""
        known_types: dict[tuple[str, str], type] = {
            ("collections", "defaultdict"): _Lists, ("__builtin__", "list"): list, ("builtins", "list"): list
        }  # fmt: skip
        if (module, name) not in known_types:
            raise DatasetError(f"expected a defaultdict of lists, found {module}.{name}; nothing was executed")
        return known_types[module, name]


class Ogb(GraphSource):
    """The citation graph of arXiv, directed: row i of A lists the papers that paper i cites.

    An edge (u, v) of ``edge.csv.gz`` is the entry A[u, v]. The longest row of A has 436 entries, the longest of its
    transpose 13,155 (the most cited paper). Aggregation over incoming edges multiplies by the transpose, ``@AT``.
    """

    name = "ogb"
    title = "Open Graph Benchmark"
    licence = "ODC-BY"
    citation = "Hu et al., Open Graph Benchmark: datasets for machine learning on graphs, NeurIPS 2020"
    url = "https://ogb.stanford.edu/docs/nodeprop/"
    base_url = "http://snap.stanford.edu/ogb/data/nodeproppred/"
    graphs: ClassVar[Graphs] = {"ogbn-arxiv": ("arxiv.zip", Facts(169_343, 169_343, 1_166_243))}

    def read(self, path: Path) -> RawMatrix:
        """Read ``*/raw/edge.csv.gz`` and the number of nodes beside it."""
        counts = _table(path, "num-node-list.csv.gz", 1)
        if counts.size != 1:
            raise DatasetError(f"{path}: num-node-list.csv.gz: expected one number of nodes, found {counts.size}")
        rows, cols = _table(path, "edge.csv.gz", 2)
        return _square(int(counts[0, 0]), rows, cols, path)


class DglGraphs(GraphSource):
    """Protein interactions in 20 human tissues, the training graphs side by side: block diagonal and undirected.

    Every node has a self-loop: missing self-loops are added, which gives the 1,271,274 entries of the papers.
    """

    name = "dgl"
    title = "DGL data sets"
    licence = "none stated"
    citation = (
        "Hamilton, Ying and Leskovec, Inductive representation learning on large graphs, NeurIPS 2017; "
        "Zitnik and Leskovec, Predicting multicellular function through multi-layer tissue networks, "
        "Bioinformatics 2017"
    )
    url = "https://data.dgl.ai/dataset/ppi.zip"
    base_url = "https://data.dgl.ai/dataset/"
    graphs: ClassVar[Graphs] = {"ppi-train-20graphs": ("ppi.zip", Facts(44_906, 44_906, 1_271_274))}

    def read(self, path: Path) -> RawMatrix:
        """Read ``train_graph.json``, a networkx node-link graph, from the archive."""
        with unpacked(path, "train_graph.json", FETCH_AGAIN) as file:
            content = file.read_bytes()
        with reading(f"{path}: train_graph.json", "a node-link graph"):
            graph = json.loads(content)
            nodes = sorted(int(node["id"]) for node in graph["nodes"])
            links = np.array([(int(link["source"]), int(link["target"])) for link in graph["links"]], np.int64)
            links = links.reshape(-1, 2)
        if nodes != list(range(len(nodes))):
            raise DatasetError(f"{path}: train_graph.json: expected nodes 0 to {len(nodes) - 1}, found other ids")
        loops = np.arange(len(nodes), dtype=np.int64)
        rows = np.concatenate([links[:, 0], links[:, 1], loops])
        cols = np.concatenate([links[:, 1], links[:, 0], loops])
        return _square(len(nodes), rows, cols, path)


class Snap(GraphSource):
    """Pages of nd.edu and their links, directed: a line ``from to`` is the entry A[from, to].

    The longest row of A has 3,445 entries, the longest of its transpose 10,721.
    """

    name = "snap"
    title = "Stanford Network Analysis Project"
    licence = "none stated"
    citation = (
        "Leskovec and Krevl, SNAP Datasets, 2014; Albert, Jeong and Barabasi, Diameter of the World-Wide Web, "
        "Nature 1999"
    )
    url = "https://snap.stanford.edu/data/web-NotreDame.html"
    base_url = "https://snap.stanford.edu/data/"
    graphs: ClassVar[Graphs] = {"web-NotreDame": ("web-NotreDame.txt.gz", Facts(325_729, 325_729, 1_497_134))}

    def read(self, path: Path) -> RawMatrix:
        """Read lines of two node numbers; there are as many nodes as the largest number says."""
        with unpacked(path, remedy=FETCH_AGAIN) as file:
            rows, cols = read_integers(file, str(path))
        if rows.size == 0:
            raise DatasetError(f"{path}: expected lines of two node numbers, found none")
        return _square(int(max(rows.max(), cols.max())) + 1, rows, cols, path)


class SuiteSparse(GraphSource):
    """The collection's Matrix Market archives by ``Group/Name``: symmetric storage expanded, stored zeros kept.

    The collection's index is not read, so the counts come from a file's header, which the content has to match.
    """

    name = "suitesparse"
    title = "SuiteSparse Matrix Collection"
    licence = "CC-BY 4.0"
    citation = "Davis and Hu, The University of Florida sparse matrix collection, ACM TOMS 38(1), 2011"
    url = "https://sparse.tamu.edu"
    base_url = "https://suitesparse-collection-website.herokuapp.com/MM/"

    def file(self, name: str) -> str:
        """Give the archive of any matrix that the collection may have."""
        if not re.fullmatch(r"[\w.+-]*\w[\w.+-]*/[\w.+-]*\w[\w.+-]*", name, re.ASCII):
            raise DatasetError(f"suitesparse/{name}: expected Group/Name, such as SNAP/ca-GrQc, found {name!r}")
        return f"{name}.tar.gz"

    def read(self, path: Path) -> RawMatrix:
        """Read the archive's matrix."""
        return read_mtx(path, remedy=FETCH_AGAIN)


def _square(size: int, rows: NDArray[np.int64], cols: NDArray[np.int64], path: Path) -> RawMatrix:
    return csr_from_edges((size, size), rows, cols, None, MatrixKind.PATTERN, merge=True, where=str(path))


def _table(path: Path, file: str, columns: int) -> NDArray[np.int64]:
    with unpacked(path, f"raw/{file}", FETCH_AGAIN) as table:
        return read_integers(table, f"{path}: {file}", columns=columns, delimiter=",")


def read_integers(file: Path, where: str, *, columns: int = 2, delimiter: str | None = None) -> NDArray[np.int64]:
    """Read a table of integers; lines that start with ``#`` are comments.

    Parameters
    ----------
    file : Path
    where : str
        Name of the file in errors.
    columns : int
    delimiter : str, optional
        By default white space.

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
        table = np.loadtxt(file.absolute(), np.int64, comments="#", delimiter=delimiter, ndmin=2, encoding="latin1")
    if table.size == 0:
        return np.empty((columns, 0), np.int64)
    if table.shape[1] != columns:
        raise DatasetError(f"{where}: expected {columns} integers in every line, found {table.shape[1]}")
    return np.ascontiguousarray(table.T)
