"""A matrix that is read in a child: the same matrix, its errors, and a reader that is killed or wants all memory."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from spmark.datasets import loading_child
from spmark.datasets.cache import Cache
from spmark.datasets.load import load_matrix
from spmark.datasets.loading_child import load_in_child
from spmark.datasets.sweep.model import MatrixSpec
from spmark.impls.core.errors import DatasetError, MatrixError


@pytest.fixture
def own(tmp_path: Path) -> MatrixSpec:
    """Give a matrix of a person's own, by a relative path."""
    matrix = sparse.random_array((30, 20), density=0.2, format="csr", rng=np.random.default_rng(1))
    sparse.save_npz(tmp_path / "mine.npz", matrix)
    return MatrixSpec(source="npz", name="mine.npz", folder=str(tmp_path))


@pytest.mark.parametrize("changes", [{}, {"orientation": "AT"}, {"values": "stored"}])
def test_the_child_gives_what_this_process_loads(own: MatrixSpec, changes: dict[str, str]) -> None:
    spec = MatrixSpec.model_validate(own.model_dump() | changes)
    here, there = load_matrix(spec, Cache.default(), 3), load_in_child(spec, 3)
    assert there.csr.shape == here.csr.shape
    assert there.csr.hash == here.csr.hash
    assert np.array_equal(there.csr.values, here.csr.values)
    assert (there.kind, there.source_kind, there.spec) == (here.kind, here.source_kind, spec)


def test_errors_are_those_of_the_reader(own: MatrixSpec, tmp_path: Path) -> None:
    (tmp_path / "mine.npz").write_bytes(b"no zip")
    with pytest.raises(DatasetError, match=r"mine\.npz: expected a complete npz file"):
        load_in_child(own, 0)
    np.savez(tmp_path / "mine.npz", indptr=[0, 1], indices=[9], data=[1.0], shape=[1, 2])
    with pytest.raises(MatrixError, match=r"columns in \[0, 2\), found 9"):
        load_in_child(own, 0)


def test_a_reader_that_wants_more_memory_than_there_is(own: MatrixSpec, tmp_path: Path) -> None:
    sizes = "30000000 30000000 3\n1 1\n2 2\n3 3\n"
    (tmp_path / "wide.mtx").write_text(f"%%MatrixMarket matrix coordinate pattern general\n{sizes}")
    spec = MatrixSpec(source="matrix_market", name="wide.mtx", folder=str(tmp_path))
    code = (
        "import psutil, types; psutil.virtual_memory = lambda: types.SimpleNamespace(available=1 << 26)\n"
        "from spmark.datasets import loading_child; loading_child.main()"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loading_child, "_COMMAND", (sys.executable, "-c", code))
        with pytest.raises(DatasetError, match=r"wide\.mtx: expected a matrix that fits into 0\.0625 GiB of free"):
            load_in_child(spec, 0)
    assert load_in_child(spec, 0).csr.nnz == 3


@pytest.mark.parametrize(
    ("code", "told"), [("os.kill(os.getpid(), 11)", "killed by SIGSEGV"), ("exit(3)", "a failure")]
)
def test_a_killed_reader_is_an_error(own: MatrixSpec, monkeypatch: pytest.MonkeyPatch, code: str, told: str) -> None:
    monkeypatch.setattr(loading_child, "_COMMAND", (sys.executable, "-c", f"import os; {code}"))
    with pytest.raises(DatasetError, match=rf"mine\.npz: expected a matrix, found that its reader ended by {told}"):
        load_in_child(own, 0)


def test_a_formula_needs_no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading_child, "_COMMAND", ())
    assert load_in_child(MatrixSpec(source="patterns", name="logsparse_64"), 0).csr.num_rows == 64
