from __future__ import annotations

import numpy as np
import pytest
from relational import drawn, relational_matrices

from spmark.impls.core.errors import BuildError
from spmark.impls.core.relational import RelationalCsr
from spmark.impls.formats import limits
from spmark.impls.formats.relational_hyb import RelationalHyb


@pytest.mark.parametrize(("slots", "widest"), [(16, 16), (32, 16), (32, 1), (256, 4)])
@pytest.mark.parametrize("name", relational_matrices())
def test_round_trip(name: str, slots: int, widest: int) -> None:
    matrix = relational_matrices()[name]
    held = RelationalHyb.of(matrix, slots, widest)
    assert held.groups[:, 1].max(initial=1) <= widest
    row = held.rows[held.groups[:, 2, None] + np.arange(slots) // held.groups[:, 1, None]]
    real = held.positions >= 0
    relation = np.broadcast_to(held.groups[:, :1], real.shape)
    edges, shape = (relation[real], row[real], held.indices[real]), (matrix.num_rows, matrix.num_cols)
    back = RelationalCsr.of_edges(shape, held.relations, edges, matrix.wide.values[held.positions[real]])
    assert back.hash == matrix.hash
    np.testing.assert_array_equal(back.wide.values, matrix.wide.values)
    np.testing.assert_array_equal(np.sort(held.positions[held.positions >= 0]), np.arange(matrix.nnz))


@pytest.mark.parametrize("name", relational_matrices())
def test_a_group_is_of_one_relation_and_width_and_rows_are_as_wide_as_needed(name: str) -> None:
    matrix = relational_matrices()[name]
    held = RelationalHyb.of(matrix, 32)
    relation = matrix.edges[0]
    for (of, width, first, used), positions in zip(held.groups, held.positions, strict=True):
        assert width in (1, 2, 4, 8, 16)
        assert set(relation[positions[positions >= 0]]) == {of}
        counts = np.count_nonzero(positions.reshape(-1, width) >= 0, axis=1)
        rows = held.rows[first : first + 32 // width]
        assert (rows >= 0).tolist() == (counts > 0).tolist()
        assert used == width * np.count_nonzero(counts)
        edges = matrix.edges[1][matrix.edges[0] == of]
        lengths = np.bincount(edges, minlength=matrix.num_rows)[rows[rows >= 0]]
        assert (width >= np.minimum(lengths, 16)).all()
        assert (width < 2 * np.minimum(lengths, 16)).all()


def test_a_long_row_is_folded() -> None:
    matrix = RelationalCsr.of_edges((2, 50), 1, ([0] * 37, [1] * 37, range(37)))
    held = RelationalHyb.of(matrix, 16)
    assert held.groups[:, 1].tolist() == [16, 16, 16]
    assert held.rows.tolist() == [1, 1, 1]
    assert np.count_nonzero(held.positions >= 0, axis=1).tolist() == [16, 16, 5]
    assert held.padding == pytest.approx(48 / 37 - 1)


@pytest.mark.parametrize("slots", [0, 8, 24])
def test_other_slots_are_refused(slots: int) -> None:
    with pytest.raises(ValueError, match="expected slots as a power of two of at least 16"):
        RelationalHyb.of(relational_matrices()["one_edge"], slots)
    with pytest.raises(ValueError, match="expected widest out of"):
        RelationalHyb.of(relational_matrices()["one_edge"], 32, slots + 3)


def test_too_much_padding_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_STORED", 1000)
    with pytest.raises(BuildError, match=r"with 4 non-zeros: expected at most 1,000 stored elements, found 1,024"):
        RelationalHyb.of(RelationalCsr.of_edges((4, 4), 4, (range(4), range(4), range(4))), 256)


def test_order_of_edges_does_not_matter() -> None:
    matrix = drawn(20, 30, [40, 0, 25])
    order = np.random.default_rng(1).permutation(matrix.nnz)
    again = RelationalCsr.of_edges((20, 30), 3, tuple(each[order] for each in matrix.edges))
    one, other = RelationalHyb.of(matrix, 32), RelationalHyb.of(again, 32)
    for name in ("groups", "rows", "indices", "positions"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@pytest.mark.gpu
@pytest.mark.parametrize(("slots", "widest"), [(16, 16), (32, 4), (256, 1)])
@pytest.mark.parametrize("name", [*relational_matrices(), "hub"])
def test_a_gpu_lays_a_matrix_out_as_the_host_does(name: str, slots: int, widest: int) -> None:
    cupy = pytest.importorskip("cupy")
    matrix = {**relational_matrices(), "hub": drawn(60, 90, [120, 0, 7, 1, 40, 90], seed=4, hub=60)}[name]
    one, other = RelationalHyb.of(matrix, slots, widest, xp=cupy), RelationalHyb.of(matrix, slots, widest)
    for field in ("groups", "rows", "indices", "positions"):
        np.testing.assert_array_equal(cupy.asnumpy(getattr(one, field)), getattr(other, field), field, strict=True)
