"""Spy plots and histograms against loops that count one by one."""

from __future__ import annotations

import numpy as np
import pytest
from figure_texts import assert_readable
from scipy import sparse

from spmark.report.figures.composition import degree_histogram, spy, spy_counts
from spmark.report.figures.style import COLUMN_IN, WIDTH_IN


def random_csr(shape, density, seed=0):
    matrix = sparse.random_array(shape, density=density, format="csr", rng=np.random.default_rng(seed))
    matrix.sort_indices()
    return matrix


@pytest.mark.parametrize("shape", [(37, 53), (5, 400), (64, 64), (1, 1), (300, 7)])
def test_bins_hold_what_a_loop_counts(shape):
    matrix, most = random_csr(shape, 0.3), 16
    counts = spy_counts(shape, matrix.indptr, matrix.indices, most)
    expected = np.zeros((min(shape[0], most), min(shape[1], most)), np.int64)
    starts = [np.arange(bins + 1) * length // bins for length, bins in zip(shape, expected.shape, strict=True)]
    for row, col in zip(*matrix.nonzero(), strict=True):
        expected[np.searchsorted(starts[0], row, "right") - 1, np.searchsorted(starts[1], col, "right") - 1] += 1
    assert np.array_equal(counts, expected)


def test_an_empty_matrix_is_white():
    counts = spy_counts((9, 4), np.zeros(10, np.int32), np.empty(0, np.int32))
    assert counts.shape == (9, 4)
    assert not counts.any()
    plot = spy(counts, (9, 4))
    assert plot.data.empty
    assert plot.finding == "0 of all cells are non-zero, and 100% of the bins are empty."


def test_a_spy_plot_keeps_the_counts_with_their_ranges():
    matrix = random_csr((50, 20), 0.2)
    data = spy(spy_counts(matrix.shape, matrix.indptr, matrix.indices, 8), matrix.shape).data
    assert data["nnz"].sum() == matrix.nnz
    first = data.iloc[0]
    dense = matrix.toarray()[first["row"] : first["row_end"], first["col"] : first["col_end"]]
    assert np.count_nonzero(dense) == first["nnz"]


@pytest.mark.parametrize("width_in", [WIDTH_IN, COLUMN_IN])
@pytest.mark.parametrize("shape", [(3_000, 2_000), (100, 3_000_000)])
def test_texts_stay_apart(shape, width_in):
    counts = np.arange(48).reshape(6, 8)
    assert_readable(spy(counts, shape, width_in).figure)
    lengths = np.array([0, 1, 3, 70_000])
    plot = degree_histogram(lengths, lengths[1:], width_in)
    assert_readable(plot.figure)
    row, column = (f"The longest {one} has 70,000 non-zeros, the median one" for one in ("row", "column"))
    assert plot.finding == f"{row} 2. {column} 3."
