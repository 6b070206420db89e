"""The order of rows that puts those together which share columns."""

from __future__ import annotations

import numpy as np
import pytest
from problems import matrices, random_csr
from scipy import sparse

from spmark.impls.core.problem import Csr
from spmark.impls.formats import nearness
from spmark.impls.formats.nearness import WINDOW, distinct_share, near_order

RNG = np.random.default_rng(12)


def cliques(count: int, size: int, seed: int) -> tuple[Csr, np.ndarray]:
    """Give a graph of cliques whose vertices are dealt at random, and each vertex's clique."""
    rng = np.random.default_rng(seed)
    clique = rng.permutation(np.repeat(np.arange(count), size))
    dense = (clique[:, None] == clique[None, :]) & ~np.eye(clique.size, dtype=bool)
    found = sparse.csr_array(dense * rng.uniform(0.5, 1, dense.shape).astype(np.float32))
    found.sort_indices()
    return Csr.checked(found.shape, found.indptr, found.indices, found.data), clique


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


@pytest.fixture(params=["small", "large"])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Take every matrix for a large one, in which the votes are few and dealt out, or as it is."""
    if request.param == "large":
        monkeypatch.setattr(nearness, "_FEW", -1)
    return str(request.param)


@pytest.mark.parametrize("name", matrices())
@pytest.mark.usefixtures("size")
def test_it_is_a_permutation_and_always_the_same(name: str) -> None:
    matrix = matrices()[name]
    order = near_order(matrix)
    assert order.rows.dtype == order.positions.dtype == np.int32
    assert np.array_equal(np.sort(order.rows), np.arange(matrix.num_rows))
    assert np.array_equal(order.rows[order.positions], np.arange(matrix.num_rows))
    assert np.array_equal(near_order(matrix).rows, order.rows)


def test_cliques_stand_together() -> None:
    matrix, clique = cliques(12, 9, 3)
    changes = np.count_nonzero(np.diff(clique[near_order(matrix).rows]))
    assert changes == 11
    assert np.count_nonzero(np.diff(clique)) > 50


@pytest.mark.usefixtures("size")
def test_hidden_communities_stand_together() -> None:
    matrix = communities()
    order = near_order(matrix)
    assert distinct_share(matrix, order) < 0.5 * distinct_share(matrix)
    # Numbered group by group there is little to find.
    tidy = communities(shuffled=False)
    assert distinct_share(tidy, near_order(tidy)) > 0.8 * distinct_share(tidy)


@pytest.mark.usefixtures("size")
def test_it_does_not_depend_on_how_many_cores_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = communities(40, 50)
    alone = near_order(matrix).rows
    bounds = np.array([0, 1, 700, 701, 2000])
    monkeypatch.setattr(nearness, "equal_shares", lambda indptr: bounds)
    assert np.array_equal(near_order(matrix).rows, alone)


def test_rows_that_share_columns_of_a_rectangle_stand_together() -> None:
    first, second = np.arange(0, 12), np.arange(5000, 5012)
    rows = [first if row % 2 else second for row in range(64)]
    matrix = Csr.checked((64, 6000), np.arange(65) * 12, np.concatenate(rows), RNG.uniform(0.5, 1, 64 * 12))
    assert sorted(set((near_order(matrix).rows[:32] % 2).tolist())) in ([0], [1])


def test_the_share_is_that_of_a_slow_count() -> None:
    matrix = random_csr(200, 90, RNG.integers(0, 30, 200).tolist())
    rows = [row for row in near_order(matrix).rows.tolist() if matrix.row_lengths[row]]
    distinct = total = 0
    for begin in range(0, len(rows) // WINDOW * WINDOW, WINDOW):
        columns = [
            column
            for row in rows[begin : begin + WINDOW]
            for column in matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]].tolist()
        ]
        distinct, total = distinct + len(set(columns)), total + len(columns)
    assert distinct_share(matrix, near_order(matrix)) == distinct / total
    assert distinct_share(matrices()["no_nonzeros"]) == 1.0
