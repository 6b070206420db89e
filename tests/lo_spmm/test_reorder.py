"""Algorithm 1 against itself written with sets, and what it is for."""

from __future__ import annotations

import numpy as np
import pytest
from problems import matrices, random_csr

from spmark.datasets.cache import Cache
from spmark.datasets.load import load_matrix
from spmark.datasets.sweep.model import MatrixSpec
from spmark.impls.core.problem import Csr
from spmark.impls.lo_spmm.kernel import make_tiles
from spmark.impls.lo_spmm.reorder import Reordering, deal_empty_rows, deal_rows


def count_tiles(matrix: Csr, dealt: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Give the non-zeros and the loads of tiles."""
    tiles = make_tiles(matrix, matrix.values, dealt)
    return np.array([tile.nnz for tile in tiles]), np.array([tile.nnc for tile in tiles])


def slowly(matrix: Csr, tile_rows: int) -> list[list[int]]:
    """Algorithm 1, line by line."""
    lengths = matrix.row_lengths
    rows = sorted(np.flatnonzero(lengths).tolist(), key=lambda row: (lengths[row], row))
    count = -(-len(rows) // tile_rows)
    most = matrix.nnz / count if count else 0
    tiles: list[list[int]] = [[] for _ in range(count)]
    columns: list[set[int]] = [set() for _ in range(count)]
    for row in rows:
        own = set(matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]].tolist())
        chosen = None
        for tile in sorted(range(count), key=lambda tile: (len(columns[tile] | own), tile)):
            if len(tiles[tile]) < tile_rows:
                chosen = tile if chosen is None else chosen
                if sum(lengths[r] for r in tiles[tile]) < most:
                    chosen = tile
                    break
        assert chosen is not None
        tiles[chosen].append(row)
        columns[chosen] |= own
    return [sorted(tile) for tile in tiles]


@pytest.mark.parametrize("tile_rows", [1, 3, 8, 64])
@pytest.mark.parametrize("name", matrices())
def test_as_algorithm_1(name: str, tile_rows: int) -> None:
    matrix = matrices()[name]
    assert [tile.tolist() for tile in deal_rows(matrix, tile_rows)] == slowly(matrix, tile_rows)


@pytest.mark.parametrize("order", Reordering)
@pytest.mark.parametrize("name", ["empty_rows", "under_32_rows", "one_by_one"])
def test_every_row_with_entries_is_in_one_tile(order: Reordering, name: str) -> None:
    if order is Reordering.HYPERGRAPH:
        pytest.importorskip("mtkahypar")
    matrix = matrices()[name]
    tiles = deal_rows(matrix, 4, order)
    assert all(0 < tile.size <= 4 for tile in tiles)
    np.testing.assert_array_equal(np.sort(np.concatenate(tiles)), np.flatnonzero(matrix.row_lengths))


@pytest.mark.parametrize(
    ("full", "empty", "tile_rows", "tiles", "most"),
    [
        (40, 10, 4, 10, 1),
        (40, 60, 4, 10, 6),
        (4, 0, 4, 1, 0),
        (64, 50, 64, 1, 50),
        (1, 300, 4, 3, 100),
        (0, 9, 4, 1, 9),
    ],
)
def test_empty_rows_are_spread_evenly(full: int, empty: int, tile_rows: int, tiles: int, most: int) -> None:
    """On top of the rows of tiles that are there, and by tiles of their own where these have no room."""
    lengths = np.random.default_rng(0).permutation([2] * full + [0] * empty)
    matrix = random_csr(full + empty, 30, lengths.tolist())
    dealt = deal_rows(matrix, tile_rows)
    found = deal_empty_rows(matrix, dealt)
    assert len(found) == tiles >= len(dealt)
    np.testing.assert_array_equal(np.concatenate(found), np.flatnonzero(lengths == 0))
    assert max(rows.size for rows in found) == most
    assert max(rows.size for rows in found) - min(rows.size for rows in found) <= 1


def similar_blocks(similarity: float, block_rows: int = 16, blocks: int = 16, cols: int = 512) -> Csr:
    """The matrix of figure 6, smaller: block i + blocks / 2 repeats that share of the places of block i's rows."""
    rng = np.random.default_rng(5)
    nnz = 10
    half = [np.sort(rng.choice(cols, nnz, replace=False)) for _ in range(block_rows * blocks // 2)]
    kept = round(similarity * nnz)
    other = [
        np.sort(
            np.append(rng.permutation(row)[:kept], rng.choice(np.setdiff1d(np.arange(cols), row), nnz - kept, False))
        )
        for row in half
    ]
    rows = half + other
    values = rng.uniform(0.5, 1, nnz * len(rows)).astype(np.float32)
    return Csr.checked((len(rows), cols), np.arange(len(rows) + 1) * nnz, np.concatenate(rows), values)


@pytest.mark.parametrize(
    ("similarity", "ratio", "greedy", "plain"),
    [(0.0, 1.0, 13_771, 15_581), (0.6, 3.0, 12_554, 14_771), (0.9, 1.0, 9_505, 15_578)],
)
def test_loads_of_figure_6_s_matrix(similarity: float, ratio: float, greedy: int, plain: int) -> None:
    """Its full size; the sums that docs/notes/lo_spmm.md tells."""
    spec = MatrixSpec(source="patterns", name="similar_1024", args={"similarity": similarity, "ratio": ratio})
    matrix = load_matrix(spec, Cache.default(), 0).csr
    nnz, nnc = count_tiles(matrix, deal_rows(matrix, 32))
    assert int(nnc.sum()) == greedy
    assert nnz.std() / nnz.mean() < 0.05
    assert int(count_tiles(matrix, deal_rows(matrix, 32, Reordering.NONE))[1].sum()) == plain


def test_a_partitioner_finds_rows_that_are_alike() -> None:
    pytest.importorskip("mtkahypar")
    matrix = similar_blocks(0.9)
    tiles = deal_rows(matrix, 16, Reordering.HYPERGRAPH)
    assert [tile.tolist() for tile in tiles] == [tile.tolist() for tile in deal_rows(matrix, 16, Reordering.HYPERGRAPH)]
    assert all(tile.size <= 16 for tile in tiles)
    _, nnc = count_tiles(matrix, tiles)
    _, plain = count_tiles(matrix, deal_rows(matrix, 16, Reordering.NONE))
    assert nnc.sum() < 0.8 * plain.sum()
