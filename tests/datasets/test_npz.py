"""Files of SciPy: every layout gives the matrix that SciPy reads, and no array of a file ends the process."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from spmark.datasets.load import load_matrix
from spmark.datasets.sweep.model import MatrixSpec
from spmark.impls.core.errors import DatasetError, MatrixError
from spmark.impls.core.problem import Csr

INDPTR, INDICES = np.array([0, 2, 2, 3]), np.array([1, 3, 0])


def saved(tmp_path, **changes):
    arrays = {"indptr": INDPTR, "indices": INDICES, "data": np.ones(3), "shape": [3, 4], "format": b"csr", **changes}
    np.savez(tmp_path / "m.npz", **arrays)
    return MatrixSpec(source="npz", name=str(tmp_path / "m.npz"), values="stored")


PLACES = np.random.default_rng(5)
DRAWN = sparse.coo_array(
    (PLACES.integers(0, 9, 99), (PLACES.integers(0, 12, 99), PLACES.integers(0, 18, 99))), (12, 18)
)
"""Entries in no order; some places have several, and some entries are zero."""


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize(
    "made",
    [
        sparse.coo_array,
        lambda coo: sparse.csr_array((coo.data, coo.col, np.arange(0, 100, 11)), shape=(9, 18)),
        lambda coo: sparse.csc_array((coo.data[:90], coo.row[:90], np.arange(0, 91, 5)), shape=(12, 18)),
        lambda coo: sparse.csr_array(coo) @ sparse.csr_array(coo.T),
        lambda coo: sparse.bsr_array(coo, blocksize=(3, 2)),
        sparse.dia_array,
        lambda coo: sparse.dia_array((coo.data[:75].reshape(3, 25), [-2, 0, 30]), shape=(12, 18)),
        lambda coo: sparse.csr_matrix((12, 18), dtype=coo.dtype),
    ],
)
def test_whatever_scipy_saves_is_read_as_scipy_reads_it(tmp_path, cache, made, dtype):
    # Not by astype() of a COO, which may add entries of one place up.
    matrix = made(sparse.coo_array((DRAWN.data.astype(dtype), DRAWN.coords), DRAWN.shape))
    sparse.save_npz(tmp_path / "m.npz", matrix)
    read = load_matrix(MatrixSpec(source="npz", name=str(tmp_path / "m.npz"), values="stored"), cache, 0).csr
    assert read.hash == Csr.of(matrix).hash
    values = sparse.csr_array((read.values, read.indices, read.indptr), shape=read.shape)
    np.testing.assert_allclose(values.toarray(), matrix.toarray(), rtol=1e-6)


@pytest.mark.parametrize("layout", ["csr", "csc", "coo", "bsr", "dia"])
def test_arrays_of_machines_with_another_order_of_bytes(tmp_path, cache, layout):
    matrix = sparse.csr_array((np.arange(3.0), [3, 1, 0], [0, 2, 2, 3]), shape=(3, 4)).asformat(layout)
    sparse.save_npz(tmp_path / "m.npz", matrix)
    with np.load(tmp_path / "m.npz") as file:
        swapped = {name: array.astype(array.dtype.newbyteorder(">")) for name, array in file.items()}
    np.savez(tmp_path / "m.npz", **swapped)
    read = load_matrix(MatrixSpec(source="npz", name=str(tmp_path / "m.npz"), values="stored"), cache, 0).csr
    values = sparse.csr_array((read.values, read.indices, read.indptr), shape=read.shape)
    assert np.array_equal(values.toarray(), matrix.toarray())


def test_entries_of_one_place_are_added_up_as_numbers(tmp_path, cache):
    """The sum of two booleans is 2, and the sum of small integers does not wrap."""
    for data in (
        np.ones(3, bool),
        np.ones(3, np.float16),
        np.array([1, 1, 1], np.uint8),
        np.array([200, 200, 3], np.uint8),
    ):
        spec = saved(tmp_path, indices=np.array([3, 3, 0]), data=data)
        first, last = data.astype(float)[[0, 2]]
        assert load_matrix(spec, cache, 0).csr.values.tolist() == [2 * first, last]


FIRST = np.zeros(3, int)
CSC = {"format": b"csc", "indptr": np.array([0, 1, 2, 3, 3]), "indices": np.array([0, 2, 0])}
BSR = {"format": b"bsr", "shape": [4, 4], "indptr": np.array([0, 1, 2]), "indices": np.array([1, 0])}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"indices": np.array([3, 1, 0]), "data": np.ones(2)}, "csr matrix, found .*data should have the same size"),
        ({"indices": np.array([3, 1, 0]), "indptr": INDPTR[1:]}, "csr matrix, found .*index pointer size"),
        ({"indices": np.array([3, 1, 0]), "indptr": np.array([0, 3, 2, 3])}, "csr matrix, found: .*non-decreasing"),
        ({"format": b"csc"}, r"csc matrix, found .*index pointer size .*4.* should be .*5"),
        (CSC | {"indptr": np.array([0, 1, 2, 3, 9])}, "csc matrix, found .*Last value of index pointer"),
        (CSC | {"indptr": np.array([0, 1, 3, 2, 3])}, "csc matrix, found: .*non-decreasing"),
        (CSC | {"indices": np.array([0, 3, 0])}, "csc matrix, found: "),
        ({"format": b"coo", "row": INDICES[:2], "col": INDICES}, "coo matrix, found .*same length"),
        ({"format": b"coo", "row": INDICES / 2, "col": INDICES}, "integers in one dimension as row, found float64"),
        ({"format": b"coo", "row": INDICES[:, None], "col": INDICES}, r"as row, found int\d+ of shape \(3, 1\)"),
        ({"format": b"coo", "row": FIRST, "col": np.array([4, 0, 0])}, "coo matrix, found .*index 4 exceeds"),
        ({"format": b"coo", "row": FIRST, "col": np.array([2**63, 0, 0], np.uint64)}, "coo matrix, found .*negative"),
        ({"format": b"coo", "row": FIRST, "col": INDICES, "data": np.array(["a", "b", "c"])}, "real values, found <U1"),
        (BSR | {"data": np.ones((2, 2, 3))}, "bsr matrix, found: "),
        (BSR | {"data": np.ones((2, 2, 2)), "shape": [5, 4]}, r"sides do not divide \(5, 4\)"),
        (BSR | {"data": np.ones((2, 0, 2))}, "bsr matrix, found .*ZeroDivisionError"),
        (BSR | {"data": np.ones(2)}, "bsr matrix, found .*3-dimensional"),
        (BSR | {"data": np.ones((2, 2, 2)), "indices": np.array([2**62, 0])}, "bsr matrix, found: "),
        (BSR | {"data": np.ones((2, 2, 2)), "indices": np.array([0, -1])}, "bsr matrix, found: "),
        ({"format": b"dia", "offsets": np.arange(3), "data": np.ones((2, 4))}, "2 diagonals with 3 offsets"),
        ({"format": b"dia", "offsets": np.arange(3), "data": np.ones((4, 4))}, "4 diagonals with 3 offsets"),
        ({"format": b"dia", "offsets": np.zeros(2, int), "data": np.ones((2, 4))}, "dia matrix, found .*duplicate"),
    ],
)
def test_arrays_that_do_not_fit(tmp_path, cache, changes, message):
    with pytest.raises(MatrixError, match=rf"m\.npz: expected .*{message}"):
        load_matrix(saved(tmp_path, **changes), cache, 0)


def test_a_diagonal_far_outside_has_no_entry(tmp_path, cache):
    far = np.array([-(2**63), 2**63 - 1, 0])
    spec = saved(tmp_path, format=b"dia", offsets=far, data=np.ones((3, 4)))
    assert load_matrix(spec, cache, 0).csr.indices.tolist() == [0, 1, 2]


@pytest.mark.parametrize("layout", ["csr", "csc", "coo"])
def test_a_pattern_has_no_values_in_any_layout(tmp_path, cache, layout):
    matrix = sparse.csr_array((np.ones(4), [3, 1, 1, 0], [0, 3, 3, 4]), shape=(3, 4)).asformat(layout)
    sparse.save_npz(tmp_path / "m.npz", matrix)
    with np.load(tmp_path / "m.npz") as file:
        arrays = {name: array for name, array in file.items() if name != "data"}
    np.savez(tmp_path / "m.npz", **arrays)
    spec = MatrixSpec(source="npz", name=str(tmp_path / "m.npz"))
    assert load_matrix(spec, cache, 0).csr.indices.tolist() == [1, 3, 0]
    with pytest.raises(DatasetError, match="expected stored values, found a pattern"):
        load_matrix(spec.model_copy(update={"values": "stored"}), cache, 0)


def test_blocks_have_a_ceiling(tmp_path, cache, monkeypatch):
    """A byte of a block becomes a row and a column of eight bytes each."""
    block = {"indptr": np.array([0, 1]), "indices": np.array([0]), "data": np.ones((1, 1000, 1000), bool)}
    spec = saved(tmp_path, format=b"bsr", shape=[1000, 1000], **block)
    monkeypatch.setenv("SPMARK_MAX_MATRIX_GIB", "0.01")
    with pytest.raises(DatasetError, match=r"rows and columns of its elements to take at most 0\.01 GiB"):
        load_matrix(spec, cache, 0)
