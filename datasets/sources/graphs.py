"""Published graphs, one download each: Planetoid, OGB, DGL and SNAP in their raw files, and SuiteSparse's collection.

Reading them needs neither ``ogb`` nor ``dgl``.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

import numpy as np

from spmark.datasets.cache import Cache
from spmark.datasets.collection import counts_here
from spmark.datasets.readers.archive import FETCH_AGAIN, unpacked
from spmark.datasets.readers.matrix_market import read_mtx
from spmark.datasets.readers.npz import read_scipy
from spmark.datasets.source import Facts, RawMatrix
from spmark.datasets.sources.downloaded import (
    DownloadedSource,
    EdgeSource,
    from_edges,
    ogb_file,
    read_integers,
    square,
)
from spmark.datasets.sources.knowledge import RDF_GRAPHS, read_biokg, read_rdf
from spmark.impls.core.errors import DatasetError
from spmark.impls.core.files import at_home
from spmark.impls.core.untrusted import reading
from spmark.records.schema import MatrixKind


class Planetoid(EdgeSource):
    """Citation graphs, undirected: the union of the lists and their transpose, every entry once, self-loops kept."""

    name = "planetoid"
    title = "Planetoid"
    licence = "MIT (repository)"
    citation = "Yang, Cohen and Salakhutdinov, Revisiting semi-supervised learning with graph embeddings, ICML 2016"
    url = "https://github.com/kimiyoung/planetoid"

    def read(self, path: Path, name: str) -> RawMatrix:
        """Read an ``ind.*.graph`` file: a pickle of a ``defaultdict`` from nodes to lists of their neighbours."""
        with reading(path, "a pickled dictionary of lists of integers", remedy=FETCH_AGAIN):
            lists: Mapping[int, list[int]] = _GraphReader(io.BytesIO(path.read_bytes()), encoding="latin1").load()
            if type(lists) is not _Lists:
                raise DatasetError(f"{path}: expected a defaultdict, found {type(lists).__name__}")
            to = np.array([node for neighbours in lists.values() for node in neighbours], np.int64)
            start = np.repeat(np.fromiter(lists, np.int64, len(lists)), [len(one) for one in lists.values()])
        return square(len(lists), np.concatenate([start, to]), np.concatenate([to, start]), path)


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


_KNOWLEDGE = "ogbl-biokg"


class Ogb(EdgeSource):
    """Graphs as their files list edges: an edge (u, v) of ``edge.csv.gz`` is the entry A[u, v].

    Row i of ogbn-arxiv lists the papers that paper i cites. The longest row of A has 436 entries, the longest of its
    transpose 13,155 (the most cited paper). Aggregation over incoming edges multiplies by the transpose, ``@AT``.
    The files of ogbn-proteins and ogbn-products have each undirected edge once, and so has A. ogbl-biokg is a knowledge
    graph of 51 relations (`read_biokg`).
    """

    name = "ogb"
    title = "Open Graph Benchmark"
    licence = "ODC-BY (arxiv), CC-0 (proteins, biokg), Amazon licence (products)"
    citation = "Hu et al., Open Graph Benchmark: datasets for machine learning on graphs, NeurIPS 2020"
    url = "https://ogb.stanford.edu/docs/nodeprop/"

    def package_copy(self, name: str) -> Path | None:
        """Give the folder that the package ``ogb`` unpacks to by default."""
        folder = Path("dataset") / name.replace("-", "_")
        first = "triplet-type-list.csv.gz" if name == _KNOWLEDGE else "edge.csv.gz"
        return folder if (folder / "raw" / first).is_file() else None

    def relations(self, name: str, rows: int, cols: int) -> int:
        """Give the relations of the knowledge graph."""
        return cols // rows if name == _KNOWLEDGE else 0

    def read(self, path: Path, name: str) -> RawMatrix:
        """Read ``*/raw/edge.csv.gz`` and the number of nodes beside it, out of an archive or an unpacked folder."""
        if name == _KNOWLEDGE:
            return read_biokg(path)
        with ogb_file(path, "num-node-list.csv.gz") as table:
            counts = read_integers(table, f"{path}: num-node-list.csv.gz", columns=1)
        if counts.size != 1:
            raise DatasetError(f"{path}: num-node-list.csv.gz: expected one number of nodes, found {counts.size}")
        with ogb_file(path, "edge.csv.gz") as table:
            rows, cols = read_integers(table, f"{path}: edge.csv.gz", delimiter=",")
        return square(int(counts[0, 0]), rows, cols, path)


class DglGraphs(EdgeSource):
    """Data sets as the Deep Graph Library hosts them.

    - ``ppi-train-20graphs``: protein interactions in 20 human tissues, the training graphs side by side: block diagonal
      and undirected. Every node has a self-loop: missing self-loops are added, which gives the 1,271,274 entries of the
      papers.
    - ``reddit``: posts that one person commented on; undirected, both directions in the file. Nodes are numbered as in
      the file; the package ``dgl`` renumbers them after reading (reverse Cuthill-McKee).
    - ``aifb``, ``mutag``, ``bgs``, ``am``: knowledge graphs in RDF, with inverse relations and without those that tell
      labels (`read_rdf`). Reading takes the extra ``rdf``.
    """

    name = "dgl"
    title = "DGL data sets"
    licence = "none stated"
    citation = (
        "Hamilton, Ying and Leskovec, Inductive representation learning on large graphs, NeurIPS 2017; "
        "Zitnik and Leskovec, Predicting multicellular function through multi-layer tissue networks, "
        "Bioinformatics 2017; Ristoski, de Vries and Paulheim, A collection of benchmark datasets for systematic "
        "evaluations of machine learning on the Semantic Web, ISWC 2016"
    )
    url = "https://data.dgl.ai/dataset/"

    def package_copy(self, name: str) -> Path | None:
        """Give the archive that the package ``dgl`` keeps."""
        folder = os.environ.get("DGL_DOWNLOAD_DIR") or "~/.dgl"
        archive = at_home(folder) / PurePosixPath(self.address(name)).name
        return archive if archive.is_file() else None

    def relations(self, name: str, rows: int, cols: int) -> int:
        """Give the relations of a knowledge graph, inverses among them."""
        return cols // rows if name in RDF_GRAPHS else 0

    def read(self, path: Path, name: str) -> RawMatrix:
        """Read the graph's file out of the archive."""
        if name in RDF_GRAPHS:
            return read_rdf(path, name)
        if name == "reddit":
            with unpacked(path, "reddit_graph.npz", FETCH_AGAIN) as file:
                return replace(read_scipy(file), values=None, kind=MatrixKind.PATTERN)
        return _ppi(path)


