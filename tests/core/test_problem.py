from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import matrices, random_csr
from scipy import sparse

from spmark.impls.core import problem as module
from spmark.impls.core.errors import MatrixError, SpmarkError
from spmark.impls.core.problem import Csr, DType, Op, Problem

# A 3 x 4 matrix with an empty row, and one change of it that a canonical CSR does not allow.
GOOD: dict[str, Any] = {
    "shape": (3, 4),
    "indptr": [0, 2, 2, 5],
    "indices": [1, 3, 0, 1, 2],
    "values": [0.5, -1.5, 2.0, 0.25, 3.0],
}
NAN, INF = float("nan"), float("inf")
BROKEN = {
    "no rows": ({"shape": (0, 4)}, "at least one row and one column, found shape 0 x 4"),
    "no columns": ({"shape": (3, 0)}, "at least one row and one column, found shape 3 x 0"),
    "no integer": ({"shape": (1.7, 4)}, "a shape of two integers and three arrays, found: 'float' object"),
    "infinite": ({"shape": (float("inf"), 4)}, "a shape of two integers and three arrays, found: 'float' object"),
    "text": ({"shape": "34"}, "a shape of two integers and three arrays, found: 'str' object"),
    "too many rows": ({"shape": (2**31, 4)}, r"at most 2\^31 - 1 .*, found 2147483648 x 4 with 5 non-zeros"),
    "short indptr": ({"indptr": [0, 2, 5]}, r"indptr of shape \(4,\), found \(3,\)"),
    "deep indptr": ({"indptr": [[0, 2, 2, 5]]}, r"indptr of shape \(4,\), found \(1, 4\)"),
    "deep indices": ({"indices": [[1, 3, 0, 1, 2]]}, r"indices of shape"),
    "short values": ({"values": [1.0]}, r"values of shape \(5,\), found \(1,\)"),
    "float indptr": ({"indptr": [0.0, 2.0, 2.0, 5.0]}, "integer indptr, found float64"),
    "float indices": ({"indices": [1.0, 3.0, 0.0, 1.0, 2.0]}, "integer indices, found float64"),
    "complex values": ({"values": [1j] * 5}, "real values, found complex128"),
    "text values": ({"values": ["a"] * 5}, "real values, found <U1"),
    "late start": ({"indptr": [1, 2, 2, 5]}, "indptr from 0 to nnz = 5, found 1 to 5"),
    "early end": ({"indptr": [0, 2, 2, 4]}, "indptr from 0 to nnz = 5, found 0 to 4"),
    "falling indptr": ({"indptr": [0, 4, 2, 5]}, "never to fall, found 4 then 2 at row 1"),
    "large column": ({"indices": [1, 4, 0, 1, 2]}, r"columns in \[0, 4\), found 4 in row 0 \(position 1\)"),
    "negative column": ({"indices": [1, 3, 0, -1, 2]}, r"columns in \[0, 4\), found -1 in row 2 \(position 3\)"),
    "duplicate": ({"indices": [1, 3, 0, 1, 1]}, r"found a duplicate in row 2: 1 then 1 \(position 4\)"),
    "unsorted": ({"indices": [3, 1, 0, 1, 2]}, r"found unsorted columns in row 0: 3 then 1 \(position 1\)"),
    "nan": ({"values": [0.5, -1.5, NAN, 0.25, 3.0]}, "finite values, found nan at position 2"),
    "infinity": ({"values": [0.5, -1.5, 2.0, 0.25, -INF]}, "finite values, found -inf at position 4"),
}


@pytest.mark.parametrize(("change", "message"), BROKEN.values(), ids=BROKEN)
def test_checked_refuses(change: dict[str, Any], message: str) -> None:
    with pytest.raises(MatrixError, match=message) as caught:
        Csr.checked(**{**GOOD, **change}, where="web/crawl")
    assert str(caught.value).startswith("web/crawl: expected")
    assert isinstance(caught.value, SpmarkError)


def test_checked_refuses_too_many_nonzeros() -> None:
    """No array of 2^31 elements is made: one element, repeated by a stride of 0."""
    many = np.broadcast_to(np.int8(0), (2**31,))
    with pytest.raises(MatrixError, match="1 x 1 with 2,147,483,648 non-zeros"):
        Csr.checked((1, 1), [0, 2**31], many, many)


def test_checked_allows_a_fall_between_rows_and_no_nonzeros() -> None:
    assert Csr.checked((2, 9), [0, 1, 2], [8, 0], [1.0, 2.0]).nnz == 2
    assert Csr.checked((2, 9), [0, 0, 0], np.zeros(0, int), []).nnz == 0


