"""The cache against an OrderedDict, access by access."""

from __future__ import annotations

import numpy as np
import pytest
from spade_reference import PlainCache

from spmark.impls.spade_sim import loops
from spmark.impls.spade_sim.simulate import empty_cache

ALL = (loops.SPARSE, loops.ROWS, loops.COLUMNS)


def trace(seed: int, items: int, count: int = 600) -> np.ndarray:
    """Draw accesses of all kinds by three PEs, some items far more often than others."""
    rng = np.random.default_rng(seed)
    often = (items * rng.random(count) ** 3).astype(np.int32)
    return np.stack([often, rng.integers(0, loops.KINDS, count), rng.integers(0, 3, count)]).astype(np.int32)


@pytest.mark.parametrize("slots", [0, 1, 2, 3, 7, 40, 1000])
@pytest.mark.parametrize("items", [1, 5, 60])
def test_hits_and_writes_are_those_of_a_dictionary(slots: int, items: int) -> None:
    for seed in range(5):
        accesses = trace(seed, items)
        cache, plain = empty_cache(slots, items, ()), PlainCache(slots)
        for first in range(0, accesses.shape[1], 50):
            counts, expected = np.zeros((2, 3, loops.KINDS, 2), np.int64)
            written = loops.answer(accesses[:, first : first + 50], *cache, counts)
            before = plain.written
            for item, kind, pe in accesses[:, first : first + 50].T:
                expected[pe, kind, int(plain.use(int(item), kind == loops.STORES))] += 1
            assert np.array_equal(counts, expected)
            assert written == plain.written - before
        assert cache[-1][1].sum() == sum(plain.held.values())


@pytest.mark.parametrize("skips", ALL)
def test_what_skips_the_cache_always_misses_and_pushes_nothing_out(skips: int) -> None:
    accesses = trace(7, 30)
    kinds = np.where(accesses[1] == loops.STORES, loops.ROWS, accesses[1])
    counts, others = np.zeros((2, 3, loops.KINDS, 2), np.int64)
    loops.answer(accesses, *empty_cache(9, 30, (skips,)), counts)
    loops.answer(np.ascontiguousarray(accesses[:, kinds != skips]), *empty_cache(9, 30, ()), others)
    mine = (skips, loops.STORES) if skips == loops.ROWS else (skips,)
    assert not counts[:, mine, 1].any()
    assert counts[:, mine, 0].sum() == np.count_nonzero(kinds == skips)
    rest = [kind for kind in range(loops.KINDS) if kind not in mine]
    assert np.array_equal(counts[:, rest], others[:, rest])
