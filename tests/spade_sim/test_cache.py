"""The cache against an OrderedDict, access by access."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from spade_reference import PlainCache

from spmark.impls.spade_sim import loops
from spmark.impls.spade_sim.simulate import empty_cache

PES, COUNT = 3, 200
BEGINS = np.array([0, 0, 50, COUNT])  # the first PE has no work


def drawn(seed: int, items: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw rows and columns, some far more often than others, and what begins with each non-zero."""
    rng = np.random.default_rng(seed)
    rows, columns = (items * rng.random((2, COUNT)) ** 3).astype(np.int32)
    return rows, columns, rng.integers(0, 4, COUNT + 1, np.uint8)


def accesses(rows: Any, columns: Any, opens: Any, items: int, sums: bool) -> Iterator[tuple[int, int, int]]:
    """Give (PE, kind, item) of a stage of one slice, whose stream of A has three entries in a segment."""
    for turn in range(COUNT):
        for pe in range(PES):
            at = int(BEGINS[pe]) + turn
            if at >= BEGINS[pe + 1]:
                continue
            if turn == 0 or at % 3 == 0:
                yield pe, loops.SPARSE, 2 * items + at // 3
            if opens[at] & loops.OPENS_ROW and not (sums and opens[at] & loops.BEGINS_SUM):
                yield pe, loops.ROWS, items + int(rows[at])
            yield pe, loops.COLUMNS, int(columns[at])
            if sums and opens[at + 1] & loops.OPENS_ROW:
                yield pe, loops.STORES, items + int(rows[at])


@pytest.mark.parametrize("skips", [(), (loops.SPARSE,), (loops.ROWS,), (loops.COLUMNS,), (loops.SPARSE, loops.ROWS)])
@pytest.mark.parametrize("slots", [0, 1, 2, 3, 7, 40, 1000])
@pytest.mark.parametrize("items", [1, 5, 60])
def test_hits_and_writes_are_those_of_a_dictionary(slots: int, items: int, skips: tuple[int, ...]) -> None:
    """What skips the cache always misses and pushes nothing out."""
    for seed, sums in ((0, False), (1, True), (2, True)):
        entries = drawn(seed, items)
        cache, plain = empty_cache(slots, 2 * items + COUNT, skips), PlainCache(slots)
        counts, expected = np.zeros((2, PES, loops.KINDS, 2), np.int64)
        written = loops.run_stage(*entries, BEGINS, (items, items, 0, 1, 2 * items, 4, 12), sums, *cache, counts)
        passed_by = 0
        for pe, kind, item in accesses(*entries, items, sums):
            skipped = (loops.ROWS if kind == loops.STORES else kind) in skips
            passed_by += skipped and kind == loops.STORES
            expected[pe, kind, int(not skipped and plain.use(item, kind == loops.STORES))] += 1
        assert np.array_equal(counts, expected)
        assert written == plain.written + passed_by
        assert cache[-1][1].sum() == sum(plain.held.values())
