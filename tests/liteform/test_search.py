"""Both searches against brute force over all caps."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from problems import random_csr

from spmark.impls.liteform.cost import costs, count
from spmark.impls.liteform.search import Method, search

RNG = np.random.default_rng(8)
MATRICES = [
    random_csr(40, 200, np.minimum(RNG.zipf(1.6, 40) * scale, 200).tolist()) for scale in (1, 1, 2, 3, 5, 8, 20)
]


@pytest.mark.parametrize("width", [1, 32, 512])
@pytest.mark.parametrize("partitions", [1, 2, 3])
@pytest.mark.parametrize("matrix", MATRICES, ids=range(len(MATRICES)))
def test_the_scan_equals_brute_force_over_all_caps(matrix, partitions: int, width: int) -> None:
    counts = count(matrix, partitions)
    table = costs(counts, width)
    tops = [range(int(top) + 1) for top in counts.widest]
    least = min(sum(table[p, cap] for p, cap in enumerate(caps)) for caps in itertools.product(*tops))
    found = search(table, counts.widest)
    assert found.cost == least
    assert table[np.arange(partitions), found.powers].sum() == least
    assert found.evaluated == sum(len(top) for top in tops)


@pytest.mark.parametrize("matrix", MATRICES, ids=range(len(MATRICES)))
def test_bisection_ends_where_the_next_cap_is_no_cheaper(matrix) -> None:
    counts = count(matrix, 2)
    table = costs(counts, 64)
    found = search(table, counts.widest, Method.BINARY)
    assert found.cost >= search(table, counts.widest).cost
    for line, power, top in zip(table, found.powers, counts.widest, strict=True):
        assert 0 <= power <= top
        # What algorithm 3 guarantees: nothing wider that it looked at is cheaper than the next narrower.
        assert power == top or line[power] <= line[power + 1]


def test_of_equal_costs_the_wider_cap_is_taken() -> None:
    line = np.full((1, 11), np.inf)
    line[0, :4] = [5, 2, 2, 3]
    assert search(line, np.array([3])).powers.tolist() == [2]