@pytest.mark.parametrize("at", [6, 7, 8, 9, 15, 16, 39])
def test_checked_finds_faults_at_the_edges_of_its_chunks(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHUNK", 8)
    good = np.arange(40)
    assert Csr.checked((1, 50), [0, 40], good, good).nnz == 40
    repeated = good.copy()
    repeated[at] = repeated[at - 1]
    with pytest.raises(MatrixError, match=rf"duplicate in row 0: {at - 1} then {at - 1} \(position {at}\)"):
        Csr.checked((1, 50), [0, 40], repeated, good)
    outside = good.copy()
    outside[at] = 50
    with pytest.raises(MatrixError, match=rf"found 50 in row 0 \(position {at}\)"):
        Csr.checked((1, 50), [0, 40], outside, good)
    values = good.astype(float)
    values[at] = np.nan
    with pytest.raises(MatrixError, match=rf"found nan at position {at}"):
        Csr.checked((1, 50), [0, 40], good, values)


@given(st.integers(0, 2**32), st.integers(1, 30), st.integers(1, 30), st.floats(0, 1))
def test_facts_of_a_matrix(seed: int, num_rows: int, num_cols: int, density: float) -> None:
    rng = np.random.default_rng(seed)
    pattern = rng.random((num_rows, num_cols)) < density
    matrix = random_csr(num_rows, num_cols, [0] * num_rows)
    rows, cols = np.nonzero(pattern)
    dense = np.zeros(pattern.shape, np.float32)
    dense[rows, cols] = rng.uniform(1, 2, rows.size)
    matrix = Csr.checked(pattern.shape, [0, *np.cumsum(pattern.sum(1))], cols, dense[rows, cols])
    assert matrix.row_lengths.tolist() == pattern.sum(1).tolist()
    assert matrix.used_cols == int(pattern.any(0).sum())
    assert matrix.rows_of_entries().tolist() == rows.tolist()
    flipped = matrix.transposed()
    Csr.checked(flipped.shape, flipped.indptr, flipped.indices, flipped.values)
    np.testing.assert_array_equal(
        sparse.csr_array((flipped.values, flipped.indices, flipped.indptr), shape=flipped.shape).toarray(), dense.T
    )


def test_hash_is_of_shape_and_pattern() -> None:
    matrix = Csr.checked(**GOOD)
    other_values = Csr.checked(**{**GOOD, "values": [9.0] * 5})
    wider = Csr.checked(**{**GOOD, "shape": (3, 5)})
    moved = Csr.checked(**{**GOOD, "indices": [1, 2, 0, 1, 2]})
    assert matrix.hash == other_values.hash
    assert len({matrix.hash, wider.hash, moved.hash}) == 3
    arrays = (np.array(GOOD[name], np.int32).tobytes() for name in ("indptr", "indices"))
    assert matrix.hash == hashlib.sha256(b"3x4" + b"".join(arrays)).hexdigest()


def test_problem_rounds_values_to_its_dtype() -> None:
    matrix = matrices()["wide"]
    assert Problem(Op.SPMM, matrix, 5).values is matrix.values
    half = Problem(Op.SPMM, matrix, 5, DType.FLOAT16).values
    assert half.dtype == np.float16
    np.testing.assert_array_equal(half, matrix.values.astype(np.float16))


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "dok", "lil"])
@pytest.mark.parametrize("make", [sparse.csr_array, sparse.csr_matrix])
def test_a_scipy_matrix_of_any_format_is_a_matrix(kind: str, make: Any) -> None:
    whole = matrices()["wide"]
    given = make((whole.values, whole.indices, whole.indptr), shape=whole.shape).asformat(kind)
    problem = Problem("spmm", given, np.int64(8), "float16")
    assert (problem.op, problem.dtype, problem.width) == (Op.SPMM, DType.FLOAT16, 8)
    assert problem.matrix.hash == whole.hash
    np.testing.assert_array_equal(problem.matrix.values, whole.values)


def test_a_scipy_matrix_is_put_in_order_and_left_as_it_was() -> None:
    given = sparse.csr_array(
        (np.array([1.0, 2.0, 4.0, 8.0]), np.array([2, 0, 2, 1]), np.array([0, 3, 4])), shape=(2, 3)
    )
    matrix = Problem("sddmm", given, 4).matrix
    assert (matrix.indptr.tolist(), matrix.indices.tolist()) == ([0, 2, 3], [0, 2, 1])
    assert matrix.values.tolist() == [2.0, 5.0, 8.0]
    assert given.indices.tolist() == [2, 0, 2, 1]


def test_a_value_beyond_float32_is_told_as_it_was() -> None:
    with pytest.raises(MatrixError, match=r"found 1e\+300 at position 1, which is beyond the range of float32"):
        Csr.checked((1, 2), [0, 2], [0, 1], [1.0, 1e300])


def _fall(matrix: Any) -> None:
    matrix.indptr[1] = 10**8