def _ppi(path: Path) -> RawMatrix:
    """Read ``train_graph.json``, a networkx node-link graph."""
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
    return square(len(nodes), rows, cols, path)


class Snap(EdgeSource):
    """Directed graphs: a line ``from to`` is the entry A[from, to].

    ``web-NotreDame`` has pages of nd.edu and their links: the longest row of A has 3,445 entries, the longest of its
    transpose 10,721. ``soc-Slashdot0902`` has friends and foes among users.
    """

    name = "snap"
    title = "Stanford Network Analysis Project"
    licence = "none stated"
    citation = (
        "Leskovec and Krevl, SNAP Datasets, 2014; Albert, Jeong and Barabasi, Diameter of the World-Wide Web, "
        "Nature 1999; Leskovec, Lang, Dasgupta and Mahoney, Community structure in large networks, 2009"
    )
    url = "https://snap.stanford.edu/data/"

    def read(self, path: Path, name: str) -> RawMatrix:
        """Read lines of two node numbers; there are as many nodes as the largest number says."""
        with unpacked(path, remedy=FETCH_AGAIN) as file:
            return from_edges(read_integers(file, str(path)), path)


class SuiteSparse(DownloadedSource):
    """The collection's Matrix Market archives by ``Group/Name``: symmetric storage expanded, stored zeros kept.

    Any matrix of the collection can be named; the counts and hashes of those in packaged sweeps are listed.
    """

    name = "suitesparse"
    title = "SuiteSparse Matrix Collection"
    licence = "CC-BY 4.0"
    citation = "Davis and Hu, The University of Florida sparse matrix collection, ACM TOMS 38(1), 2011"
    url = "https://sparse.tamu.edu"
    base_url = "https://suitesparse-collection-website.herokuapp.com/MM/"

    def likely(self, name: str) -> Facts | None:
        """Give the listed counts, else those of the collection's index where it is here; it leaves stored zeros out."""
        return self.facts(name) or counts_here(Cache.default()).get(name)

    def address(self, name: str) -> str:
        """Give the archive of any matrix that the collection may have."""
        if not re.fullmatch(r"[\w.+-]*\w[\w.+-]*/[\w.+-]*\w[\w.+-]*", name, re.ASCII):
            raise DatasetError(f"suitesparse/{name}: expected Group/Name, such as SNAP/ca-GrQc, found {name!r}")
        return f"{self.base_url}{name}.tar.gz"

    def place(self, name: str) -> str:
        """Give where the cache keeps the archive."""
        return f"suitesparse/{name}.tar.gz"

    def read(self, path: Path, name: str) -> RawMatrix:
        """Read the archive's matrix."""
        return read_mtx(path, remedy=FETCH_AGAIN)
