"""Network sources against small archives in the publishers' true formats, and against the mirror's real matrices."""

from __future__ import annotations

import gzip
import json
import pickle
from collections import defaultdict

import numpy as np
import pytest
from archives import tarred, zipped

from spmark.datasets.cache import Cache
from spmark.datasets.load import load_matrix
from spmark.datasets.source import RawMatrix
from spmark.datasets.sources.graphs import DglGraphs, Planetoid, Snap, SuiteSparse
from spmark.datasets.statistics import statistics
from spmark.datasets.sweep.model import MatrixSpec
from spmark.impls.core.errors import DatasetError, MatrixError
from spmark.records.schema import MatrixKind, Orientation


def dense(loaded) -> np.ndarray:
    csr = loaded.csr
    out = np.zeros(csr.shape, bool)
    out[csr.rows_of_entries(), csr.indices] = True
    return out


ARXIV = {
    "arxiv/raw/edge.csv.gz": gzip.compress(b"0,3\n3,1\n0,2\n"),
    "arxiv/raw/num-node-list.csv.gz": gzip.compress(b"5\n"),
    "arxiv/raw/num-edge-list.csv.gz": gzip.compress(b"3\n"),
    "arxiv/split/time/train.csv.gz": gzip.compress(b"0\n"),
}
MTX = b"""%%MatrixMarket matrix coordinate real symmetric
% kind: structural problem
3 3 4
1 1 2.5
2 1 -1.0
3 3 0.0
3 2 4.0
"""


@pytest.fixture
def arxiv(server, list_origin):
    list_origin("ogb/ogbn-arxiv", (5, 5, 3), server.url + "arxiv.zip")
    server.files["/arxiv.zip"] = zipped(ARXIV)
    return MatrixSpec(source="ogb", name="ogbn-arxiv")


def test_ogb(server, cache, arxiv):
    loaded = load_matrix(arxiv, cache, 0)
    assert sorted(zip(*np.nonzero(dense(loaded)), strict=True)) == [(0, 2), (0, 3), (3, 1)]
    assert loaded.kind is MatrixKind.PATTERN
    server.files.clear()
    again = load_matrix(arxiv, cache, 0)
    assert server.requests == 1
    assert again.csr.hash == loaded.csr.hash
    assert np.array_equal(again.csr.values, loaded.csr.values)


def test_a_cached_entry_that_is_no_csr_is_made_again(cache, arxiv, caplog):
    """Its counts are right, so that only the checks of a CSR see it."""
    good = load_matrix(arxiv, cache, 0).csr
    bad = RawMatrix(good.shape, good.indptr, np.array([3, 2, 1], np.int32), None, MatrixKind.PATTERN)
    cache.keep("ogb", "ogbn-arxiv", arxiv.args, bad)
    assert np.array_equal(load_matrix(arxiv, cache, 0).csr.indices, good.indices)
    assert "making ogb/ogbn-arxiv again" in caplog.text
    assert np.array_equal(cache.parsed("ogb", "ogbn-arxiv", arxiv.args).indices, good.indices)


@pytest.mark.parametrize(
    ("edges", "nodes", "message"),
    [
        (b"0,3\n", b"2147483647\n", "at most 8 GiB, found a claim of 64 GiB"),
        (b"0,3\n", b"-5\n", "expected sizes of 0 and more"),
        (b"0,3\n", b"", "expected one number of nodes, found 0"),
        (b"0,3\n", b"5\n5\n", "expected one number of nodes, found 2"),
        (b"0,99999999999999999999\n", b"5\n", "expected 2 integers in every line"),
        (b"0,3,4\n", b"5\n", "expected 2 integers in every line, found 3"),
        (b"0,9\n", b"5\n", r"columns in \[0, 5\), found 9"),
    ],
)
def test_ogb_claims(server, cache, arxiv, edges, nodes, message):
    members = {"arxiv/raw/edge.csv.gz": edges, "arxiv/raw/num-node-list.csv.gz": nodes}
    server.files["/arxiv.zip"] = zipped({name: gzip.compress(content) for name, content in members.items()})
    with pytest.raises((DatasetError, MatrixError), match=message):
        load_matrix(arxiv, cache, 0)


def test_snap_claims(tmp_path):
    path = tmp_path / "web.txt.gz"
    path.write_bytes(gzip.compress(b"0 2147483646\n"))
    with pytest.raises(DatasetError, match="at most 8 GiB, found a claim of 64 GiB"):
        Snap().read(path, "web-NotreDame")


def test_an_encrypted_member_of_a_zip(server, cache, arxiv):
    content = bytearray(server.files["/arxiv.zip"])
    for header, flags in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
        at = -1
        while (at := content.find(header, at + 1)) >= 0:
            content[at + flags] |= 1
    server.files["/arxiv.zip"] = bytes(content)
    with pytest.raises(DatasetError, match=r"RuntimeError: .*encrypted"):
        load_matrix(arxiv, cache, 0)


