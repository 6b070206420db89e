"""The cost model against a direct count of loads and stores over the format that is built, and its counts."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from cell_format import CellFormat
from problems import matrices, random_csr

from spmark.impls.core.problem import Csr
from spmark.impls.liteform.cost import POWERS, BucketCounts, costs, count

RNG = np.random.default_rng(5)
SAMPLES = {
    **{name: matrix for name, matrix in matrices().items() if name != "no_nonzeros"},
    "long_rows": random_csr(30, 3000, RNG.integers(0, 2600, 30).tolist()),
}
FIELDS = [field.name for field in fields(BucketCounts)]


def counted(matrix: Csr, width: int, max_widths: list[int]) -> float:
    """Count loads and stores element by element: A's slots with the fill of blocks, B's rows once a bucket, C's."""
    cell = CellFormat.from_csr(matrix, max_widths)
    total = 0.0
    several = len(max_widths) > 1
    groups: dict[tuple[int, int], tuple[int, set[int], set[int]]] = {}
    for bucket in cell.held.buckets:
        ell_rows, columns, rows = groups.get((bucket.partition, bucket.width), (0, set(), set()))
        for r in range(bucket.first, bucket.first + bucket.count):
            if cell.held.rows[r] < 0:
                continue
            start, length = int(cell.held.starts[r]), int(cell.held.lengths[r])
            ell_rows += 1
            columns |= set(matrix.indices[start : start + length].tolist())
            rows.add(int(cell.held.rows[r]))
        groups[bucket.partition, bucket.width] = ell_rows, columns, rows
    for (partition, bucket_width), (ell_rows, columns, rows) in groups.items():
        of_block = cell.block_elements[partition] // bucket_width
        filled = -(-ell_rows // of_block) * of_block
        atomic = several or bucket_width == cell.widths[partition][-1]
        total += 2 * filled * bucket_width + len(columns) * width + (filled if atomic else len(rows)) * width
    return total


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("name", SAMPLES)
def test_the_cost_is_the_count_of_loads_and_stores(name: str, partitions: int) -> None:
    matrix = SAMPLES[name]
    counts = count(matrix, partitions)
    table = costs(counts, 17)
    for power in range(int(counts.widest.max()) + 1):
        powers = counts.widest.clip(max=power)
        expected = counted(matrix, 17, [1 << int(p) for p in powers])
        assert table[np.arange(partitions), powers].sum() == expected


def slow_counts(matrix: Csr, partitions: int) -> BucketCounts:
    span = -(-matrix.num_cols // partitions)
    rows, slots, folded, longer, split, split_slots = np.zeros((6, partitions, POWERS), np.int64)
    touched = [[set() for _ in range(POWERS)] for _ in range(partitions)]
    for row in range(matrix.num_rows):
        columns = matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]]
        for partition in range(partitions):
            own = columns[columns // span == partition]
            if not own.size:
                continue
            power = (own.size - 1).bit_length()
            kept = min(power, POWERS - 1)
            rows[partition, kept] += 1
            slots[partition, kept] += 1 << power if power < POWERS else 0
            for cap in range(kept + 1):
                folded[partition, cap] += -(-own.size // (1 << cap))
            for cap in range(POWERS):
                if own.size > 1 << cap:
                    widths = [1 << cap] * (own.size >> cap)
                    rest = own.size % (1 << cap)
                    widths += [1 << (rest - 1).bit_length()] if rest else []
                    longer[partition, cap] += 1
                    split[partition, cap] += len(widths)
                    split_slots[partition, cap] += sum(widths)
            touched[partition][kept] |= set(own.tolist())
    own = np.array([[len(columns) for columns in part] for part in touched])
    above = np.array([[len(set().union(*part[p:])) for p in range(POWERS)] for part in touched])
    return BucketCounts(rows, slots, folded, longer, split, split_slots, own, above)


@pytest.mark.parametrize("partitions", [1, 2, 5])
@pytest.mark.parametrize("name", SAMPLES)
def test_counts_are_those_of_a_slow_loop(name: str, partitions: int) -> None:
    found, expected = count(SAMPLES[name], partitions), slow_counts(SAMPLES[name], partitions)
    for field in FIELDS:
        assert np.array_equal(getattr(found, field), getattr(expected, field)), field
