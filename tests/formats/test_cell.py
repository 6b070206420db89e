"""CELL: round trips, where every element stands, folded rows, and blocks."""

from __future__ import annotations

import numpy as np
import pytest
from cell_format import CellFormat
from problems import assert_same, matrices, random_csr
from way_back import csr_of

from spmark.impls.core.problem import Csr

RNG = np.random.default_rng(3)
WIDTHS = ((1,), (8,), (4, 32), (1, 2, 1024), (16,) * 7)


@pytest.mark.parametrize("widths", WIDTHS, ids=str)
@pytest.mark.parametrize("tail_in_last", [True, False])
@pytest.mark.parametrize("name", matrices())
def test_round_trip(name: str, tail_in_last: bool, widths: tuple[int, ...]) -> None:
    matrix = matrices()[name]
    cell = CellFormat.from_csr(matrix, widths, tail_in_last=tail_in_last)
    assert_same(csr_of(cell.held), matrix)
    assert cell.held.stored == cell.held.indices.size


@pytest.mark.parametrize("widths", WIDTHS, ids=str)
def test_every_element_stands_where_the_paper_puts_it(widths: tuple[int, ...]) -> None:
    matrix = random_csr(50, 90, RNG.integers(0, 60, 50).tolist())
    cell = CellFormat.from_csr(matrix, widths)
    span = -(-matrix.num_cols // len(widths))
    expected: dict[tuple[int, int], int] = {}
    for row in range(matrix.num_rows):
        columns = matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]]
        for partition, widest in enumerate(widths):
            length = int(np.count_nonzero(columns // span == partition))
            if length:
                width = min(1 << (length - 1).bit_length(), widest)
                key = partition, width
                expected[key] = expected.get(key, 0) + -(-length // width)
    found: dict[tuple[int, int], int] = {}
    for bucket in cell.held.buckets:
        rows = cell.held.rows[bucket.first : bucket.first + bucket.count]
        key = bucket.partition, bucket.width
        found[key] = found.get(key, 0) + int(np.count_nonzero(rows >= 0))
    assert found == expected


def test_partitions_have_widths_and_blocks_of_their_own() -> None:
    # Columns 0 to 9 are full in every row, 10 to 19 nearly empty.
    dense = np.zeros((6, 20), np.float32)
    dense[:, :10] = RNG.uniform(0.5, 1, (6, 10))
    dense[2, 15] = 0.7
    indptr = np.concatenate([[0], np.cumsum(np.count_nonzero(dense, axis=1))])
    matrix = Csr.checked((6, 20), indptr, np.nonzero(dense)[1], dense[dense != 0])
    cell = CellFormat.from_csr(matrix, (16, 16))
    assert cell.widths == ((16,), (1,))
    assert cell.block_elements == (16, 1)
