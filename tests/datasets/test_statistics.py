"""Statistics against counting on the dense matrix."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from spmark.datasets.statistics import statistics
from spmark.impls.core.problem import Csr


def csr(dense):
    matrix = sparse.csr_array(dense.astype(np.float32))
    return Csr.checked(matrix.shape, matrix.indptr, matrix.indices, matrix.data)


def fill(dense, block):
    rows, cols = (-(-n // block) * block for n in dense.shape)
    padded = np.zeros((rows, cols), bool)
    padded[: dense.shape[0], : dense.shape[1]] = dense != 0
    blocks = padded.reshape(rows // block, block, cols // block, block).any(axis=(1, 3)).sum()
    return (dense != 0).sum() / (blocks * block * block) if blocks else 0


@given(st.integers(1, 70), st.integers(1, 70), st.floats(0, 1), st.integers(0, 2**16), st.booleans())
def test_against_dense(rows, cols, density, seed, mirrored):
    rng = np.random.default_rng(seed)
    dense = np.where(rng.random((rows, cols)) < density, rng.uniform(0.5, 1, (rows, cols)), 0)
    if mirrored and rows == cols:
        dense = np.maximum(dense, dense.T)
    lengths = (dense != 0).sum(axis=1)
    i, k = np.nonzero(dense)
    found = statistics(csr(dense))
    assert (found.num_rows, found.num_cols, found.nnz) == (rows, cols, i.size)
    assert found.density == pytest.approx(i.size / dense.size)
    assert (found.shortest_row, found.longest_row) == (lengths.min(), lengths.max())
    assert (found.mean_row, found.median_row) == (pytest.approx(lengths.mean()), np.median(lengths))
    assert found.std_row == pytest.approx(lengths.std())
    assert found.empty_rows == (lengths == 0).sum()
    assert found.used_cols == (dense != 0).any(axis=0).sum()
    assert found.bandwidth == (np.abs(i - k).max() if i.size else 0)
    assert found.self_loops == (np.count_nonzero(np.diagonal(dense)) if rows == cols else None)
    assert found.symmetric == (rows == cols and np.array_equal(dense != 0, dense.T != 0))
    assert found.block_fill_8 == pytest.approx(fill(dense, 8))
    assert found.block_fill_32 == pytest.approx(fill(dense, 32))
    differences = np.abs(lengths[:, None] - lengths[None, :]).sum()
    expected = differences / (2 * rows * lengths.sum()) if i.size else 0
    assert found.gini_row == pytest.approx(expected, abs=1e-9)
