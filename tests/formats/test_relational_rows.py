from __future__ import annotations

import numpy as np
import pytest
from relational import drawn, kernel_map, relational_matrices

from spmark.impls.core import voxels
from spmark.impls.core.relational import RelationalCsr
from spmark.impls.formats.relational_rows import GROUP, RelationalRows, why_not_rows

MATRICES = {
    "map": kernel_map(150),
    "one_edge": relational_matrices()["one_edge"],
    "no_edges": relational_matrices()["no_edges"],
    "all_of_32": RelationalCsr.of_edges((40, 9), 32, ([*range(32), 31], [7] * 32 + [39], [8] * 33)),
}


@pytest.mark.parametrize("splits", [1, 3, 4])
@pytest.mark.parametrize("tile", [64, 128])
@pytest.mark.parametrize("name", MATRICES)
def test_every_edge_is_held_once_and_every_row_has_a_place(name: str, tile: int, splits: int) -> None:
    matrix = MATRICES[name]
    assert why_not_rows(matrix) is None
    held = RelationalRows.of(matrix, tile, splits)
    relation, rows, cols = matrix.edges
    tile_of = np.repeat(np.arange(len(held.places)), np.diff(held.starts))
    assert tile_of.size == len(held.steps) == len(held.neighbours)
    step, place = np.nonzero(held.positions >= 0)
    at = held.positions[step, place]
    np.testing.assert_array_equal(np.sort(at), np.arange(matrix.nnz))
    np.testing.assert_array_equal(relation[at], held.steps[step, 0])
    np.testing.assert_array_equal(rows[at], held.places[tile_of[step], place])
    np.testing.assert_array_equal(cols[at], held.neighbours[step, place])
    assert ((held.neighbours >= 0) == (held.positions >= 0)).all()
    has = (held.neighbours >= 0).reshape(len(held.steps), tile // GROUP, GROUP).any(axis=2)
    np.testing.assert_array_equal(held.steps[:, 1, None] >> np.arange(tile // GROUP) & 1, has)
    assert has.any(axis=1).all()
    assert ((np.diff(held.steps[:, 0]) > 0) | (np.diff(tile_of) > 0)).all()
    # A row has a place for each group of relations that it has.
    by_count = np.argsort(-np.bincount(relation, minlength=matrix.relations), kind="stable")
    groups = np.array_split(by_count, splits)
    edges = np.zeros((matrix.num_rows, matrix.relations), bool)
    edges[rows, relation] = True
    wanted = sum(edges[:, group].any(axis=1).astype(int) for group in groups)
    np.testing.assert_array_equal(np.bincount(held.places[held.places >= 0], minlength=matrix.num_rows), wanted)


def test_tiles_with_many_steps_come_first_and_groups_have_fewer() -> None:
    counts = {splits: np.diff(RelationalRows.of(kernel_map(500), 64, splits).starts) for splits in (1, 3)}
    assert all((np.diff(count) <= 0).all() and count[0] > count[-1] for count in counts.values())
    assert counts[3][0] <= 9 < counts[1][0]


def test_tiles_are_dealt_by_their_steps() -> None:
    held = RelationalRows.of(kernel_map(500), 64, 3)
    dealt, first = held.dealt(4)
    assert first[0] == 0 and first[-1] == len(held.places) > first.size
    steps = dealt.starts[first]
    assert np.ptp(np.diff(steps)) <= np.diff(held.starts).max()
    # Each tile is there once with the steps that it had.
    before, after = ({tuple(one.places[i]): i for i in range(len(one.places))} for one in (held, dealt))
    assert before.keys() == after.keys()
    for rows, tile in after.items():
        was = before[rows]
        for name in ("steps", "neighbours", "positions"):
            mine, theirs = (
                getattr(one, name)[one.starts[i] : one.starts[i + 1]] for one, i in ((dealt, tile), (held, was))
            )
            np.testing.assert_array_equal(mine, theirs)
    alone, first = held.dealt(1000)
    np.testing.assert_array_equal(first, np.arange(len(held.places) + 1))
    np.testing.assert_array_equal(alone.steps, held.steps)


def test_splitting_leaves_less_padding() -> None:
    """Voxels of a rough surface have many sets of neighbours, and few of them within a group of nine."""
    rng = np.random.default_rng(0)
    place = rng.permutation(120 * 120)[:5000]
    surface = np.stack([place // 120, place % 120, rng.integers(0, 3, place.size)], axis=1).astype(np.int32)
    matrix = voxels.kernel_map(surface, surface)
    whole, split = (RelationalRows.of(matrix, 64, splits).stored / matrix.nnz for splits in (1, 3))
    assert split < 0.6 * whole


def test_other_matrices_are_refused() -> None:
    assert why_not_rows(drawn(9, 9, [1] * 33)) == "expected at most 32 relations, found 33"
    twice = RelationalCsr.of_edges((4, 5), 3, ([0, 2, 2], [3, 3, 3], [1, 0, 4]))
    assert why_not_rows(twice) == "expected an edge of each relation and row, found several of relation 2 and row 3"
    across = RelationalCsr.of_edges((4, 5), 3, ([2, 2], [2, 3], [1, 0]))
    assert why_not_rows(across) is None
