"""The output-stationary form of graphs: every edge once, under its relation, with the warp that owns its row."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from relational import drawn, relational_matrices

from spmark.impls.core.relational import RelationalCsr
from spmark.impls.formats.relational_sets import GROUP, RelationalSets

LARGE = drawn(500, 90, [300, 0, 7, 200, 40], seed=4, hub=60)


WARPS = 4


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("blocks", [1, 3, 1000])
@pytest.mark.parametrize("piece", [16, 64])
@pytest.mark.parametrize("name", [*relational_matrices(), "large"])
def test_edges_stand_where_kernels_look_for_them(name: str, piece: int, blocks: int, apart: bool) -> None:
    matrix = {**relational_matrices(), "large": LARGE}[name]
    held, (relation, rows, cols) = RelationalSets.of(matrix, piece, WARPS, blocks, apart=apart), matrix.edges
    real = held.positions >= 0
    edges = held.positions[real]
    np.testing.assert_array_equal(np.sort(edges), np.arange(matrix.nnz))
    block, warp = np.divmod(np.repeat(np.arange(held.chunk_starts.size - 1), np.diff(held.chunk_starts)), WARPS)
    step = held.bounds[block, 0] + held.chunk_steps
    part = (np.cumsum(held.ends) - held.ends)[step]  # those that ended before the step
    of = [np.broadcast_to(each[:, None], real.shape)[real] for each in (part * WARPS + warp, step)]
    np.testing.assert_array_equal(held.places.reshape(-1)[of[0] * GROUP + held.rows[real]], rows[edges])
    np.testing.assert_array_equal(held.steps[of[1]], relation[edges])
    np.testing.assert_array_equal(held.indices[real], cols[edges])
    assert (held.indices[~real] == -1).all()
    assert all((np.diff(own) >= 0).all() for own in np.split(held.chunk_steps, held.chunk_starts[1:-1]))
    # A row has a piece at least, and one of each part that its tile has; no piece is without edges.
    pieces = np.bincount(held.places[held.places >= 0], minlength=matrix.num_rows)
    assert (pieces >= -(-matrix.row_lengths // piece)).all()
    assert np.unique(of[0] * GROUP + held.rows[real]).size == pieces.sum()
    if apart:  # all edges of a piece have its relation
        keys = (of[0] * GROUP + held.rows[real]) * matrix.relations + relation[edges]
        assert np.unique(keys).size == pieces.sum()
    # A thread block begins where a part does.
    first_step, first_part = held.bounds.T
    np.testing.assert_array_equal(first_part, np.append(0, np.cumsum(held.ends))[first_step])
    assert first_part[-1] == len(held.places)
    assert (np.diff(first_part) > 0).all()
    assert len(held.bounds) - 1 <= blocks


def test_rows_with_the_same_relations_share_tiles() -> None:
    """Rows that have relations 2 g and 2 g + 1 of eight, in turns, take two steps of each tile."""
    rows = np.arange(1024)
    pair = rows % 4
    ends = np.repeat(2 * pair, 2) + np.tile([0, 1], rows.size), np.repeat(rows, 2), np.repeat(rows, 2)
    held = RelationalSets.of(RelationalCsr.of_edges((1024, 1024), 8, ends), 64, WARPS, 5, apart=False)
    assert held.steps.size == 2 * 1024 // (WARPS * GROUP)
    # Five thread blocks have 32 equal steps.
    assert set(np.diff(held.bounds[:, 0])) == {6, 7}


@pytest.mark.gpu
@pytest.mark.parametrize("apart", [False, True])
def test_a_gpu_lays_a_matrix_out_as_the_host_does(apart: bool) -> None:
    cupy = pytest.importorskip("cupy")
    held, other = (RelationalSets.of(LARGE, 64, WARPS, 7, apart=apart, xp=xp) for xp in (cupy, np))
    for field in fields(RelationalSets):
        np.testing.assert_array_equal(cupy.asnumpy(getattr(held, field.name)), getattr(other, field.name), field.name)
