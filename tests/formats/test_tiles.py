"""Tiles hold the matrix bit for bit, where their docstrings say, and refuse selections that cannot be laid out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import assert_same, random_csr
from way_back import csr_of

from spmark.impls.core.errors import BuildError
from spmark.impls.core.problem import Csr
from spmark.impls.formats import limits
from spmark.impls.formats.tiles import BLOCK, ELL, GROUP, RUN, Selection, TileFormat


@st.composite
def csrs(draw: st.DrawFn) -> Csr:
    """Draw a matrix whose values hold zeros and a subnormal: padding must be told from them by position."""
    num_rows, num_cols = draw(st.integers(1, 40)), draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    most = draw(st.integers(0, num_cols))
    matrix = random_csr(num_rows, num_cols, rng.integers(0, most + 1, num_rows).tolist(), int(rng.integers(2**31)))
    values = matrix.values.copy()
    special = rng.random(values.size) < 0.3
    values[special] = rng.choice(np.array([0.0, -0.0, 1e-42], np.float32), int(special.sum()))
    return replace(matrix, values=values)


def drawn_selection(matrix: Csr, seed: int) -> Selection:
    """Give every row's non-zeros, at random, to blocks of two heights, ELL tiles of its own, and runs."""
    rng = np.random.default_rng(seed)
    row_of = np.repeat(np.arange(matrix.num_rows), matrix.row_lengths)
    order = rng.permutation(matrix.num_rows).astype(np.int32)
    window_rows, window_of = [], {}
    for height in (16, 8):
        padded = np.append(order, np.full(-order.size % height, -1, np.int32)).reshape(-1, height)
        place = np.empty(matrix.num_rows, np.int64)
        place[order] = np.arange(order.size) // height + sum(len(w) for w in window_rows)
        window_of[height] = place
        window_rows.append(np.pad(padded, ((0, 0), (0, 16 - height)), constant_values=-1))
    options = [(BLOCK, 16, 32), (BLOCK, 16, 16), (BLOCK, 8, 16), (ELL, 64, 4), (ELL, 64, 1), (RUN, 1, 32)]
    choice = rng.integers(0, len(options), matrix.nnz)
    keys = []
    for at, c in enumerate(choice):
        kind, height, width = options[c]
        keys.append((kind, height, width, int(window_of[height][row_of[at]]) if kind == BLOCK else -1, int(c)))
    tiles = sorted(set(keys))
    number = {key: i for i, key in enumerate(tiles)}
    columns = np.array(tiles, np.int32).reshape(-1, 5).T
    return Selection(
        np.array([number[key] for key in keys], np.int32),
        columns[0].astype(np.int8),
        columns[1],
        columns[2],
        columns[3],
        np.concatenate(window_rows),
    )


@given(csrs(), st.integers(0, 2**32))
def test_tiles(matrix: Csr, seed: int) -> None:
    selection = drawn_selection(matrix, seed)
    high = np.bincount(selection.owner, minlength=1).max(initial=0)
    selection = replace(selection, height=np.where(selection.kind == ELL, high, selection.height).astype(np.int32))
    held = TileFormat.from_csr(matrix, selection)
    assert_same(csr_of(held), matrix)
    assert held.shape == matrix.shape
    assert held.stored >= matrix.nnz
    parts = [*held.blocks.values(), *filter(None, (held.ell, held.runs)), held]
    arrays = [one for part in parts for one in vars(part).values() if isinstance(one, np.ndarray)]
    assert all(array.flags.c_contiguous for array in arrays)
    _assert_places(held, matrix)


def _assert_places(held: TileFormat, matrix: Csr) -> None:
    """Add up every stored element where the arrays say that it stands: that is A, zeros of padding included."""
    total = np.zeros(matrix.shape)
    rows_written: list[int] = []
    for height, part in held.blocks.items():
        panels = np.searchsorted(part.indptr, part.places // (height * GROUP), side="right") - 1
        used = np.zeros(part.rows.shape, np.bool_)
        used[panels, part.places // GROUP % height] = True
        np.testing.assert_array_equal(part.rows >= 0, used)  # a row of a window is written where it has something
        for p, rows in enumerate(part.rows):
            rows_written += rows[rows >= 0].tolist()
            for g in range(part.indptr[p], part.indptr[p + 1]):
                for r, row in enumerate(rows):
                    if row >= 0:
                        np.add.at(total[row], part.indices[g], part.values[g, r].astype(np.float64))
                    else:
                        assert not part.values[g, r].any()
            columns = part.indices[part.indptr[p] : part.indptr[p + 1]].reshape(-1)
            assert np.all(np.diff(columns) >= 0)
    if held.ell:
        slots = np.concatenate([np.full(b.count, b.width) for b in held.ell.buckets])
        ends = np.cumsum(slots)
        for row, length, end, width in zip(held.ell.rows, held.ell.lengths, ends, slots, strict=True):
            assert not held.ell.values[end - width + length : end].any()
            if row >= 0:
                rows_written.append(int(row))
                elements = slice(end - width, end)
                np.add.at(total[row], held.ell.indices[elements], held.ell.values[elements].astype(np.float64))
    if held.runs:
        np.add.at(total, (held.runs.rows, held.runs.indices), held.runs.values.astype(np.float64))
        for a, b in zip(held.runs.indptr[:-1], held.runs.indptr[1:], strict=True):
            rows_written += np.unique(held.runs.rows[a:b]).tolist()
    expected = np.zeros(matrix.shape)
    expected[np.repeat(np.arange(matrix.num_rows), matrix.row_lengths), matrix.indices] = matrix.values
    np.testing.assert_array_equal(total, expected)
    uses = np.bincount(rows_written, minlength=matrix.num_rows)
    for bucket in held.ell.buckets if held.ell else ():
        rows = held.ell.rows[bucket.first : bucket.first + bucket.count]
        assert np.all((uses[rows[rows >= 0]] > 1) == bucket.shared)  # else they are written whole


def _small() -> tuple[Csr, Selection]:
    matrix = Csr.checked((3, 4), [0, 2, 3, 4], [0, 3, 1, 2], [1.5, -2, 3, 0.5])
    one = np.array([1], np.int32)
    return matrix, Selection(
        np.zeros(4, np.int32), np.array([ELL], np.int8), 3 * one, 2 * one, -one, np.zeros((0, 1), np.int32)
    )


def test_an_ell_tile_by_hand() -> None:
    matrix, selection = _small()
    held = TileFormat.from_csr(matrix, selection)
    assert held.ell is not None
    assert held.ell.rows.tolist() == [0, 1, 2, -1]  # units of eight elements
    assert held.ell.indices.reshape(-1, 2).tolist() == [[0, 3], [1, -1], [2, -1], [-1, -1]]
    assert held.ell.values.reshape(-1, 2).tolist() == [[1.5, -2], [3, 0], [0.5, 0], [0, 0]]
    assert [(bucket.width, bucket.shared, bucket.count) for bucket in held.ell.buckets] == [(2, False, 4)]


def test_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_STORED", 5)
    with pytest.raises(BuildError, match="stored elements"):
        TileFormat.from_csr(*_small())
