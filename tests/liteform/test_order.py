"""The order that puts rows together which share columns."""

from __future__ import annotations

import numpy as np
import pytest
from problems import matrices, random_csr

from spmark.impls.core.problem import Csr
from spmark.impls.formats.cell import CellFormat, cell_layout
from spmark.impls.formats.hyb import HybFormat
from spmark.impls.liteform.order import WINDOW, distinct_share, gathered

RNG = np.random.default_rng(12)


def communities(groups: int = 20, members: int = 40, shuffled: bool = True) -> Csr:
    """Draw a graph whose vertices know only those of their own group, numbered at random."""
    count = groups * members
    place = RNG.permutation(count) if shuffled else np.arange(count)
    columns: list[list[int]] = [[] for _ in range(count)]
    for vertex in range(count):
        others = vertex // members * members + RNG.choice(members, 12, replace=False)
        columns[place[vertex]] = sorted(place[others].tolist())
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in columns])])
    indices = np.concatenate(columns)
    return Csr.checked((count, count), indptr, indices, RNG.uniform(0.5, 1, indices.size))


@pytest.mark.parametrize("name", matrices())
def test_it_is_a_permutation_and_always_the_same(name: str) -> None:
    matrix = matrices()[name]
    order = gathered(matrix)
    assert np.array_equal(np.sort(order.rows), np.arange(matrix.num_rows))
    assert np.array_equal(order.rows[order.positions], np.arange(matrix.num_rows))
    assert np.array_equal(gathered(matrix).rows, order.rows)


def test_hidden_communities_stand_together() -> None:
    matrix = communities()
    order = gathered(matrix)
    assert distinct_share(matrix, order) < 0.5 * distinct_share(matrix)
    # Numbered group by group there is little to find.
    tidy = communities(shuffled=False)
    assert distinct_share(tidy, gathered(tidy)) > 0.8 * distinct_share(tidy)


def test_rows_that_share_columns_of_a_rectangle_stand_together() -> None:
    first, second = np.arange(0, 12), np.arange(5000, 5012)
    rows = [first if row % 2 else second for row in range(64)]
    matrix = Csr.checked((64, 6000), np.arange(65) * 12, np.concatenate(rows), RNG.uniform(0.5, 1, 64 * 12))
    assert sorted(set((gathered(matrix).rows[:32] % 2).tolist())) in ([0], [1])


def test_the_share_is_that_of_a_slow_count() -> None:
    matrix = random_csr(200, 90, RNG.integers(0, 30, 200).tolist())
    rows = [row for row in gathered(matrix).rows.tolist() if matrix.row_lengths[row]]
    distinct = total = 0
    for begin in range(0, len(rows) // WINDOW * WINDOW, WINDOW):
        columns = [
            column
            for row in rows[begin : begin + WINDOW]
            for column in matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]].tolist()
        ]
        distinct, total = distinct + len(set(columns)), total + len(columns)
    assert distinct_share(matrix, gathered(matrix)) == distinct / total
    assert distinct_share(matrices()["no_nonzeros"]) == 1.0


@pytest.mark.parametrize("widths", [(16,), (4, 8, 2)], ids=str)
def test_cell_in_another_order_is_the_same_matrix(widths: tuple[int, ...]) -> None:
    matrix = communities(4, 30)
    order = gathered(matrix)
    layout = cell_layout(matrix, widths, order=order.rows)
    back = HybFormat.from_layout(matrix, layout).to_csr()
    assert all(np.array_equal(getattr(back, name), getattr(matrix, name)) for name in ("indptr", "indices", "values"))
    assert layout.stored == CellFormat.from_csr(matrix, widths, tail_in_last=True).stored or layout.stored <= (
        CellFormat.from_csr(matrix, widths).stored
    )
    for bucket in layout.buckets:
        rows = layout.rows[bucket.first : bucket.first + bucket.count]
        assert (np.diff(order.positions[rows[rows >= 0]]) >= 0).all()
