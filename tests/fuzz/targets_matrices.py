"""Readers of matrices, of what leads to them, and of sweeps.

Files that are packed have two targets: the packed bytes, where most faults are found by checksums, and the content,
which is packed after it was damaged.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import tarfile
import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import cast
from unittest.mock import patch

import numpy as np
from archives import tarred, zipped
from fuzz.harness import Target
from scipy import io as matlab
from scipy import sparse

from spmark.datasets.cache import Cache
from spmark.datasets.collection import matching, read_index
from spmark.datasets.load import load_matrix
from spmark.datasets.mirror import read_manifest
from spmark.datasets.readers.npz import write_npz
from spmark.datasets.readers.rdf import Triple, read_triples
from spmark.datasets.relational import load_relational
from spmark.datasets.source import RawMatrix
from spmark.datasets.sources.downloaded import DownloadedSource
from spmark.datasets.sources.minkunet import SCANS
from spmark.datasets.sources.relational import Listed
from spmark.datasets.sources.table import find_source
from spmark.datasets.statistics import statistics
from spmark.datasets.sweep.model import MatrixSpec, Sweep, expand
from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.errors import DatasetError
from spmark.impls.core.problem import Csr
from spmark.records.schema import MatrixKind

os.environ["SPMARK_MAX_MATRIX_GIB"] = "0.25"
CSR = RawMatrix(
    (3, 4),
    np.array([0, 2, 2, 3], np.int32),
    np.array([1, 3, 0], np.int32),
    np.array([0.5, -2, 3], np.float32),
    MatrixKind.REAL,
)
ARGS = {"seed": 1}
MTX = b"%%MatrixMarket matrix coordinate real general\n% comment\n3 4 3\n1 4 -2.0\n3 1 3.0e-1\n1 2 0.5\n"
MTX_SYMMETRIC = b"%%MatrixMarket matrix coordinate integer skew-symmetric\n4 4 2\n2 1 -2\n4 3 7\n"
MTX_PATTERN = b"%%MatrixMarket matrix coordinate pattern symmetric\r\n%\r\n30 30 9\r\n" + b"".join(
    b"%d %d\r\n" % (at + 3, at + 1) for at in range(9)
)
EDGES = b"# Directed graph\n# FromNodeId\tToNodeId\n0\t0\n0\t3\n3\t1\n17\t2\n"


def npy(array: object) -> bytes:
    out = io.BytesIO()
    np.save(out, np.asarray(array))
    return out.getvalue()


def load(source: str, file: str, data: bytes, folder: Path, *, values: str = "stored") -> object:
    """Load as a sweep does, and count what `spmark show` counts."""
    (folder / file).write_bytes(data)
    spec = MatrixSpec(source=source, name=str(folder / file), values=values)
    return statistics(load_matrix(spec, Cache(folder / "cache"), 0).csr)


def packed_mtx(file: str, pack: Callable[[bytes], bytes], data: bytes, folder: Path) -> object:
    return load("matrix_market", file, pack(data), folder, values="seeded")


def npz_member(data: bytes, folder: Path) -> object:
    """Put the damaged array in place of the one that it was, in a file that is zipped anew."""
    members = npz_members()
    name, _, content = data.partition(b"|")
    members[name[:100].decode("latin1") or "x"] = content
    return load("npz", "m.npz", zipped(members), folder, values="seeded")


def npz_members() -> dict[str, bytes]:
    arrays = {"indptr": CSR.indptr, "indices": CSR.indices, "data": CSR.values, "shape": CSR.shape, "format": b"csr"}
    return {f"{name}.npy": npy(array) for name, array in arrays.items()}


def npz_seeds() -> Sequence[bytes]:
    stored, deflated = (zipped(npz_members(), method) for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    return stored, deflated, stored


def cache_entry(data: bytes, folder: Path) -> object:
    """Read a kept matrix that is damaged; what is unusable is to be made again."""
    cache = Cache(folder / "cache")
    cache.keep("twin", "x", ARGS, CSR)
    (path,) = (folder / "cache").rglob("*.npz")
    path.write_bytes(data)
    matrix = cache.parsed("twin", "x", ARGS)
    if matrix is None:
        raise DatasetError("to be made again")
    return matrix


def mapped_entry(data: bytes, folder: Path) -> object:
    """Do the same with an entry that is mapped whatever its size."""
    with patch("spmark.datasets.readers.npz.LARGE_BYTES", 0):
        return cache_entry(data, folder)


def mapped_seeds() -> Sequence[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        write_npz(Path(folder) / "m.npz", CSR)
        return [(Path(folder) / "m.npz").read_bytes()]


def cache_place(data: bytes, folder: Path) -> object:
    """Fetch to a place that the input names; what it leads to is there already, where it is legal."""
    place = data.decode("utf-8", "replace")
    root = folder / "cache"
    if place == "a/b.zip":
        (root / "downloads" / "a").mkdir(parents=True)
        (root / "downloads" / "a" / "b.zip").write_bytes(b"x")
    return Cache(root).fetch("file:///nowhere", place)


def manifest(data: bytes, folder: Path) -> object:
    (folder / "MANIFEST.tsv").write_bytes(data)
    return read_manifest(folder)


MANIFEST = (
    b"name\tcategory\tsource\tlicence\trows\tcols\tnnz\tnote\n"
    b"cora\tgnn\thttps://x.org\tMIT\t2708\t2708\t10556\tSuiteSparse a/b;\nx\tother\there\tMIT\t2\t3\t3\t\n"
)


def index(data: bytes, folder: Path) -> object:
    place = folder / "suitesparse" / "ssstats.csv"
    place.parent.mkdir(exist_ok=True)
    place.write_bytes(data)
    return matching(read_index(Cache(folder / "cache", folder)).lines, "rows >= 2 and kind = 'graph'")


INDEX = (
    b"2\n31-Oct-2023 18:12:37\nHB,1138_bus,1138,1138,4054,1,0,0,1,1,1,power network problem,4054\n"
    b'Newman,data,9,9,20,1,0,0,0,0.5,0.25,"directed, weighted graph",20\n'
)


def archive(file: str, origin: str, data: bytes, folder: Path) -> object:
    """Read a download as the source of an origin does."""
    (folder / file).write_bytes(data)
    source, _, name = origin.partition("/")
    raw = cast("DownloadedSource", find_source(source)).read(folder / file, name)
    return Csr.checked(raw.shape, raw.indptr, raw.indices, np.ones(raw.indices.size, np.float32))


def ogb_members(edges: bytes, nodes: bytes) -> dict[str, bytes]:
    return {
        "arxiv/raw/edge.csv.gz": gzip.compress(edges, 1, mtime=0),
        "arxiv/raw/num-node-list.csv.gz": gzip.compress(nodes, 1, mtime=0),
    }


def ogb_content(data: bytes, folder: Path) -> object:
    edges, _, nodes = data.partition(b"|")
    return archive("arxiv.zip", "ogb/ogbn-arxiv", zipped(ogb_members(edges, nodes)), folder)


def biokg_content(data: bytes, folder: Path) -> object:
    names = ("num-node-dict", "triplet-type-list", "relations/a___r___b/edge")
    members = {
        f"biokg/raw/{name}.csv.gz": gzip.compress(part, 1)
        for name, part in zip(names, data.split(b"|", 2), strict=False)
    }
    return archive("biokg.zip", "ogb/ogbl-biokg", zipped(members), folder)


def rdf(name: str, data: bytes, folder: Path) -> object:
    (folder / name).write_bytes(data)
    found: list[Triple] = []
    read_triples(folder / name, name, found.append)
    return found


def dgl_content(data: bytes, folder: Path) -> object:
    return archive("ppi.zip", "dgl/ppi-train-20graphs", zipped({"train_graph.json": data}), folder)


def dgl_seeds() -> Sequence[bytes]:
    links = [{"source": at, "target": at + 1} for at in range(4)]
    graph = {"directed": True, "nodes": [{"id": at, "test": False} for at in range(5)], "links": links}
    return (json.dumps(graph).encode(),)


def planetoid_seeds() -> Sequence[bytes]:
    graph = defaultdict(list, {0: [1, 2, 1], 1: [0], 2: [0], 3: [3]})
    return tuple(pickle.dumps(graph, protocol) for protocol in (0, 1, 2, 4))


DENSE = np.array([[1.5, 0, -2], [0, 0, 3]])
TRIPLES = (
    b'<http://purl.org/collections/nl/am/a-1> <http://x.org/y> "one"@en .\n_:b <http://x.org/y> <http://x.org/z> .\n'
)
FASP = b"3\n1\n3\n4\n6\n3\n1\n3\n1\n2\n-2\n1.5\n3\n4\n5\n"
CASE = b"%\nmpc.bus = [\n10 3;\n7 1;\n];\nmpc.branch = [\n10 7 0.1;\n7 10 0.1;\n];\n"


def lp_seeds() -> Sequence[bytes]:
    return tuple(
        zipped({"A_ub.npy": npy(np.asarray(DENSE, order=order)), "A_eq.npy": npy(DENSE)}, zipfile.ZIP_STORED)
        for order in ("C", "F")
    )


def lp_content(data: bytes, folder: Path) -> object:
    return archive("lp.npz", "netlib_lp/QAP15", zipped({"A_ub.npy": data, "A_eq.npy": npy(DENSE)}), folder)


def qp_seeds() -> Sequence[bytes]:
    seeds = [io.BytesIO(), io.BytesIO()]
    for out, packed in zip(seeds, (True, False), strict=True):
        matlab.savemat(out, {"A": sparse.csc_array(DENSE), "q": np.ones(3)}, do_compression=packed)
    return tuple(out.getvalue() for out in seeds)


def edges_npz() -> bytes:
    return zipped({"edges.npy": npy([[0, 1], [2, 1]]), "node_labels.npy": npy([0, 0, 1])}, zipfile.ZIP_STORED)


def relations(source: str, data: bytes, folder: Path) -> object:
    """Read a file of the mirror that holds edges of several relations."""
    (folder / source).mkdir(exist_ok=True)
    name, counts = "small", Listed(4, 3, 5, "")
    (folder / source / f"{name}.npz").write_bytes(data)
    with patch.object(type(find_source(source)), "listed", {name: counts}):
        return load_relational(MatrixSpec(source=source, name=name), Cache(folder / "cache", folder), 0)


def relations_npz(*arrays: str) -> bytes:
    held = {"rel": [0, 0, 2, 2, 2], "dst": [1, 1, 3, 3, 0], "src": [0, 2, 1, 3, 3]}
    held |= {"knnz": [1, 4, 0], "out_map": [2, 0, 1, 2, 3], "in_map": [1, 0, 1, 2, 3]}
    return zipped({f"{name}.npy": npy(np.array(held[name], np.int32)) for name in arrays}, zipfile.ZIP_STORED)


def scan(data: bytes, folder: Path) -> object:
    """Read a file of the mirror that holds a scan, and build a map of it."""
    name = next(iter(SCANS))
    (folder / "pointcloud").mkdir(exist_ok=True)
    (folder / "pointcloud" / f"{name}.npz").write_bytes(data)
    return load_relational(MatrixSpec(source="minkunet", name=f"{name}/down1"), Cache(folder / "cache", folder), 0)


def scan_npz() -> bytes:
    points = np.random.default_rng(0).normal(0, 0.3, (40, 3)).astype(np.float32)
    return zipped({"xyz.npy": npy(points)}, zipfile.ZIP_STORED)


def sweep(data: bytes, folder: Path) -> object:
    (folder / "sweep.yaml").write_bytes(data)
    (folder / "list.yaml").write_text("- {source: twin, name: reddit_twin}\n")
    loaded = Sweep.load(folder / "sweep.yaml")
    return [case.case_id for kind in DeviceKind for case in expand(loaded, kind)]


def sweep_list(data: bytes, folder: Path) -> object:
    (folder / "list.yaml").write_bytes(data)
    (folder / "sweep.yaml").write_bytes(SWEEP)
    return expand(Sweep.load(folder / "sweep.yaml"), DeviceKind.CPU)


SWEEP = b"""# what is measured
schema: 1
name: mine
title: "A sweep: mine"
ops: [spmm, sddmm_scaled]
matrices:
  - {source: planetoid, name: cora, orientation: AT, widths: &w [32, 128]}
  - {include: list.yaml}
  - {source: dnn_layers, names: [bert_768x768@0.9, "bert_3072*"], args: {seed: 3}}
