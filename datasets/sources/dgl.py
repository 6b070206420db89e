"""The PPI graphs of GraphSAGE from DGL's raw archive, read without DGL."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from spmark.datasets.archive import unpacked_member
from spmark.datasets.cache import Cache
from spmark.datasets.source import Args, Facts, RawMatrix, csr_from_edges, known, only
from spmark.impls.core.errors import DatasetError
from spmark.impls.core.guard import reading
from spmark.impls.core.record import MatrixKind

BASE_URL = "https://data.dgl.ai/dataset/"
_FACTS = {"ppi-train-20graphs": Facts(44_906, 44_906, 1_271_274)}


class Dgl:
    """Protein interactions in 20 human tissues, the training graphs side by side: block diagonal and undirected.

    Every node has a self-loop; those that the file lacks are added, which gives the 1,271,274 entries of the papers.
    """

    name: ClassVar[str] = "dgl"
    title: ClassVar[str] = "DGL data sets"
    licence: ClassVar[str] = "none stated"
    citation: ClassVar[str] = (
        "Hamilton, Ying and Leskovec, Inductive representation learning on large graphs, NeurIPS 2017; "
        "Zitnik and Leskovec, Predicting multicellular function through multi-layer tissue networks, "
        "Bioinformatics 2017"
    )
    url: ClassVar[str] = "https://data.dgl.ai/dataset/ppi.zip"
    network: ClassVar[bool] = True
    cached: ClassVar[bool] = True

    def names(self, cache: Cache) -> Sequence[str]:
        """List the matrices."""
        return tuple(_FACTS)

    def facts(self, name: str) -> Facts | None:
        """Give the published counts."""
        return _FACTS.get(name)

    def load(self, name: str, args: Args, cache: Cache) -> RawMatrix:
        """Fetch and read. Takes no arguments."""
        only(f"dgl/{name}", args)
        known("dgl", name, _FACTS)
        return read_archive(cache.fetch(BASE_URL + "ppi.zip", "dgl/ppi.zip"))


def read_archive(path: Path) -> RawMatrix:
    """Read ``train_graph.json``, a networkx node-link graph, from the archive.

    Raises
    ------
    DatasetError
        The archive is broken, or the member is no such graph.
    """
    with unpacked_member(path, lambda member: member.name == "train_graph.json", "train_graph.json") as file:
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
    shape = (len(nodes), len(nodes))
    return csr_from_edges(shape, rows, cols, None, MatrixKind.PATTERN, merge=True, where=str(path))
