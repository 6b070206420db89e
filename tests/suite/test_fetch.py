"""``spmark fetch`` and ``spmark mirror make`` against a loopback server with archives in the publishers' formats."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from archives import tarred, zipped
from file_server import FileServer, serving
from scipy import sparse

from spmark.datasets import cache as download
from spmark.datasets import fetching, origins
from spmark.datasets.cache import Cache
from spmark.datasets.load import load_matrix
from spmark.datasets.origins import Origin
from spmark.datasets.source import Facts
from spmark.datasets.sources.dlmc import Dlmc
from spmark.datasets.sources.graphs import SuiteSparse
from spmark.datasets.sweep.model import MatrixSpec
from spmark.suite.cli import fetch

MTX = b"%%MatrixMarket matrix coordinate real general\n3 3 2\n1 2 0.5\n3 1 -4\n"
LAYER = b"3, 3, 2\n0 1 1 2\n1 0"
EDGES = np.array([[0, 1], [2, 0]])


def npz(**arrays: object) -> bytes:
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


def reddit() -> bytes:
    out = io.BytesIO()
    sparse.save_npz(out, sparse.coo_matrix((np.ones(2), EDGES.T), (3, 3)))
    return zipped({"reddit_graph.npz": out.getvalue(), "reddit_data.npz": b"x" * 100})


OGB = {
    "proteins/raw/edge.csv.gz": gzip.compress(b"0,1\n2,0\n"),
    "proteins/raw/num-node-list.csv.gz": gzip.compress(b"3\n"),
}
FILES = {
    "suitesparse/HB/tiny": ("MM/HB/tiny.tar.gz", tarred({"tiny/tiny.mtx": MTX})),
    "dlmc/rn50/x/0.5/a": ("dlmc.tar.gz", tarred({"dlmc/rn50/x/0.5/a.smtx": LAYER, "dlmc/rn50/x/0.5/b.smtx": LAYER})),
    "dlmc/rn50/x/0.5/b": ("dlmc.tar.gz", b""),
    "dgl/reddit": ("reddit.zip", reddit()),
    "ogb/ogbn-proteins": ("proteins.zip", zipped(OGB)),
    "snap/web": ("web.txt.gz", gzip.compress(b"# x\n0\t1\n2\t0\n")),
    "github/a/b/c.mtx": ("c.mtx", MTX),
}
"""The name and the content of what is served, by origin; each has two entries in three rows."""


@pytest.fixture
def server(monkeypatch, tmp_path) -> Iterator[FileServer]:
    with serving() as files:
        lines = {}
        for id, (name, content) in FILES.items():
            if content:
                files.files[f"/{name}"] = content
            lines[id] = Origin(id, (), Facts(3, 3, 2), "", "MIT", files.url + name)
        monkeypatch.setattr(origins, "origins", lambda: lines)
        monkeypatch.setattr(origins, "by_alias", lambda: {"mirror/old": lines["snap/web"]})
        monkeypatch.setattr(SuiteSparse, "base_url", files.url + "MM/")
        monkeypatch.setattr(Dlmc, "url", files.url + "dlmc.tar.gz")
        monkeypatch.setattr(download, "PAUSE_S", 0.001)
        # A child would have the true list.
        monkeypatch.setattr(fetch, "load_in_child", lambda spec, seed: load_matrix(spec, Cache.default(), seed))
        monkeypatch.setenv("SPMARK_CACHE", str(tmp_path / "cache"))
        monkeypatch.delenv("SPMARK_MIRROR", raising=False)
        yield files


@pytest.fixture
def sweep(tmp_path):
    path = tmp_path / "mine.yaml"
    lines = "".join(f"  - {id}\n" for id in [*FILES, "dgl/reddit@AT", "rmat/r"])
    path.write_text(
        "schema: 1\nname: mine\nops: [spmm]\nwidths: [8]\nimplementations: [scipy_cpu]\nmatrices:\n"
        + lines.replace("rmat/r", "{source: rmat, name: r, args: {scale: 6, edge_factor: 4}}")
    )
    return path


def test_everything_is_brought_and_each_file_once(invoke, server, sweep):
    code, out, err = invoke("fetch", sweep, "--json")
    rows = json.loads(out)
    assert code == 0, err
    assert [row["nnz"] for row in rows[:8]] == [2] * 8
    assert server.requests == 6
    assert invoke("fetch", sweep)[0] == 0
    assert server.requests == 6, "all of it is in the cache"


def test_a_dry_run_lists_bytes_and_origins_and_downloads_nothing(invoke, server, sweep, tmp_path):
    del server.files["/web.txt.gz"]
    code, out, _ = invoke("fetch", sweep, "--dry-run", "--json")
    rows = {row["matrix"]: row for row in json.loads(out)}
    assert code == 0
    tiny = FILES["suitesparse/HB/tiny"]
    assert rows["suitesparse/HB/tiny"] == {
        "matrix": "suitesparse/HB/tiny", "bytes": len(tiny[1]), "from": server.url + tiny[0]
    }  # fmt: skip
    assert rows["dlmc/rn50/x/0.5/a"]["bytes"] > 0
    assert rows["dlmc/rn50/x/0.5/b"]["bytes"] == 0, "one archive has both"
    assert (rows["snap/web"]["bytes"], rows["snap/web"]["from"]) == (None, server.url + "web.txt.gz")
    assert rows["rmat/r"]["from"] == "here"
    assert not (tmp_path / "cache" / "downloads").exists()
    text = invoke("fetch", sweep, "--dry-run")[1]
    assert "6 files to download" in text
    assert "web.txt.gz: size not known: 404" in text
    with_words = invoke("fetch", "candidates", "--dry-run")
    assert with_words[0] == 2


@pytest.mark.parametrize(
    ("break_it", "why"),
    [
        (lambda server: server.files.pop("/web.txt.gz"), "404"),
        (
            lambda server: server.files.update({"/web.txt.gz": gzip.compress(b"0 1\n0 2\n1 2\n")}),
            "expected 3 x 3 with 2",
        ),
        (lambda server: server.files.update({"/web.txt.gz": FILES["snap/web"][1][:-9]}), "expected a complete archive"),
        (lambda server: server.redirects.update({"/web.txt.gz": "/nowhere"}), "404"),
    ],
    ids=["not found", "another matrix", "truncated", "redirected to nothing"],
)
def test_what_cannot_be_had_is_listed_with_the_reason_and_all_else_is_there(invoke, server, sweep, break_it, why):
    break_it(server)
    code, out, err = invoke("fetch", sweep, "--json")
    rows = {row["matrix"]: row for row in json.loads(out)}
    assert code == 2
    assert [id for id, row in rows.items() if row["why"]] == ["snap/web"]
    assert why in rows["snap/web"]["why"]
    assert "1 could not be had" in err
    assert "snap/web" in err.split("1 could not be had")[1]


def test_a_redirected_and_a_slow_file_are_brought_and_a_dropped_one_goes_on(invoke, server, sweep):
    server.redirects["/web.txt.gz"] = "/moved"
    server.files["/moved"] = FILES["snap/web"][1]
    server.pause_s = 0.2
    server.drop_after = [10, 10]
    assert invoke("fetch", sweep)[0] == 0
    assert len(server.ranges) == 0, "ten bytes are less than a chunk, and start over"


def test_an_alias_needs_its_origin_s_file(server, tmp_path):
    found = fetching.needed([MatrixSpec(source="mirror", name="old")], Cache(tmp_path / "c"))
    assert found == {"mirror/old": fetching.Download(server.url + "web.txt.gz", "snap/web.txt.gz")}


def test_two_at_once_download_each_file_once(server, tmp_path):
    specs = [MatrixSpec(source="snap", name="web"), MatrixSpec(source="dgl", name="reddit")]
    server.pause_s = 0.1

    def brought(_: int) -> object:
        cache = Cache(tmp_path / "c")
        return fetching.bring(fetching.needed(specs, cache).values(), cache)

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(brought, range(2))) == [{}, {}]
    assert server.requests == 2


def test_a_full_disk_is_one_reason_for_each_file(server, tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(download, "download", full)
    cache = Cache(tmp_path / "c")
    files = fetching.needed([MatrixSpec(source="snap", name="web"), MatrixSpec(source="dgl", name="reddit")], cache)
    failed = fetching.bring(files.values(), cache)
    assert len(failed) == 2
    assert all("No space left on device" in why for why in failed.values())


def test_a_mirror_serves_a_machine_without_a_network(invoke, server, sweep, tmp_path, monkeypatch):
    folder = tmp_path / "mirror"
    code, out, err = invoke("mirror", "make", folder, sweep)
    assert code == 0, out + err
    assert "7 matrices, 7 of them new" in out
    monkeypatch.setenv("SPMARK_MIRROR", str(folder))
    monkeypatch.setenv("SPMARK_CACHE", str(tmp_path / "other"))
    requests = server.requests
    for id in FILES:
        source, _, name = id.partition("/")
        loaded = load_matrix(MatrixSpec(source=source, name=name), Cache.default(), 0)
        assert loaded.csr.nnz == 2
    stored = load_matrix(MatrixSpec(source="suitesparse", name="HB/tiny", values="stored"), Cache.default(), 0)
    assert list(stored.csr.values) == [0.5, -4]
    assert server.requests == requests
    code, out, _ = invoke("mirror", "make", folder, sweep)
    assert (code, "7 matrices, 0 of them new" in out) == (0, True)


def test_a_mirror_without_one_matrix_says_so_and_is_completed_later(invoke, server, sweep, tmp_path):
    held = server.files.pop("/web.txt.gz")
    code, out, _ = invoke("mirror", "make", tmp_path / "m", sweep)
    assert code == 2
    assert "6 matrices, 6 of them new" in out
    assert "snap/web" in out
    server.files["/web.txt.gz"] = held
    code, out, _ = invoke("mirror", "make", tmp_path / "m", sweep)
    assert (code, "7 matrices, 1 of them new" in out) == (0, True)
