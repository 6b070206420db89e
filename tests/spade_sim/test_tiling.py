"""The order in which PEs meet the non-zeros, against a sort of tuples."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import pytest
from problems import matrices

from spmark.impls.spade_sim import loops
from spmark.impls.spade_sim.tiling import tile_order


@pytest.mark.parametrize("barrier", [False, True])
@pytest.mark.parametrize("name", matrices())
@pytest.mark.parametrize(("p_row", "p_col", "pes"), [(1, 1, 1), (4, 16, 3), (3, 1000, 5), (1000, 7, 4), (8, 8, 32)])
def test_nonzeros_are_sorted_by_group_pe_tile_and_row(
    name: str, p_row: int, p_col: int, pes: int, barrier: bool
) -> None:
    matrix = matrices()[name]
    entries = list(zip(matrix.rows_of_entries().tolist(), matrix.indices.tolist(), strict=True))

    def place(row: int, column: int) -> tuple[int, ...]:
        group = column // p_col if barrier else 0
        return group, row // p_row % pes, row // p_row, column // p_col, row, column

    expected = sorted(place(*entry) for entry in entries)
    found = tile_order(matrix, p_row, p_col, barrier, pes)
    assert [place(*pair) for pair in zip(found.rows.tolist(), found.columns.tolist(), strict=True)] == expected
    groups = -(-matrix.num_cols // p_col) if barrier else 1
    assert found.groups == groups
    owned = [[] for _ in range(groups * pes)]
    for key in expected:
        owned[key[0] * pes + key[1]].append(key)
    assert found.begins.tolist() == [0, *accumulate(map(len, owned))]
    assert found.tiles.ravel().tolist() == [len({key[:4] for key in mine}) for mine in owned]

    tile_and_row = [key[:5] for key in expected]
    opens_row = [at == 0 or tile_and_row[at] != tile_and_row[at - 1] for at in range(len(expected))]
    rows = [key[4] for key in expected]
    begins_sum = [row not in rows[:at] for at, row in enumerate(rows)]
    assert np.array_equal(found.opens & loops.OPENS_ROW > 0, [*opens_row, True])
    assert np.array_equal(found.opens & loops.BEGINS_SUM > 0, [*begins_sum, False])
