"""Down-sampling: the sites, their features, the limits, and that nothing depends on how a matrix is stored."""

from __future__ import annotations

import numpy as np
import pytest
from dash_fakes import random_csr
from scipy import sparse

from spmark.impls.core.problem import Csr, Problem
from spmark.impls.dash.sites import SIZES, STATISTICS, down_sample, sizes, statistics


def slow(matrix: Csr, cell: tuple[int, int]) -> dict[tuple[int, int], tuple[float, float, float]]:
    """Give the features of every active site, entry by entry."""
    counts: dict[tuple[int, int], list[float]] = {}
    entries = list(zip(matrix.rows_of_entries().tolist(), matrix.indices.tolist(), strict=True))
    seen = set(entries)
    pieces = {(row, col // cell[1]) for row, col in entries}
    for row, col in entries:
        one = counts.setdefault((row // cell[0], col // cell[1]), [0, 0])
        one[0] += 1
        one[1] += (row, col - 1) in seen
    places = cell[0] * cell[1]
    return {
        site: (
            np.log2(1 + count) / np.log2(1 + places),
            1 - sum((row // cell[0], col) == site for row, col in pieces) / count,
            beside / count,
        )
        for site, (count, beside) in counts.items()
    }


@pytest.mark.parametrize(
    ("shape", "max_sites", "max_side", "cell"),
    [
        ((40, 30), 1 << 14, 1 << 9, (1, 1)),
        ((40, 30), 1 << 14, 32, (2, 1)),
        ((40, 30), 50, 1 << 9, (8, 4)),
        ((33, 7), 20, 16, (8, 2)),
        ((5, 200), 40, 64, (1, 32)),
    ],
)
def test_sites_are_those_of_a_slow_count(shape, max_sites, max_side, cell):
    matrix = random_csr(3, shape, 0.2)
    found = down_sample(matrix, max_sites, max_side)
    assert found.cell == cell
    assert found.grid == tuple(-(-side // one) for side, one in zip(shape, cell, strict=True))
    assert len(found.rows) <= max_sites
    expected = slow(matrix, cell)
    places = list(zip(found.rows.tolist(), found.cols.tolist(), strict=True))
    assert places == sorted(expected)
    np.testing.assert_allclose(found.features, [expected[place] for place in places], rtol=1e-6)


@pytest.mark.parametrize("shape", [(1, 1), (7, 3), (1000, 1)])
def test_an_empty_matrix_has_no_sites(shape):
    empty = Csr.of(sparse.csr_array(shape, dtype=np.float32))
    assert len(down_sample(empty).rows) == 0
    assert np.isfinite(statistics(Problem("spmm", empty, 8))).all()


def test_sizes_and_statistics_by_hand():
    # Rows of 2, 0 and 1 non-zeros; columns of 1, 1, 1 and 0.
    matrix = Csr.checked((3, 4), [0, 2, 2, 3], [0, 1, 2], [1.0, 1.0, 1.0])
    problem = Problem("spmm", matrix, 15)
    np.testing.assert_allclose(sizes(problem), [2, np.log2(5), 2, 4])
    found = dict(zip(STATISTICS, statistics(problem), strict=True))
    assert list(found)[:4] == list(SIZES)
    assert found["avg_row"] == pytest.approx(1)
    assert found["max_row"] == pytest.approx(np.log2(3))
    assert found["std_row"] == pytest.approx(np.log2(1 + np.sqrt(2 / 3)))
    assert found["empty_rows"] == pytest.approx(1 / 3)
    assert found["max_col"] == pytest.approx(1)
    assert found["neighbours"] == pytest.approx(1 / 3)
