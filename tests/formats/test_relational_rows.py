from __future__ import annotations

import numpy as np
import pytest
from relational import drawn, kernel_map, relational_matrices

from spmark.impls.core.relational import RelationalCsr
from spmark.impls.formats.relational_rows import GROUP, RelationalRows, why_not_rows

MATRICES = {
    "map": kernel_map(150),
    "one_edge": relational_matrices()["one_edge"],
    "no_edges": relational_matrices()["no_edges"],
    "all_of_32": RelationalCsr.of_edges((40, 9), 32, ([*range(32), 31], [7] * 32 + [39], [8] * 33)),
}


@pytest.mark.parametrize("tile", [64, 128])
@pytest.mark.parametrize("name", MATRICES)
def test_every_edge_is_held_once_and_every_row_has_one_place(name: str, tile: int) -> None:
    matrix = MATRICES[name]
    assert why_not_rows(matrix) is None
    held = RelationalRows.of(matrix, tile)
    relation, rows, cols = matrix.edges
    assert held.places.size % tile == 0
    np.testing.assert_array_equal(np.sort(held.places[held.places >= 0]), np.arange(matrix.num_rows))
    r, place = np.nonzero(held.positions >= 0)
    at = held.positions[r, place]
    np.testing.assert_array_equal(np.sort(at), np.arange(matrix.nnz))
    np.testing.assert_array_equal(relation[at], r)
    np.testing.assert_array_equal(rows[at], held.places[place])
    np.testing.assert_array_equal(cols[at], held.neighbours[r, place])
    assert ((held.neighbours >= 0) == (held.positions >= 0)).all()
    has = (held.neighbours >= 0).reshape(held.relations, -1, GROUP).any(axis=2)
    bits = (held.sets >> np.arange(held.relations, dtype=np.uint32)[:, None]) & 1
    np.testing.assert_array_equal(bits, has)


def test_tiles_with_many_relations_come_first() -> None:
    held = RelationalRows.of(kernel_map(500), 64)
    of_tile = (held.neighbours >= 0).reshape(27, -1, 64).any(axis=2).sum(axis=0)
    assert (np.diff(of_tile) <= 0).all()
    assert of_tile[0] > of_tile[-1]


def test_other_matrices_are_refused() -> None:
    assert why_not_rows(drawn(9, 9, [1] * 33)) == "expected at most 32 relations, found 33"
    twice = RelationalCsr.of_edges((4, 5), 3, ([0, 2, 2], [3, 3, 3], [1, 0, 4]))
    assert why_not_rows(twice) == "expected an edge of each relation and row, found several of relation 2 and row 3"
    across = RelationalCsr.of_edges((4, 5), 3, ([2, 2], [2, 3], [1, 0]))
    assert why_not_rows(across) is None
