"""The description of an unrolled kernel: every entry once, every load before its use, no register reused early."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from problems import matrices, random_csr

from spmark.impls.core.errors import BuildError
from spmark.impls.lo_spmm.kernel import Ending, Tile, UnrolledKernel, make_tiles, steps
from spmark.impls.lo_spmm.reorder import deal_rows


def tiles_of(name: str, tile_rows: int) -> tuple[Tile, ...]:
    matrix = matrices()[name]
    return make_tiles(matrix, matrix.values, deal_rows(matrix, tile_rows))


@pytest.mark.parametrize("name", matrices())
def test_tiles_hold_the_matrix(name: str) -> None:
    matrix = matrices()[name]
    found = np.zeros(matrix.shape, np.float32)
    for tile in tiles_of(name, 5):
        cols = np.repeat(tile.cols, np.diff(tile.starts))
        assert np.unique(tile.cols).size == tile.nnc
        np.add.at(found, (tile.rows[tile.sums], cols), tile.values)
    expected = np.zeros(matrix.shape, np.float32)
    expected[matrix.rows_of_entries(), matrix.indices] = matrix.values
    np.testing.assert_array_equal(found, expected)
    assert sum(tile.nnz for tile in tiles_of(name, 5)) == matrix.nnz


@pytest.mark.parametrize("name", matrices())
def test_tiles_write_every_row_once(name: str) -> None:
    """Empty rows as constants, which are in nobody's sums."""
    matrix = matrices()[name]
    tiles = tiles_of(name, 5)
    written = np.concatenate([rows for tile in tiles for rows in (tile.rows, tile.empty)])
    np.testing.assert_array_equal(np.sort(written), np.arange(matrix.num_rows))
    empty = np.concatenate([tile.empty for tile in tiles])
    np.testing.assert_array_equal(np.sort(empty), np.flatnonzero(matrix.row_lengths == 0))


@pytest.mark.parametrize("prefetch", [1, 3, 8])
def test_steps_load_before_use_and_keep_what_is_needed(prefetch: int) -> None:
    for tile in tiles_of("lengths_of_warps", 3):
        held: dict[int, int] = {}
        loaded, entries = [], []
        for loads, column, span in steps(tile, prefetch):
            for position in loads:
                held[position % prefetch] = position
                loaded.append(position)
            assert held[column % prefetch] == column
            entries += list(span)
        assert loaded == list(range(tile.nnc))
        assert entries == list(range(tile.nnz))


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_weights_are_numbers(bad: float) -> None:
    matrix = random_csr(2, 4, [2, 1])
    values = matrix.values.copy()
    values[1] = bad
    with pytest.raises(BuildError, match=r"finite weights, found .* at position 1"):
        make_tiles(matrix, values, deal_rows(matrix, 2))


def test_digest_sees_everything() -> None:
    tiles = tiles_of("under_32_rows", 4)
    dispatch = np.arange(len(tiles), dtype=np.int32)
    other = replace(tiles[0], values=-tiles[0].values)
    fuller = replace(tiles[0], empty=np.array([6], np.int32))
    kernels = [
        UnrolledKernel(tiles, dispatch, 32),
        UnrolledKernel(tiles, dispatch[::-1].copy(), 32),
        UnrolledKernel(tiles, dispatch, 64),
        UnrolledKernel(tiles, dispatch, 32, 2),
        UnrolledKernel((other, *tiles[1:]), dispatch, 32),
        UnrolledKernel((fuller, *tiles[1:]), dispatch, 32),
        UnrolledKernel(tiles, dispatch, 32, ending=Ending(relu=True)),
    ]
    assert len({kernel.digest for kernel in kernels}) == len(kernels)
    assert UnrolledKernel(tiles_of("under_32_rows", 4), dispatch, 32).digest == kernels[0].digest