def _far(matrix: Any) -> None:
    (matrix.row if matrix.format == "coo" else matrix.indices)[0] = 10**8


def _short(matrix: Any) -> None:
    matrix.data = matrix.data[:1]


def _fractions(matrix: Any) -> None:
    matrix.indices = matrix.indices + 0.5


@pytest.mark.parametrize(
    ("kind", "harm", "words"),
    [
        ("csr", _fall, "indptr must be a non-decreasing sequence|index pointer values must form a non-decreasing"),
        ("csr", _far, "."),
        ("csr", _short, "indices and data should have the same size"),
        ("csr", _fractions, "indices of float64"),
        ("csc", _fall, "non-decreasing"),
        ("csc", _far, "."),
        ("csc", _short, "indices and data should have the same size"),
        ("bsr", _far, "."),
        ("coo", _far, "."),
        ("coo", _short, "."),
    ],
)
def test_illegal_arrays_are_refused_before_scipy_s_loops_trust_them(kind: str, harm: Any, words: str) -> None:
    """Without the check, SciPy reads and writes outside of the arrays, and the process may end."""
    whole = matrices()["wide"]
    given = sparse.csr_array((whole.values, whole.indices, whole.indptr), shape=whole.shape).asformat(kind, copy=True)
    assert given.has_canonical_format is not None  # SciPy keeps the answer, which no longer holds
    harm(given)
    with pytest.raises(MatrixError, match=f"web/crawl: expected legal arrays of a {kind} matrix, found: .*({words})"):
        Csr.of(given, "web/crawl")


def test_blocks_that_do_not_fill_the_shape_are_refused() -> None:
    """SciPy checks no more than the number of whole blocks, and leaves the other rows as it found the memory."""
    given = sparse.bsr_array((np.ones((2, 2, 2)), [0, 0], [0, 1, 2]), shape=(5, 4))
    with pytest.raises(MatrixError, match=r"blocks of shape \(2, 2\), whose sides do not divide \(5, 4\)"):
        Csr.of(given)


@pytest.mark.parametrize("dtype", ["float32", np.float32, np.dtype("float32"), DType.FLOAT32])
def test_a_dtype_may_be_given_in_any_of_the_usual_ways(dtype: Any) -> None:
    assert Problem(Op.SPMM, matrices()["wide"], 4, dtype).dtype is DType.FLOAT32


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"op": "spmv"}, "expected an operator out of spmm, sddmm, found 'spmv'"),
        ({"op": np.zeros(2)}, "expected an operator"),
        (
            {"matrix": np.eye(3)},
            r"a Csr or a SciPy sparse matrix .*, found a numpy.ndarray of shape \(3, 3\)",
        ),
        ({"matrix": sparse.coo_array(np.ones(3))}, r"two dimensions, found a scipy.*coo_array of shape \(3,\)"),
        ({"matrix": None}, "expected a Csr or a SciPy sparse matrix of two dimensions, found a builtins.NoneType"),
        ({"matrix": sparse.csr_array(np.eye(3) * 1j)}, "expected real values, found complex128"),
        ({"matrix": sparse.csr_array((0, 3))}, "expected at least one row and one column, found shape 0 x 3"),
        ({"dtype": "float64"}, "expected a dtype out of float32, float16, bfloat16, found 'float64'"),
        ({"dtype": None}, "expected a dtype out of float32, float16, bfloat16, found None"),
        ({"width": "64"}, "expected a width J of at least 1, found '64'"),
        ({"width": 6.4}, "expected a width J of at least 1, found 6.4"),
        ({"width": True}, "expected a width J of at least 1, found True"),
        ({"width": -3}, "expected a width J of at least 1, found -3"),
        ({"scaled": True}, "scaled only with sddmm"),
    ],
)
def test_anything_else_is_an_error_of_ours(arguments: dict[str, Any], words: str) -> None:
    good = {"op": Op.SPMM, "matrix": matrices()["wide"], "width": 4, "dtype": DType.FLOAT32}
    with pytest.raises(SpmarkError, match=words):
        Problem(**{**good, **arguments})


@pytest.mark.parametrize("rows", [[], [3], [4, 0, 4, 2], [4, 3, 2, 1, 0]], ids=str)
def test_the_matrix_of_some_rows(rows: list[int]) -> None:
    matrix = random_csr(5, 30, [7, 0, 1, 30, 4])
    some, at = matrix.of_rows(np.array(rows, np.int64))
    spans = [range(*matrix.indptr[row : row + 2]) for row in rows]
    assert at.tolist() == [entry for span in spans for entry in span]
    assert some.shape == (len(rows), 30)
    assert some.row_lengths.tolist() == [len(span) for span in spans]
    assert np.array_equal(some.indices, matrix.indices[at])
    assert np.array_equal(some.values, matrix.values[at])
