"""Sources of public repositories and collections, against small files in the publishers' true formats."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from archives import tarred, zipped
from numpy.typing import NDArray
from scipy import io as matlab
from scipy import sparse

from spmark.datasets.load import load_matrix
from spmark.datasets.sweep.model import MatrixSpec
from spmark.impls.core.errors import DatasetError, MatrixError
from spmark.impls.core.problem import Csr
from spmark.records.schema import MatrixKind

DENSE = np.array([[1.5, 0, -2], [0, 0, 3], [4, 5, 0]])


@pytest.fixture
def load(server, cache, list_origin):
    """Serve a file and load the matrix that is read from it."""

    def loaded(id: str, file: str, content: bytes, matrix: NDArray[Any], values: str = "seeded") -> Csr:
        server.files[f"/{file}"] = content
        list_origin(id, (*matrix.shape, np.count_nonzero(matrix)), server.url + file)
        source, _, name = id.partition("/")
        found = load_matrix(MatrixSpec(source=source, name=name, values=values), cache, 0)
        assert found.kind is (MatrixKind.REAL if values == "stored" else MatrixKind.PATTERN)
        return found.csr

    return loaded


def dense(csr: Csr) -> NDArray[np.float32]:
    return sparse.csr_array((csr.values, csr.indices, csr.indptr), csr.shape).toarray()


def pattern(csr: Csr) -> list[tuple[int, int]]:
    return [(int(row), int(col)) for row, col in zip(csr.rows_of_entries(), csr.indices, strict=True)]


def saved(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    out = io.BytesIO()
    np.savez_compressed(out, **arrays)
    return out.getvalue()


PATH = np.zeros((4, 4))
PATH[[0, 1, 1, 2], [1, 0, 2, 1]] = 1
"""0 - 1 - 2, and 3 alone."""


def test_heterophilous(load):
    edges = np.array([[0, 1], [2, 1]])
    content = saved({"edges": edges, "node_labels": np.zeros(4, int), "node_features": np.zeros((4, 2))})
    assert pattern(load("heterophilous/actor", "actor.npz", content, PATH)) == [(0, 1), (1, 0), (1, 2), (2, 1)]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (
            {"edges": np.zeros((2, 3), int), "node_labels": np.zeros(4)},
            r"edges as integers \(n, 2\), found int64 \(2, 3\)",
        ),
        ({"edges": np.zeros((2, 2)), "node_labels": np.zeros(4)}, r"expected edges as integers"),
        ({"edges": np.array([[0, 9]]), "node_labels": np.zeros(4)}, r"columns in \[0, 4\), found 9|rows in"),
        ({"node_labels": np.zeros(4)}, "an npz file with edges and node_labels"),
    ],
)
def test_heterophilous_refuses_other_arrays(load, arrays, message):
    with pytest.raises((DatasetError, MatrixError), match=message):
        load("heterophilous/actor", "actor.npz", saved(arrays), PATH)


def test_musae(load):
    content = zipped({"git_web_ml/musae_git_edges.csv": b"id_1,id_2\n0,1\n2,1\n", "git_web_ml/README.txt": b"x"})
    assert pattern(load("musae/git", "git_web_ml.zip", content, PATH[:3, :3])) == [(0, 1), (1, 0), (1, 2), (2, 1)]


def test_bionev(load):
    content = b"0 1\n2 1\n"
    assert pattern(load("bionev/STRING_PPI", "a.edgelist", content, PATH[:3, :3])) == [(0, 1), (1, 0), (1, 2), (2, 1)]


def test_a_repository_s_matrix_market_file(load):
    content = b"%%MatrixMarket matrix coordinate real general\n3 3 5\n1 1 1.5\n1 3 -2\n2 3 3\n3 1 4\n3 2 5\n"
    assert np.array_equal(dense(load("github/a/b/c.mtx", "c.mtx", content, DENSE, "stored")), DENSE)


FASP = "3\n1\n3\n4\n6\n3\n1\n3\n1\n2\n-2\n1.5\n3\n4\n5\n"


def test_fasp(load):
    assert np.array_equal(dense(load("github/a/b/c.dat", "c.dat", FASP.encode(), DENSE, "stored")), DENSE)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (FASP[:-2], "expected 15 numbers, found 14: truncated"),
        ("x", "expected numbers of a CSR"),
        ("", "expected numbers of a CSR"),
        ("2147483646\n1\n", "at most 8 GiB"),
        (FASP.replace("3\n1\n3\n1\n2\n-2", "3\n1\n9\n1\n2\n-2"), r"columns in \[0, 3\), found 8"),
    ],
)
def test_fasp_refuses(load, text, message):
    with pytest.raises((DatasetError, MatrixError), match=message):
        load("github/a/b/c.dat", "c.dat", text.encode(), DENSE)


@pytest.mark.parametrize("order", ["C", "F"])
def test_netlib(load, monkeypatch, order):
    monkeypatch.setattr("spmark.datasets.sources.programs._CHUNK_BYTES", 48)
    arrays = {"A_ub": np.asarray(DENSE[:1], order=order), "A_eq": np.asarray(DENSE[1:], order=order), "c": np.ones(3)}
    assert np.array_equal(dense(load("netlib_lp/AFIRO", "AFIRO.npz", saved(arrays), DENSE, "stored")), DENSE)


def test_netlib_without_one_kind_of_constraints_reads_no_object(load):
    content = saved({"A_ub": np.array(Evil(), object), "A_eq": DENSE, "bounds": np.array([None])})
    assert np.array_equal(dense(load("netlib_lp/AFIRO", "AFIRO.npz", content, DENSE, "stored")), DENSE)


class Evil:
    def __reduce__(self):
        raise_ = "raise RuntimeError('executed')"
        return exec, (raise_,)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"A_ub": np.zeros(3), "A_eq": DENSE}, "expected a dense matrix of numbers"),
        ({"A_ub": DENSE.astype(str), "A_eq": DENSE}, "expected a dense matrix of numbers"),
        ({"A_eq": DENSE}, "an npz file with A_ub and A_eq"),
    ],
)
def test_netlib_refuses(load, arrays, message):
    with pytest.raises(DatasetError, match=message):
        load("netlib_lp/AFIRO", "AFIRO.npz", saved(arrays), DENSE)


def test_netlib_whose_array_is_shorter_than_its_header_says(load):
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(saved({"A_ub": DENSE, "A_eq": DENSE}))) as file, zipfile.ZipFile(out, "w") as cut:
        for name in file.namelist():
            cut.writestr(name, file.read(name)[:-8])
    with pytest.raises(DatasetError, match="an npz file with A_ub and A_eq"):
        load("netlib_lp/AFIRO", "AFIRO.npz", out.getvalue(), DENSE)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("variable", ["A", "P"])
def test_maros_meszaros(load, variable, packed):
    out = io.BytesIO()
    content = {"q": np.ones(3), "r": 1.0, "A": sparse.csc_array(DENSE), "P": sparse.csc_array(DENSE.T)}
    matlab.savemat(out, content, do_compression=packed)
    expected = DENSE if variable == "A" else DENSE.T
    found = load(f"maros_meszaros/CONT-300_{variable}", "CONT-300.mat", out.getvalue(), expected, "stored")
    assert np.array_equal(dense(found), expected)


def saved_matlab(**arrays: Any) -> bytes:
    out = io.BytesIO()
    matlab.savemat(out, arrays)
    return out.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (saved_matlab(A=DENSE), "expected A to be a real sparse matrix"),
        (saved_matlab(A=sparse.csc_array(DENSE * 1j)), "expected A to be a real sparse matrix"),
        (saved_matlab(B=sparse.csc_array(DENSE)), "expected a matrix A, found none of this name"),
        (saved_matlab(A=sparse.csc_array(DENSE))[:-20], "a MATLAB file of version 5 with a sparse matrix A"),
        (b"x", "a MATLAB file of version 5 with a sparse matrix A"),
    ],
)
def test_maros_meszaros_refuses(load, content, message):
    with pytest.raises(DatasetError, match=message):
        load("maros_meszaros/UBH1_A", "UBH1.mat", content, DENSE)


CASE = b"""function mpc = case3
%% bus data
mpc.bus = [
\t10\t3\t0;
%\tcomment
\t7\t1\t0;
\t300\t1\t0;
];
mpc.gen = [
\t10\t0;
];
mpc.branch = [
\t10\t7\t0.1;
\t7\t10\t0.1;
\t7\t300\t0.1;
];
"""


def test_matpower(load):
    filled = np.array([[1, 1, 0], [1, 1, 1], [0, 1, 1]])
    expected = [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (2, 1), (2, 2)]
    assert pattern(load("matpower/case3", "case3.m", CASE, filled)) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CASE.replace(b"7\t300", b"7\t301"), "expected branches between buses of the case"),
        (CASE.replace(b"mpc.branch", b"mpc.other"), "a case of MATPOWER with mpc.bus and mpc.branch"),
        (CASE[:-3], "a case of MATPOWER"),
    ],
)
def test_matpower_refuses(load, text, message):
    with pytest.raises(DatasetError, match=message):
        load("matpower/case3", "case3.m", text, np.ones((3, 3)))


LAYERS = {"dlmc/rn50/x/0.5/a.smtx": b"2, 3, 3\n0 1 3\n2 0 1", "dlmc/rn50/x/0.5/b.smtx": b"1, 2, 1\n0 1\n0"}


def test_one_pass_over_dlmc_keeps_all_listed_layers(server, cache, list_origin, monkeypatch):
    monkeypatch.setattr("spmark.datasets.sources.dlmc.Dlmc.url", server.url + "dlmc.tar.gz")
    server.files["/dlmc.tar.gz"] = tarred(LAYERS)
    list_origin("dlmc/rn50/x/0.5/a", (2, 3, 3), "")
    list_origin("dlmc/rn50/x/0.5/b", (1, 2, 1), "")
    first = load_matrix(MatrixSpec(source="dlmc", name="rn50/x/0.5/a"), cache, 0)
    assert pattern(first.csr) == [(0, 2), (1, 0), (1, 1)]
    (cache.root / "downloads/dlmc/dlmc.tar.gz").unlink()
    server.files.clear()
    assert load_matrix(MatrixSpec(source="dlmc", name="rn50/x/0.5/b"), cache, 0).csr.shape == (1, 2)


def test_dlmc_has_layers_that_are_not_listed(server, cache, list_origin, monkeypatch):
    monkeypatch.setattr("spmark.datasets.sources.dlmc.Dlmc.url", server.url + "dlmc.tar.gz")
    server.files["/dlmc.tar.gz"] = tarred(LAYERS)
    list_origin("dlmc/rn50/x/0.5/a", (2, 3, 3), "")
    assert load_matrix(MatrixSpec(source="dlmc", name="rn50/x/0.5/b"), cache, 0).csr.shape == (1, 2)
    for name in ("rn50/x/0.5/c", "../x"):
        with pytest.raises(DatasetError, match=r"expected dlmc/.*\.smtx, found no such file"):
            load_matrix(MatrixSpec(source="dlmc", name=name), cache, 0)


def test_reddit(load):
    out = io.BytesIO()
    sparse.save_npz(out, sparse.coo_matrix(PATH))
    content = zipped({"reddit_graph.npz": out.getvalue(), "reddit_data.npz": b"x"})
    assert pattern(load("dgl/reddit", "reddit.zip", content, PATH)) == [(0, 1), (1, 0), (1, 2), (2, 1)]