def test_transpose_keeps_values_at_edges(cache, arxiv):
    straight = load_matrix(arxiv, cache, 0).csr
    flipped = load_matrix(arxiv.model_copy(update={"orientation": Orientation.TRANSPOSED}), cache, 0).csr
    edges = {(r, c): v for r, c, v in zip(straight.rows_of_entries(), straight.indices, straight.values, strict=True)}
    assert edges == {
        (c, r): v for r, c, v in zip(flipped.rows_of_entries(), flipped.indices, flipped.values, strict=True)
    }


def test_wrong_counts(server, cache, arxiv, list_origin):
    list_origin("ogb/ogbn-arxiv", (5, 5, 4), server.url + "arxiv.zip")
    with pytest.raises(DatasetError, match=r"ogbn-arxiv: expected 5 x 5 with 4 non-zeros.*found 5 x 5 with 3"):
        load_matrix(arxiv, cache, 0)


@pytest.mark.parametrize("size", [20, 200, -40])
def test_truncated_zip(server, cache, arxiv, size):
    server.files["/arxiv.zip"] = server.files["/arxiv.zip"][:size]
    with pytest.raises(DatasetError, match=r"arxiv\.zip: .*expected a complete archive"):
        load_matrix(arxiv, cache, 0)


@pytest.mark.parametrize("name", ["../../evil", "/etc/evil", "arxiv/raw/../../../evil", "..\\evil"])
def test_what_leads_out_of_a_zip_is_not_unpacked(server, cache, arxiv, tmp_path, name):
    server.files["/arxiv.zip"] = zipped({**ARXIV, name: b"evil"})
    assert load_matrix(arxiv, cache, 0).csr.nnz == 3
    assert not list(tmp_path.rglob("evil"))


def test_missing_member(server, cache, arxiv):
    server.files["/arxiv.zip"] = zipped({"arxiv/README": b""})
    with pytest.raises(DatasetError, match=r"expected one raw/num-node-list\.csv\.gz, found none"):
        load_matrix(arxiv, cache, 0)


def test_planetoid(server, cache, list_origin):
    list_origin("planetoid/cora", (4, 4, 5), server.url + "ind.cora.graph")
    graph = defaultdict(list, {0: [1, 2, 1], 1: [0], 2: [0], 3: [3]})
    server.files["/ind.cora.graph"] = pickle.dumps(graph, protocol=2)
    loaded = load_matrix(MatrixSpec(source="planetoid", name="cora"), cache, 0)
    assert sorted(zip(*np.nonzero(dense(loaded)), strict=True)) == [(0, 1), (0, 2), (1, 0), (2, 0), (3, 3)]


class Evil:
    def __reduce__(self):
        return eval, ("__import__('pathlib').Path('evil').touch()",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (pickle.dumps(Evil(), 2), "found __builtin__.eval; nothing was executed"),
        (pickle.dumps(defaultdict(list, {0: [Evil()]}), 2), "nothing was executed"),
        (pickle.dumps(defaultdict(list, {0: [np.int64(1)]})), "nothing was executed"),
        (pickle.dumps([1, 2]), "expected a defaultdict, found list"),
        (pickle.dumps(defaultdict(list, {0: ["1"]})), "expected lists of integers"),
        (pickle.dumps(defaultdict(list, {0: [1]}))[:-5], "it is corrupt or truncated"),
        (b"", "it is corrupt or truncated"),
        (b"\x80\x02]r\xff\xff\xff\x7f.", "expected a defaultdict, found list"),  # a memo in C would take 16 GiB
        (b"\x80\x05\x96" + b"\xff" * 7 + b"\x7f.", "it is corrupt or truncated"),  # a buffer of 2^63 bytes
        (
            b"}K\x00" + b"\x85" * 100_000 + b"K\x00s.",
            "it is corrupt or truncated",
        ),  # hashing the key would end the process
    ],
)
def test_planetoid_refuses_other_pickles(tmp_path, monkeypatch, content, message):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "ind.cora.graph"
    path.write_bytes(content)
    with pytest.raises(DatasetError, match=message):
        Planetoid().read(path, "cora")
    assert not (tmp_path / "evil").exists()


def test_dgl(server, cache, list_origin):
    list_origin("dgl/ppi-train-20graphs", (4, 4, 6), server.url + "ppi.zip")
    links = [{"source": 0, "target": 2}, {"source": 2, "target": 0}, {"source": 1, "target": 1}]
    nodes = [{"id": node, "test": False} for node in range(4)]
    graph = {"directed": True, "multigraph": False, "graph": {}, "nodes": nodes, "links": links}
    members = {"train_graph.json": json.dumps(graph).encode(), "test_graph.json": b"{}"}
    server.files["/ppi.zip"] = zipped(members)
    loaded = load_matrix(MatrixSpec(source="dgl", name="ppi-train-20graphs"), cache, 0)
    assert sorted(zip(*np.nonzero(dense(loaded)), strict=True)) == [(0, 0), (0, 2), (1, 1), (2, 0), (2, 2), (3, 3)]


