"""Matrices that processes of a machine share: parsed once, mapped read-only, made again where the file is damaged."""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import psutil
import pytest
from scipy import sparse

from spmark.datasets.load import load_matrix
from spmark.datasets.readers.npz import LARGE_BYTES, read_npz, write_npz
from spmark.datasets.source import RawMatrix
from spmark.datasets.sweep.model import MatrixSpec
from spmark.impls.core.errors import DatasetError
from spmark.records.schema import MatrixKind

PARTS = ("indptr", "indices", "values")


def drawn(num_rows: int, values: bool) -> RawMatrix:
    """Draw 40 columns of each row out of as many spans."""
    rng = np.random.default_rng(3)
    indices = np.arange(40, dtype=np.int32) * 97 + rng.integers(0, 97, (num_rows, 40), np.int32)
    indptr = np.arange(num_rows + 1, dtype=np.int32) * 40
    own = rng.uniform(0.5, 1, indices.size) if values else None
    return RawMatrix((num_rows, 40 * 97), indptr, indices.ravel(), own, MatrixKind.TWIN)


LARGE = drawn(LARGE_BYTES // 4 // 40 + 1, values=False)


def of(raw):
    return [part for name in PARTS if (part := getattr(raw, name)) is not None]


@pytest.mark.parametrize("values", [False, True])
def test_a_large_file_is_mapped_and_numpy_and_scipy_read_it(tmp_path, values):
    raw = drawn(LARGE.shape[0], values)
    write_npz(tmp_path / "m.npz", raw)
    found = read_npz(tmp_path / "m.npz")
    assert (found.shape, found.kind) == (raw.shape, raw.kind)
    for part, expected in zip(of(found), of(raw), strict=True):
        assert np.array_equal(part, expected)
        assert part.dtype == expected.dtype
        assert (part.flags.writeable, part.ctypes.data % 64) == (False, 0)
    (tmp_path / "m.npz").unlink()
    assert np.array_equal(found.indices, raw.indices)
    if values:
        write_npz(tmp_path / "m.npz", raw)
        assert np.array_equal(sparse.load_npz(tmp_path / "m.npz").data, raw.values)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_large_file_by_numpy_is_read(tmp_path, save):
    save(tmp_path / "m.npz", indptr=LARGE.indptr, indices=LARGE.indices, shape=LARGE.shape)
    found = read_npz(tmp_path / "m.npz")
    assert np.array_equal(found.indices, LARGE.indices)
    assert found.indices.ctypes.data % found.indices.itemsize == 0


@pytest.mark.parametrize("damage", ["a bit", "cut", "head", "place"])
def test_a_damaged_file_is_made_again(cache, caplog, damage):
    cache.keep("twin", "x", {}, LARGE)
    (path,) = cache.root.rglob("*.npz")
    with path.open("r+b") as file:
        content = file.read()
        at = {"a bit": len(content) // 2, "head": content.index(b"descr"), "place": content.rindex(b"PK\1\2") + 42}
        if damage == "cut":
            file.truncate(len(content) // 2)
        else:
            file.seek(at[damage])
            file.write(bytes([content[at[damage]] ^ 1]))
    assert cache.parsed("twin", "x", {}) is None
    assert "making twin/x again" in caplog.text


def test_bytes_that_claim_more_than_there_are(tmp_path):
    write_npz(tmp_path / "m.npz", LARGE)
    content = (tmp_path / "m.npz").read_bytes()
    at = content.index(b"PK\3\4", 100) + 26  # bytes of the second member's name, then of its extra field
    (tmp_path / "m.npz").write_bytes(content[:at] + b"\xff\xff\xff\xff" + content[at + 4 :])
    with pytest.raises(DatasetError, match=r"m\.npz: expected a complete npz file"):
        read_npz(tmp_path / "m.npz")


LOADING = """
import sys, time
from pathlib import Path
from spmark.datasets import load
from spmark.datasets.cache import Cache
from spmark.datasets.sources.files import MatrixMarket
from spmark.datasets.sweep.model import MatrixSpec

parse = MatrixMarket.read
def read(self, path):
    print("parsed", flush=True)
    time.sleep(1)
    return parse(self, path)
MatrixMarket.read = read
cache, spec = Cache(Path(sys.argv[1])), MatrixSpec(source="matrix_market", name=sys.argv[2])
load.LARGE_BYTES = 0
print(load.load_matrix(spec, cache, 0).csr.hash)
"""


def matrix_market(path, raw):
    rows = np.repeat(np.arange(1, raw.shape[0] + 1), 40)
    head = f"%%MatrixMarket matrix coordinate pattern general\n{raw.shape[0]} {raw.shape[1]} {rows.size}\n"
    path.write_text(head + "\n".join(map("{} {}".format, rows.tolist(), (raw.indices + 1).tolist())) + "\n")
    return path


def test_two_processes_at_once_parse_a_file_once_and_a_change_is_seen(tmp_path):
    path = matrix_market(tmp_path / "m.mtx", drawn(50, values=False))
    command = [sys.executable, "-c", LOADING, str(tmp_path / "cache"), str(path)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [one.communicate(timeout=60)[0].split() for one in both]
    assert [one.returncode for one in both] == [0, 0]
    assert sorted(map(len, said)) == [1, 2]
    assert said[0][-1] == said[1][-1]
    other = drawn(50, values=False)
    other.indices[-1] += 1
    matrix_market(path, other)
    again = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.split()
    assert again[0] == "parsed"
    assert again[1] != said[0][-1]


SHARING = """
import sys
from pathlib import Path
import psutil
from spmark.datasets.cache import Cache
cache = Cache(Path(sys.argv[1]))
cache.parsed("twin", "small", {})
before = psutil.Process().memory_full_info().uss
raw = cache.parsed("twin", "x", {})
print(psutil.Process().memory_full_info().uss - before)
"""


def test_memory_of_a_matrix_belongs_to_no_process_alone(cache):
    cache.keep("twin", "x", {}, LARGE)
    cache.keep("twin", "small", {}, drawn(3, values=False))
    here = cache.parsed("twin", "x", {})
    before = psutil.Process().memory_full_info().uss
    out = subprocess.run([sys.executable, "-c", SHARING, str(cache.root)], capture_output=True, text=True, check=True)
    own = int(out.stdout)
    assert own < here.indices.nbytes / 8
    assert abs(psutil.Process().memory_full_info().uss - before) < here.indices.nbytes / 8


FULL = """
import resource, sys
from pathlib import Path
from spmark.datasets.cache import Cache
from spmark.datasets.load import load_matrix
from spmark.datasets.sources.rmat import Rmat
from spmark.datasets.sweep.model import MatrixSpec
Rmat.cached = True
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
print(load_matrix(MatrixSpec(source="rmat", name="x", args={"scale": 9}), Cache(Path(sys.argv[1])), 0).csr.nnz)
"""


def test_a_disk_that_takes_no_more(tmp_path):
    command = [sys.executable, "-c", FULL, str(tmp_path)]
    out = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(out.stdout) > 4096 / 4
    assert "is not kept in the cache" in out.stderr
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".lock"]


def test_what_was_used_least_recently_goes(cache, monkeypatch):
    monkeypatch.setenv("SPMARK_MAX_PARSED_GIB", str(2.5 * LARGE.indices.nbytes / 2**30))
    for name in ("a", "b"):
        cache.keep("twin", name, {}, LARGE)
    time.sleep(0.02)  # clocks of file systems tick every few milliseconds
    seen = cache.parsed("twin", "a", {})
    time.sleep(0.02)
    cache.keep("twin", "c", {}, LARGE)
    assert [cache.has("twin", name, {}) for name in "abc"] == [True, False, True]
    monkeypatch.setenv("SPMARK_MAX_PARSED_GIB", "1e-9")
    cache.keep("twin", "d", {}, LARGE)
    assert not any(cache.has("twin", name, {}) for name in "abcd")
    assert np.array_equal(seen.indices, LARGE.indices)


def test_the_transpose_of_a_mapped_matrix(cache, monkeypatch):
    spec = MatrixSpec(source="twin", name="x", orientation="AT")
    monkeypatch.setattr("spmark.datasets.load._check_counts", lambda *_: None)
    monkeypatch.setattr("spmark.datasets.sources.twin.Twin.load", lambda self, name, args, cache: LARGE)
    made, kept = load_matrix(spec, cache, 5), load_matrix(spec, cache, 5)
    assert made.csr.hash == kept.csr.hash
    assert np.array_equal(made.csr.values, kept.csr.values)
    assert cache.has("twin", "x", {})
