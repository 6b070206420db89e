"""The cache of parsed matrices, the mirror's manifest, and the list of what there is."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from spmark.datasets.cache import Cache
from spmark.datasets.load import load_matrix
from spmark.datasets.source import RawMatrix
from spmark.datasets.sources.table import find_source
from spmark.datasets.sweep.model import MatrixSpec
from spmark.impls.core.errors import DatasetError
from spmark.records.schema import MatrixKind

RAW = RawMatrix((2, 3), np.array([0, 1, 3], np.int32), np.array([2, 0, 1], np.int32), None, MatrixKind.TWIN)


def test_kept_and_read(cache):
    assert cache.parsed("twin", "x", {}) is None
    cache.keep("twin", "x", {}, RAW)
    found = cache.parsed("twin", "x", {})
    assert (found.shape, found.kind, found.values) == (RAW.shape, RAW.kind, None)
    assert np.array_equal(found.indices, RAW.indices)
    assert cache.parsed("twin", "x", {"seed": 1}) is None
    assert cache.parsed("twin", "y", {}) is None


@pytest.mark.parametrize("damage", ["cut", "empty", "a bit", "another kind"])
def test_unusable_is_made_again(cache, caplog, damage):
    cache.keep("twin", "x", {}, RAW)
    (path,) = cache.root.rglob("*.npz")
    content = path.read_bytes()
    at = content.index(RAW.indices.tobytes())
    damaged = {
        "cut": content[:-20],
        "empty": b"",
        "a bit": content[:at] + b"\1" + content[at + 1 :],
        "another kind": content.replace("twin".encode("utf-32-le"), "twim".encode("utf-32-le")),
    }
    path.write_bytes(damaged[damage])
    assert cache.parsed("twin", "x", {}) is None
    assert "making twin/x again" in caplog.text


@pytest.mark.parametrize("place", ["../../x", "/x", "a/../../x", "..", "", "a\nb", "a\0b"])
def test_a_place_that_leads_out_is_refused_before_anything_is_made(tmp_path, place):
    cache = Cache(tmp_path / "a" / "b" / "cache")
    with pytest.raises(DatasetError, match="expected a place inside the cache's folder of downloads"):
        cache.fetch("http://127.0.0.1:9/x", place)
    assert not list(tmp_path.iterdir())


def test_names_do_not_lead_out_of_the_cache(cache):
    cache.keep("suitesparse", "../../../x", {}, RAW)
    assert all(path.is_relative_to(cache.root / "parsed" / "suitesparse") for path in cache.root.rglob("*.npz"))
    assert cache.parsed("suitesparse", "../../../x", {}) is not None


def test_a_cache_that_cannot_be_written(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    cache = Cache(tmp_path / "file")
    cache.keep("twin", "x", {}, RAW)
    assert "is not kept in the cache" in caplog.text
    with pytest.raises(DatasetError, match="name another folder with SPMARK_CACHE"):
        cache.fetch("http://127.0.0.1:9/x", "x")


def test_two_processes_at_once(tmp_path):
    code = """
import sys
from pathlib import Path
import numpy as np
from spmark.datasets.cache import Cache
from spmark.datasets.source import RawMatrix
from spmark.records.schema import MatrixKind
cache, raw = Cache(Path(sys.argv[1])), RawMatrix((1, 9), np.array([0, 9]), np.arange(9), None, MatrixKind.TWIN)
for _ in range(50):
    cache.keep("twin", "x", {}, raw)
    assert np.array_equal(cache.parsed("twin", "x", {}).indices, raw.indices)
