"""Pieces of relations: every edge once, in a piece of its row, in a tile of its relation."""

from __future__ import annotations

import numpy as np
import pytest
from relational import drawn, relational_matrices

from spmark.impls.formats.relational_pieces import RelationalPieces

LARGE = drawn(500, 90, [300, 0, 7, 200, 40], seed=4, hub=60)
PIECES = 16


@pytest.mark.parametrize("longest", [1, 4, 64])
@pytest.mark.parametrize("name", [*relational_matrices(), "large"])
def test_edges_stand_where_kernels_look_for_them(name: str, longest: int) -> None:
    matrix = {**relational_matrices(), "large": LARGE}[name]
    held, (relation, rows, cols) = RelationalPieces.of(matrix, PIECES, longest), matrix.edges
    np.testing.assert_array_equal(np.sort(held.positions), np.arange(matrix.nnz))
    lengths = np.diff(held.starts)
    assert lengths.max(initial=0) <= longest
    np.testing.assert_array_equal(lengths.reshape(-1, PIECES) > 0, held.rows >= 0)
    piece = np.repeat(np.arange(lengths.size), lengths)
    np.testing.assert_array_equal(held.rows.reshape(-1)[piece], rows[held.positions])
    np.testing.assert_array_equal(held.relations[piece // PIECES], relation[held.positions])
    np.testing.assert_array_equal(held.indices, cols[held.positions])
    # Long pieces come first: of all tiles, and within one, where what fills it comes last.
    assert (np.diff(lengths.reshape(-1, PIECES)) <= 0).all()
    assert (np.diff(lengths.reshape(-1, PIECES).sum(axis=1)) <= 0).all()
    # No row has more pieces than its edges of each relation need, nor does a relation have more tiles.
    needed = -(-np.unique(np.stack([relation, rows]), axis=1, return_counts=True)[1] // longest)
    assert (held.rows >= 0).sum() == needed.sum()
    _, pieces = np.unique(held.relations[np.flatnonzero(held.rows.reshape(-1) >= 0) // PIECES], return_counts=True)
    assert held.relations.size == (-(-pieces // PIECES)).sum()