@pytest.mark.parametrize(
    "content",
    [
        b"[]",
        b'{"nodes": [{"id": 7}], "links": []}',
        b"{",
        b"[" * 200_000,
        b'{"nodes": [{"id": 1e999}], "links": []}',
        b'{"nodes": [{"id": 0}], "links": [{"source": 99999999999999999999, "target": 0}]}',
        b'{"nodes": [{"id": 0}], "links": [{"source": [], "target": 0}]}',
        b"\xff",
    ],
)
def test_dgl_refuses_other_json(tmp_path, content):
    path = tmp_path / "ppi.zip"
    path.write_bytes(zipped({"train_graph.json": content}))
    with pytest.raises(DatasetError, match=r"train_graph\.json: expected"):
        DglGraphs().read(path, "ppi-train-20graphs")


def test_snap(server, cache, list_origin):
    list_origin("snap/web-NotreDame", (4, 4, 3), server.url + "web-NotreDame.txt.gz")
    text = b"# Directed graph\n# FromNodeId\tToNodeId\n0\t0\n0\t3\n3\t1\n"
    server.files["/web-NotreDame.txt.gz"] = gzip.compress(text)
    loaded = load_matrix(MatrixSpec(source="snap", name="web-NotreDame"), cache, 0)
    assert sorted(zip(*np.nonzero(dense(loaded)), strict=True)) == [(0, 0), (0, 3), (3, 1)]


def test_snap_truncated(tmp_path):
    path = tmp_path / "web-NotreDame.txt.gz"
    path.write_bytes(gzip.compress(b"0\t1\n" * 1000)[:-10])
    with pytest.raises(DatasetError, match="expected a complete archive"):
        Snap().read(path, "web-NotreDame")


@pytest.fixture
def collection(server, monkeypatch):
    monkeypatch.setattr(SuiteSparse, "base_url", server.url + "MM/")
    server.files["/MM/HB/tiny.tar.gz"] = tarred({"tiny/tiny.mtx": MTX, "tiny/tiny_b.mtx": b"x"})
    return MatrixSpec(source="suitesparse", name="HB/tiny")


def test_suitesparse(cache, collection):
    loaded = load_matrix(collection.model_copy(update={"values": "stored"}), cache, 0)
    out = np.zeros((3, 3))
    out[loaded.csr.rows_of_entries(), loaded.csr.indices] = loaded.csr.values
    assert np.array_equal(out, [[2.5, -1, 0], [-1, 0, 4], [0, 4, 0]])
    assert loaded.csr.nnz == 6  # the explicit zero stays in the pattern
    assert loaded.kind is MatrixKind.REAL
    seeded = load_matrix(collection, cache, 3)
    assert seeded.kind is MatrixKind.PATTERN
    assert seeded.csr.hash == loaded.csr.hash
    assert np.all(np.abs(seeded.csr.values) >= 0.5)


def test_a_link_in_place_of_the_matrix_is_not_followed(server, cache, collection, tmp_path):
    (tmp_path / "there.mtx").write_bytes(MTX)
    server.files["/MM/HB/link.tar.gz"] = tarred({"tiny/tiny.mtx": MTX}, link=str(tmp_path / "there.mtx"))
    with pytest.raises(DatasetError, match=r"expected one link\.mtx, found none"):
        load_matrix(collection.model_copy(update={"name": "HB/link"}), cache, 0)


@pytest.mark.parametrize("name", ["tiny", "a/b/c", "../x", "HB/..", "HB/tiny?x=1"])
def test_suitesparse_name(cache, name):
    with pytest.raises(DatasetError, match="expected Group/Name"):
        load_matrix(MatrixSpec(source="suitesparse", name=name), cache, 0)


@pytest.mark.parametrize(
    ("source", "name", "expected"),
    [
        ("planetoid", "cora", (0, 168, True)),
        ("planetoid", "citeseer", (124, 99, True)),
        ("planetoid", "pubmed", (3, 171, True)),
        ("dgl", "ppi-train-20graphs", (44_906, 721, True)),
        ("ogb", "ogbn-arxiv", (0, 436, False)),
        ("snap", "web-NotreDame", (27_455, 3_445, False)),
    ],
)
def test_real_graphs(mirror, tmp_path, source, name, expected):
    loaded = load_matrix(MatrixSpec(source=source, name=name), Cache(tmp_path, mirror), 0)
    facts = statistics(loaded.csr)
    assert (facts.self_loops, facts.longest_row, facts.symmetric) == expected
    assert loaded.kind is MatrixKind.PATTERN
    assert not list(tmp_path.iterdir())  # nothing was fetched


def test_arxiv_is_cited_by_columns(mirror, tmp_path):
    csr = load_matrix(MatrixSpec(source="ogb", name="ogbn-arxiv", orientation="AT"), Cache(tmp_path, mirror), 0).csr
    assert int(csr.row_lengths.max()) == 13_155