"""
    workers = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) for _ in range(2)]
    assert [worker.wait(60) for worker in workers] == [0, 0]
    assert not list(tmp_path.rglob("*.part"))


def test_two_fetches_at_once_download_once(server, cache):
    server.files["/f"] = b"content" * 10_000
    with ThreadPoolExecutor(4) as pool:
        paths = list(pool.map(lambda _: Cache(cache.root).fetch(server.url + "f", "a/f"), range(4)))
    assert len(set(paths)) == 1
    assert server.requests == 1


def test_default_reads_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("SPMARK_CACHE", str(tmp_path / "c"))
    monkeypatch.setenv("SPMARK_MIRROR", str(tmp_path / "m"))
    assert (Cache.default().root, Cache.default().mirror) == (tmp_path / "c", tmp_path / "m")
    monkeypatch.delenv("SPMARK_MIRROR")
    monkeypatch.setenv("SPMARK_CACHE", "")
    assert Cache.default().mirror is None
    assert Cache.default().root.name == "spmark"


HEADER = "name\tcategory\tsource\tlicence\trows\tcols\tnnz\tnote\n"


def make_mirror(root: Path, lines: str, nnz: int = 3) -> Path:
    (root / "gnn").mkdir(parents=True)
    np.savez(root / "gnn" / "x.npz", indptr=[0, 1, 3], indices=[2, 0, 1][:nnz], data=[1.0, 1, 1], shape=[2, 3])
    (root / "MANIFEST.tsv").write_text(HEADER + lines, errors="surrogateescape")
    return root


def test_mirror(tmp_path):
    lines = "x\tgnn\there\tMIT\t2\t3\t3\t\nx\tother\there\tMIT\t2\t3\t3\t\ny\tgnn\there\tMIT\t2\t3\t3\t\n"
    cache = Cache(tmp_path / "c", make_mirror(tmp_path / "m", lines))
    assert load_matrix(MatrixSpec(source="mirror", name="gnn/x"), cache, 0).csr.nnz == 3
    for name, message in [
        ("x", "expected one matrix, found gnn/x, other/x"),
        ("gnn/y", r"y\.npz: expected an npz file, found none"),
        ("z", "expected one of its matrices, such as .*found 'z'"),
    ]:
        with pytest.raises(DatasetError, match=message):
            load_matrix(MatrixSpec(source="mirror", name=name), cache, 0)


def test_mirror_with_other_counts(tmp_path):
    cache = Cache(tmp_path / "c", make_mirror(tmp_path / "m", "x\tgnn\there\tMIT\t2\t3\t4\t\n"))
    with pytest.raises(DatasetError, match=r"x\.npz: expected .*nnz=4.* as MANIFEST.tsv says, found .*nnz=3"):
        load_matrix(MatrixSpec(source="mirror", name="x"), cache, 0)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("x\tgnn\there\tMIT\t2\tthree\t3\t\n", r"MANIFEST\.tsv:2: expected"),
        ("../../x\tgnn\ta\tb\t1\t1\t1\t\n", "leads out"),
        ("x\t/etc\ta\tb\t1\t1\t1\t\n", r"MANIFEST\.tsv:2: expected"),
        ("x\0\tgnn\ta\tb\t1\t1\t1\t\n", r"MANIFEST\.tsv"),
        ("x\n", r"MANIFEST\.tsv:2: expected"),
        ("x\tgnn\ta\tb\t" + "9" * 5000 + "\t1\t1\t\n", r"MANIFEST\.tsv:2: expected"),
        ("x" * 200_000 + "\tgnn\ta\tb\t1\t1\t1\t\n", "field larger than field limit"),
        ("\udcff\tgnn\ta\tb\t1\t1\t1\t\n", "UnicodeDecodeError"),
    ],
)
def test_bad_manifest(tmp_path, line, message):
    cache = Cache(tmp_path / "c", make_mirror(tmp_path / "m", line))
    with pytest.raises(DatasetError, match=message):
        load_matrix(MatrixSpec(source="mirror", name="x"), cache, 0)


def test_no_mirror(cache, tmp_path):
    for other, message in [(cache, "found it unset"), (Cache(tmp_path, tmp_path), "expected the manifest of a mirror")]:
        with pytest.raises(DatasetError, match=message):
            load_matrix(MatrixSpec(source="mirror", name="x"), other, 0)


def test_every_mirrored_matrix_loads(mirror, cache):
    cache = Cache(cache.root, mirror)
    names = find_source("mirror").names(cache)
    assert len(names) > 100
    for name in names:
        assert load_matrix(MatrixSpec(source="mirror", name=name, values="stored"), cache, 0).csr.num_rows > 0


def test_unknown_source():
    with pytest.raises(DatasetError, match=r"found 'planetoit' \(did you mean planetoid\?\)"):
        find_source("planetoit")
