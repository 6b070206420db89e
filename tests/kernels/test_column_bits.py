"""Counts of distinct columns where the matrix is are those of a slow count with sets."""

from __future__ import annotations

import numpy as np
import pytest
from problems import matrices, random_csr

from spmark.impls.core.problem import Csr
from spmark.impls.kernels.column_bits import POWERS, ColumnBits
from spmark.impls.runtime.device import find
from spmark.impls.runtime.target import ceil_div, open_target

RNG = np.random.default_rng(7)
SAMPLES = {
    **matrices(),
    "long_rows": random_csr(12, 3000, [2600, 1025, 1024, 1023, 513, 512, 33, 32, 31, 2, 1, 0]),
    "many_rows": random_csr(700, 333, RNG.integers(0, 40, 700).tolist()),
}


def by_sets(matrix: Csr, partitions: int) -> np.ndarray:
    width = ceil_div(matrix.num_cols, partitions)
    touched: list[list[set[int]]] = [[set() for _ in range(POWERS)] for _ in range(partitions)]
    for row in range(matrix.num_rows):
        columns = matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]]
        for partition in range(partitions):
            piece = columns[columns // width == partition].tolist()
            if piece:
                touched[partition][min((len(piece) - 1).bit_length(), POWERS - 1)] |= set(piece)
    own = [[len(columns) for columns in powers] for powers in touched]
    above = [[len(set().union(*powers[p:])) for p in range(POWERS)] for powers in touched]
    return np.array([own, above])


@pytest.mark.parametrize("partitions", [1, 3, 16])
@pytest.mark.parametrize("name", SAMPLES)
def test_the_counts_are_those_of_sets(name: str, partitions: int) -> None:
    matrix, target = SAMPLES[name], open_target(find("host-simt"))
    found = ColumnBits(target, partitions).count(matrix.indptr, target.upload(matrix.indices), matrix.num_cols)
    assert np.array_equal(np.array(found), by_sets(matrix, partitions))


def test_few_blocks_take_all_rows_and_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spmark.impls.kernels.column_bits._MAX_BLOCKS", 1)
    matrix, target = random_csr(90, 2100, RNG.integers(0, 200, 90).tolist()), open_target(find("host-simt"))
    found = ColumnBits(target, 2).count(matrix.indptr, target.upload(matrix.indices), matrix.num_cols)
    assert np.array_equal(np.array(found), by_sets(matrix, 2))


@pytest.mark.gpu
@pytest.mark.parametrize("partitions", [1, 7])
def test_a_gpu_counts_the_same(partitions: int) -> None:
    matrix = random_csr(3000, 5000, RNG.integers(0, 1500, 3000).tolist())
    target = open_target(find("cuda"))
    found = ColumnBits(target, partitions).count(matrix.indptr, target.upload(matrix.indices), matrix.num_cols)
    assert np.array_equal(np.array(found), by_sets(matrix, partitions))
