"""The order of rows that puts those that share columns together."""

from __future__ import annotations

import numpy as np
import pytest
from problems import random_csr
from scipy import sparse

from spmark.impls.core.problem import Csr
from spmark.impls.formats.hyb import HybFormat
from spmark.impls.formats.nearness import near_positions


def _shuffled_communities(count: int, size: int, seed: int) -> tuple[Csr, np.ndarray]:
    """Give a graph of cliques whose vertices are dealt at random, and each vertex's clique."""
    rng = np.random.default_rng(seed)
    clique = rng.permutation(np.repeat(np.arange(count), size))
    dense = (clique[:, None] == clique[None, :]) & ~np.eye(clique.size, dtype=bool)
    found = sparse.csr_array(dense * rng.uniform(0.5, 1, dense.shape).astype(np.float32))
    found.sort_indices()
    return Csr.checked(found.shape, found.indptr, found.indices, found.data), clique


def test_it_is_a_permutation_and_brings_communities_together() -> None:
    matrix, clique = _shuffled_communities(12, 9, 3)
    positions = near_positions(matrix)
    assert sorted(positions) == list(range(matrix.num_rows))
    changes = np.count_nonzero(np.diff(clique[np.argsort(positions)]))
    assert changes == 11
    assert np.count_nonzero(np.diff(clique)) > 50


@pytest.mark.parametrize("lengths", [[0] * 7, [0, 3, 7, 1, 0, 2, 5], [7] * 7], ids=str)
def test_any_square_matrix_has_one(lengths: list[int]) -> None:
    assert sorted(near_positions(random_csr(7, 7, lengths))) == list(range(7))


def test_others_are_refused() -> None:
    with pytest.raises(ValueError, match="expected a square matrix, found 4 x 9"):
        near_positions(random_csr(4, 9, [1, 2, 3, 4]))


def test_rows_of_a_bucket_stand_in_that_order() -> None:
    matrix, _ = _shuffled_communities(5, 6, 8)
    positions = near_positions(matrix)
    held = HybFormat.from_csr(matrix, 1, 8, positions=positions)
    for bucket in held.buckets:
        rows = held.rows[bucket.first : bucket.first + bucket.count]
        assert np.all(np.diff(positions[rows[rows >= 0]]) > 0)
    back = held.to_csr()
    assert np.array_equal(back.indices, matrix.indices)
    assert np.array_equal(back.values, matrix.values)