widths: *w
dtypes: [float32, float16]
implementations: [scipy_cpu, {name: liteform, label: tuned, config: {partitions: 2, deep: {a: [1, 2.5, null, yes]}}}]
baseline: {cpu: scipy_cpu}
seed: 7
time_limit_s: 1.5e+2
"""
LIST = b"- {source: patterns, name: banded, args: {size: 100, width: 3}}\n- source: matrix_market\n  name: mine.mtx\n"


def archives(content: bytes) -> Sequence[bytes]:
    return tarred({"m/README": b"x", "m/m.mtx": content}, "w"), tarred({"m/m.mtx": content}, "w", tarfile.GNU_FORMAT)


TARGETS = (
    Target("mtx", partial(load, "matrix_market", "m.mtx"), lambda: [MTX, MTX_SYMMETRIC]),
    Target("mtx_seeded", partial(packed_mtx, "m.mtx", bytes), lambda: [MTX, MTX_PATTERN, MTX_SYMMETRIC]),
    Target("mtx_gz", partial(load, "matrix_market", "m.mtx.gz"), lambda: [gzip.compress(MTX, mtime=0)]),
    Target(
        "mtx_gz_content",
        partial(packed_mtx, "m.mtx.gz", partial(gzip.compress, compresslevel=1)),
        lambda: [MTX, MTX_PATTERN],
    ),
    Target("mtx_tar", partial(load, "matrix_market", "m.tar"), lambda: archives(MTX)),
    Target(
        "mtx_tar_gz_content",
        partial(packed_mtx, "m.tar.gz", partial(gzip.compress, compresslevel=1)),
        lambda: archives(MTX_PATTERN),
    ),
    Target(
        "mtx_zip",
        partial(load, "matrix_market", "m.zip"),
        lambda: [
            zipped({"m/x": b"x", "m/m.mtx": MTX}, method) for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
        ],
    ),
    Target("npz", partial(load, "npz", "m.npz"), npz_seeds, claims=True),
    Target(
        "npz_member",
        npz_member,
        lambda: [name.encode() + b"|" + content for name, content in npz_members().items()],
        claims=True,
    ),
    Target(
        "smtx",
        partial(load, "smtx", "m.smtx", values="seeded"),
        lambda: [b"3, 4, 3\n0 2 2 3\n1 3 0\n", b"1, 4, 0\n0 0\n\n"],
    ),
    Target("cache_entry", cache_entry, npz_seeds, claims=True),
    Target("mapped_entry", mapped_entry, mapped_seeds, claims=True),
    Target("cache_place", cache_place, lambda: [b"a/b.zip"]),
    Target("manifest", manifest, lambda: [MANIFEST]),
    Target("sweep", sweep, lambda: [SWEEP]),
    Target("sweep_list", sweep_list, lambda: [LIST]),
    Target(
        "ogb",
        partial(archive, "arxiv.zip", "ogb/ogbn-arxiv"),
        lambda: [zipped(ogb_members(b"0,3\n3,1\n0,2\n", b"5\n"))],
    ),
    Target("ogb_content", ogb_content, lambda: [b"0,3\n3,1\n0,2\n|5\n"]),
    Target(
        "dgl",
        partial(archive, "ppi.zip", "dgl/ppi-train-20graphs"),
        lambda: [zipped({"train_graph.json": dgl_seeds()[0]})],
    ),
    Target("dgl_content", dgl_content, dgl_seeds),
    Target("biokg_content", biokg_content, lambda: [b"a,b\n2,3\n|a,r,b\n|0,2\n1,1\n"]),
    Target("rdf_nt", partial(rdf, "a.nt"), lambda: [TRIPLES]),
    Target("rdf_n3", partial(rdf, "a.n3"), lambda: [b"@prefix am: <http://x.org/> .\n" + TRIPLES]),
    Target("planetoid", partial(archive, "ind.cora.graph", "planetoid/cora"), planetoid_seeds),
    Target("snap", partial(archive, "web.txt.gz", "snap/web-NotreDame"), lambda: [gzip.compress(EDGES, mtime=0)]),
    Target(
        "snap_content",
        lambda data, folder: archive("web.txt.gz", "snap/web-NotreDame", gzip.compress(data, 1), folder),
        lambda: [EDGES],
    ),
    Target("index", index, lambda: [INDEX]),
    Target("heterophilous", partial(archive, "e.npz", "heterophilous/actor"), lambda: [edges_npz()], claims=True),
    Target(
        "hetero_words",
        partial(archive, "train.txt", "hetero/wn18rr"),
        lambda: [b"X\tin\tt\nn1\tof\tX\n", b"<a> <b> <c> .\n"],
    ),
    Target("hetero", partial(relations, "hetero"), lambda: [relations_npz("rel", "dst", "src")], claims=True),
    Target(
        "kernel_map",
        partial(relations, "pointcloud"),
        lambda: [relations_npz("knnz", "out_map", "in_map")],
        claims=True,
    ),
    Target("scan", scan, lambda: [scan_npz()], claims=True),
    Target("fasp", partial(archive, "c.dat", "github/a/b/c.dat"), lambda: [FASP]),
    Target("matpower", partial(archive, "c.m", "matpower/case"), lambda: [CASE]),
    Target("lp", partial(archive, "lp.npz", "netlib_lp/QAP15"), lp_seeds, claims=True),
    Target("lp_content", lp_content, lambda: [npy(DENSE), npy(np.asfortranarray(DENSE))], claims=True),
    Target("qp", partial(archive, "qp.mat", "maros_meszaros/UBH1_A"), qp_seeds, claims=True),
)
