"""Our readers of archives beside the packages that publish them, ogb and dgl, on tiny archives: one pattern hash.

A source takes what these packages have downloaded on this machine, and reads it itself. ogb looks for a newer version
of itself when it is imported, and then loads what it kept by `torch.load`, which PyTorch 2.6 and later refuse. dgl
unpickles Planetoid's files, and renumbers the nodes of Reddit (reverse Cuthill-McKee) after it has read them.
"""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from archives import zipped
from file_server import FileServer
from scipy import sparse

from spmark.datasets.cache import Cache
from spmark.datasets.fetching import needed
from spmark.datasets.load import load_matrix
from spmark.datasets.source import RawMatrix
from spmark.datasets.sources.graphs import DglGraphs, Ogb
from spmark.datasets.sweep.model import MatrixSpec
from spmark.impls.core.problem import Csr

EDGES = np.array([[0, 3], [3, 1], [0, 2], [4, 4]])
PAIRS = np.concatenate([EDGES, EDGES[:, ::-1]])


def hashed(raw: RawMatrix) -> str:
    return Csr.checked(raw.shape, raw.indptr, raw.indices, np.ones(len(raw.indices)), where="x").hash


def hash_of(rows: Any, cols: Any) -> str:
    return Csr.of(sparse.coo_array((np.ones(len(rows)), (rows, cols)), (5, 5))).hash


def saved(write: Callable[[Any], object]) -> bytes:
    out = io.BytesIO()
    write(out)
    return out.getvalue()


def unzipped(content: bytes, archive: Path, folder: Path) -> None:
    archive.write_bytes(content)
    with zipfile.ZipFile(archive) as file:
        file.extractall(folder)


def offline(monkeypatch: pytest.MonkeyPatch, dgl_data: Any, content: bytes, archive: Path) -> None:
    """Unpack an archive where dgl would download it."""
    unpack = lambda self: unzipped(content, archive, Path(self.raw_path))  # noqa: E731
    monkeypatch.setattr(dgl_data.DGLBuiltinDataset, "download", unpack)


OGB = {
    "arxiv/raw/edge.csv.gz": gzip.compress("".join(f"{u},{v}\n" for u, v in EDGES).encode()),
    "arxiv/raw/num-node-list.csv.gz": gzip.compress(b"5\n"),
    "arxiv/raw/num-edge-list.csv.gz": gzip.compress(b"4\n"),
}


def test_our_reader_of_ogb(tmp_path: Path) -> None:
    (tmp_path / "arxiv.zip").write_bytes(zipped(OGB))
    assert hashed(Ogb().read(tmp_path / "arxiv.zip", "ogbn-arxiv")) == hash_of(*EDGES.T)


def test_ogb_gives_the_same(ogb: Any, tmp_path: Path) -> None:
    unzipped(zipped(OGB), tmp_path / "arxiv.zip", tmp_path)
    graph = ogb.read_csv_graph_raw(str(tmp_path / "arxiv/raw"), add_inverse_edge=False)[0]
    assert graph["num_nodes"] == 5
    assert hash_of(*graph["edge_index"]) == hashed(Ogb().read(tmp_path / "arxiv.zip", "ogbn-arxiv"))


REDDIT = {
    "reddit_graph.npz": saved(lambda out: sparse.save_npz(out, sparse.coo_matrix((np.ones(8), PAIRS.T), (5, 5)))),
    "reddit_data.npz": saved(
        lambda out: np.savez(out, feature=np.ones((5, 2)), label=np.zeros(5, int), node_types=np.ones(5, int))
    ),
}


def test_our_reader_of_reddit(tmp_path: Path) -> None:
    (tmp_path / "reddit.zip").write_bytes(zipped(REDDIT))
    assert hashed(DglGraphs().read(tmp_path / "reddit.zip", "reddit")) == hash_of(*PAIRS.T)


def test_dgl_gives_the_same_reddit_before_it_renumbers(
    dgl_data: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dgl.data.reddit.reorder_graph", lambda graph, **_: graph)
    offline(monkeypatch, dgl_data, zipped(REDDIT), tmp_path / "reddit.zip")
    graph = dgl_data.RedditDataset(raw_dir=str(tmp_path))[0]
    rows, cols = (ends.numpy() for ends in graph.edges())
    assert hash_of(rows, cols) == hashed(DglGraphs().read(tmp_path / "reddit.zip", "reddit"))


PPI = {
    "train_graph.json": json.dumps(
        {
            "directed": False, "multigraph": False, "graph": {}, "nodes": [{"id": node} for node in range(5)],
            "links": [{"source": int(u), "target": int(v)} for u, v in [*EDGES, *((n, n) for n in range(4))]],
        }
    ).encode(),
    "train_labels.npy": saved(lambda out: np.save(out, np.zeros((5, 121)))),
    "train_feats.npy": saved(lambda out: np.save(out, np.zeros((5, 50)))),
    "train_graph_id.npy": saved(lambda out: np.save(out, np.ones(5, int))),
}  # fmt: skip
LOOPS = np.arange(5)
PPI_EDGES = np.concatenate([PAIRS, np.stack([LOOPS, LOOPS], axis=1)])


def test_our_reader_of_ppi(tmp_path: Path) -> None:
    (tmp_path / "ppi.zip").write_bytes(zipped(PPI))
    assert hashed(DglGraphs().read(tmp_path / "ppi.zip", "ppi-train-20graphs")) == hash_of(*PPI_EDGES.T)


def test_dgl_gives_the_same_ppi(dgl_data: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = type("json_graph", (), {"node_link_graph": staticmethod(partial(nx.node_link_graph, edges="links"))})
    monkeypatch.setattr("dgl.data.ppi.json_graph", reader)  # of networkx before 3.6, where links had no other name
    offline(monkeypatch, dgl_data, zipped(PPI), tmp_path / "ppi.zip")
    graph = dgl_data.PPIDataset("train", raw_dir=str(tmp_path)).graph
    rows, cols = (ends.numpy() for ends in graph.edges())
    assert hash_of(rows, cols) == hashed(DglGraphs().read(tmp_path / "ppi.zip", "ppi-train-20graphs"))


def test_what_the_packages_have_downloaded_is_not_downloaded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, list_origin: Callable[..., None], server: FileServer, cache: Cache
) -> None:
    list_origin("ogb/ogbn-arxiv", (5, 5, 4), server.url + "arxiv.zip", hash_of(*EDGES.T))
    list_origin("dgl/reddit", (5, 5, 7), server.url + "reddit.zip", hash_of(*PAIRS.T))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DGL_DOWNLOAD_DIR", str(tmp_path / "dgl"))
    for file, content in OGB.items():
        place = tmp_path / "dataset" / file.replace("arxiv/", "ogbn_arxiv/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    (tmp_path / "dgl").mkdir()
    (tmp_path / "dgl" / "reddit.zip").write_bytes(zipped(REDDIT))
    specs = [MatrixSpec(source="ogb", name="ogbn-arxiv"), MatrixSpec(source="dgl", name="reddit")]
    assert list(needed(specs, cache).values()) == ["dataset/ogbn_arxiv", str(tmp_path / "dgl" / "reddit.zip")]
    assert [load_matrix(spec, cache, 0).csr.hash for spec in specs] == [hash_of(*EDGES.T), hash_of(*PAIRS.T)]
    assert server.requests == 0
