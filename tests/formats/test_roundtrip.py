"""Every format holds exactly the matrix that it was made from, and holds it where its docstring says."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import assert_same, matrices, random_csr
from way_back import csr_of

from spmark.impls.core.errors import BuildError
from spmark.impls.core.problem import Csr
from spmark.impls.formats import limits
from spmark.impls.formats.bsr import BsrFormat, DbsrFormat, DenseBlocks, SrBcrsFormat

# Both zeros and a subnormal: padding must be told from values by position, and bits must survive.
VALUES = (0.0, -0.0, 1e-42, -1.5, 3.4e38)


@st.composite
def csrs(draw: st.DrawFn) -> Csr:
    num_rows, num_cols = draw(st.integers(1, 40)), draw(st.integers(1, 40))
    density = draw(st.sampled_from([0.0, 0.05, 0.3, 1.0]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    pattern = rng.random((num_rows, num_cols)) < density
    if draw(st.booleans()):
        pattern[rng.integers(num_rows)] = True
    if draw(st.booleans()):
        pattern[-1] = False
    rows, cols = np.nonzero(pattern)
    values = rng.standard_normal(rows.size).astype(np.float32)
    special = rng.random(rows.size) < 0.3
    values[special] = rng.choice(np.array(VALUES, np.float32), int(special.sum()))
    indptr = np.concatenate([[0], np.cumsum(pattern.sum(axis=1))])
    return Csr.checked((num_rows, num_cols), indptr, cols, values)


def assert_format(held: DenseBlocks, matrix: Csr) -> None:
    assert_same(csr_of(held), matrix)
    assert held.shape == matrix.shape
    assert held.stored >= matrix.nnz
    arrays = {name: one for name, one in vars(held).items() if isinstance(one, np.ndarray)}
    assert arrays
    for name, array in arrays.items():
        assert array.flags.c_contiguous
        assert array.dtype in (np.int32, np.float32), name


def entries(matrix: Csr) -> list[tuple[int, int, np.float32]]:
    """Walk the matrix in the slow, obvious way."""
    return [
        (row, int(matrix.indices[at]), matrix.values[at])
        for row in range(matrix.num_rows)
        for at in range(matrix.indptr[row], matrix.indptr[row + 1])
    ]


@given(csrs(), st.integers(1, 17), st.integers(1, 17))
def test_bsr(matrix: Csr, block_rows: int, block_cols: int) -> None:
    held = BsrFormat.from_csr(matrix, block_rows, block_cols)
    assert_format(held, matrix)
    blocks: dict[tuple[int, int], np.ndarray] = {}
    for row, col, value in entries(matrix):
        key = row // block_rows, col // block_cols
        block = blocks.setdefault(key, np.zeros((block_rows, block_cols), np.float32))
        block[row % block_rows, col % block_cols] = value
    expected = sorted(blocks)
    assert held.indptr.size == -(-matrix.num_rows // block_rows) + 1
    found = [
        (block_row, int(held.indices[at]))
        for block_row in range(held.indptr.size - 1)
        for at in range(held.indptr[block_row], held.indptr[block_row + 1])
    ]
    assert found == expected
    assert held.block_shape == (block_rows, block_cols)
    assert held.stored == len(expected) * block_rows * block_cols
    for at, key in enumerate(expected):
        np.testing.assert_array_equal(held.blocks[at].view(np.uint32), blocks[key].view(np.uint32))


@given(csrs(), st.integers(1, 17), st.integers(1, 17))
def test_dbsr(matrix: Csr, block_rows: int, block_cols: int) -> None:
    held = DbsrFormat.from_csr(matrix, block_rows, block_cols)
    assert_format(held, matrix)
    whole = BsrFormat.from_csr(matrix, block_rows, block_cols)
    expected = [row for row in range(whole.indptr.size - 1) if whole.indptr[row + 1] > whole.indptr[row]]
    assert held.rows.tolist() == expected
    assert held.indptr.size == len(expected) + 1
    for at, row in enumerate(expected):
        assert (held.indptr[at], held.indptr[at + 1]) == (whole.indptr[row], whole.indptr[row + 1])
    assert held.stored == whole.stored
    assert held.block_shape == (block_rows, block_cols)


@given(csrs(), st.integers(1, 17), st.integers(1, 17))
def test_srbcrs(matrix: Csr, t: int, g: int) -> None:
    held = SrBcrsFormat.from_csr(matrix, t, g)
    assert_format(held, matrix)
    panels: list[dict[int, np.ndarray]] = [{} for _ in range(-(-matrix.num_rows // t))]
    for row, col, value in entries(matrix):
        panels[row // t].setdefault(col, np.zeros(t, np.float32))[row % t] = value
    assert held.indptr.tolist() == np.cumsum([0, *(-(-len(panel) // g) for panel in panels)]).tolist()
    for number, panel in enumerate(panels):
        groups = slice(held.indptr[number], held.indptr[number + 1])
        indices = held.indices[groups].reshape(-1)
        tiles = held.blocks[groups].swapaxes(1, 2).reshape(-1, t)
        columns = sorted(panel)
        assert indices[: len(columns)].tolist() == columns
        assert set(indices[len(columns) :]) <= {columns[-1] if columns else None}
        for at, column in enumerate(columns):
            np.testing.assert_array_equal(tiles[at].view(np.uint32), panel[column].view(np.uint32))
        assert np.all(tiles[len(columns) :].view(np.uint32) == 0)
    assert held.block_shape == (t, g)
    assert held.stored == sum(-(-len(panel) // g) for panel in panels) * t * g


def test_bsr_refuses_what_padding_would_multiply() -> None:
    scattered = random_csr(30_000, 30_000, [8] * 30_000)
    tracemalloc.start()
    with pytest.raises(BuildError, match=r"bsr\(64, 64\).*at most 268,435,456.*found [\d,]+ \([\d,]+\.\d per"):
        BsrFormat.from_csr(scattered, 64, 64)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * scattered.nbytes


def test_bsr_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = matrices()["under_32_rows"]
    monkeypatch.setattr(limits, "MAX_STORED", 100)
    with pytest.raises(BuildError, match=r"bsr\(64, 128\) of a 7 x 47 matrix.*at most 100 .*found 8,192"):
        BsrFormat.from_csr(matrix, 64, 128)


def test_srbcrs_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = matrices()["under_32_rows"]
    monkeypatch.setattr(limits, "MAX_STORED", 400)
    with pytest.raises(BuildError, match=r"srbcrs\(8, 64\) of a 7 x 47 matrix.*at most 400 .*found 512"):
        SrBcrsFormat.from_csr(matrix, 8, 64)


def test_wide_block_columns_do_not_overflow() -> None:
    """Row times number of block columns passes 2^31 here."""
    num = 200_000
    indices = np.array([0, num - 1, num - 2], np.int32)
    indptr = np.zeros(num + 1, np.int32)
    indptr[1:] = 1
    indptr[-2:] = 2, 3
    matrix = Csr.checked((num, num), indptr, indices, np.array([1.5, -2.5, 3.5], np.float32))
    held = BsrFormat.from_csr(matrix, 1, 1)
    assert held.indices.tolist() == [0, num - 1, num - 2]
    assert_same(csr_of(held), matrix)
