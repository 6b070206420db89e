"""The weighed cost against a direct count over the format that is built."""

from __future__ import annotations

import numpy as np
import pytest
from cell_format import CellFormat
from problems import matrices, random_csr

from spmark.impls.core.problem import Csr
from spmark.impls.liteform.cost import count
from spmark.impls.liteform.weights import CHAIN, Weights, weighed

RNG = np.random.default_rng(6)
WEIGHTS = Weights(atomic=3.5, slot=0.25, chain=7.0, beyond=2.0, launch=1000.0)
SAMPLES = {
    **{name: matrix for name, matrix in matrices().items() if name != "no_nonzeros"},
    "long_rows": random_csr(30, 3000, RNG.integers(0, 2600, 30).tolist()),
}


def counted(matrix: Csr, width: int, power: int, tail_in_last: bool, *, thirds: bool = False) -> float:
    """Count slot by slot and store by store what the weights price, in one partition."""
    held = CellFormat.from_csr(matrix, [1 << power], tail_in_last=tail_in_last, thirds=thirds).held
    rows = held.rows[held.rows >= 0]
    times = np.bincount(rows, minlength=matrix.num_rows)
    stored = sum(b.width * int((held.rows[b.first : b.first + b.count] >= 0).sum()) for b in held.buckets)
    plain, added, cleared = int((times == 1).sum()), int(times[times > 1].sum()), int((times > 1).sum())
    chain = WEIGHTS.chain * min(1 << power, CHAIN) + WEIGHTS.beyond * max((1 << power) - CHAIN, 0)
    stores = plain + cleared + WEIGHTS.atomic * added
    launch = WEIGHTS.launch if cleared else 0.0
    return 2 * stored + width * (stores + WEIGHTS.slot * stored) + chain + launch


@pytest.mark.parametrize("thirds", [True, False])
@pytest.mark.parametrize("tail_in_last", [True, False])
@pytest.mark.parametrize("name", SAMPLES)
def test_the_weighed_cost_is_the_count(name: str, tail_in_last: bool, thirds: bool) -> None:
    counts = count(SAMPLES[name], 1, thirds=thirds)
    table = weighed(counts, 17, WEIGHTS, tail_in_last)
    top = int(counts.widest[0])
    assert np.isinf(table[0, top + 1 :]).all()
    for power in range(top + 1):
        assert table[0, power] == counted(SAMPLES[name], 17, power, tail_in_last, thirds=thirds), power


def test_what_a_row_of_45_costs_by_hand() -> None:
    """Under 64 it is one store and 48 slots instead of 64; under 16 three added stores and 48 slots either way."""
    matrix = random_csr(1, 60, [45])
    weights = Weights(atomic=3.0, slot=0.5, chain=0.0, beyond=0.0, launch=100.0)
    powers, between = (weighed(count(matrix, 1, thirds=thirds), 10, weights)[0] for thirds in (False, True))
    assert (powers[6], between[6]) == (2 * 64 + 10 * (1 + 32), 2 * 48 + 10 * (1 + 24))
    assert powers[4] == between[4] == 2 * 48 + 10 * (1 + 3 * 3 + 24) + 100
    # Under 32 the rest of 13 fits 16.
    assert powers[5] == between[5] == 2 * 48 + 10 * (1 + 3 * 2 + 24) + 100


def test_with_several_partitions_every_store_is_added() -> None:
    counts = count(SAMPLES["wide"], 4)
    free = Weights(atomic=0.0, slot=0.0, chain=0.0, beyond=0.0, launch=0.0)
    unit = Weights(atomic=1.0, slot=0.0, chain=0.0, beyond=0.0, launch=0.0)
    # Under the widest caps nothing is folded: every piece is one store.
    at_widest = np.arange(4), counts.widest
    stores = weighed(counts, 8, unit)[at_widest] - weighed(counts, 8, free)[at_widest]
    assert np.array_equal(stores, 8.0 * counts.rows.sum(1))


def test_nothing_costs_nothing() -> None:
    assert weighed(count(matrices()["no_nonzeros"], 2), 8, WEIGHTS)[:, 0].tolist() == [0, 0]
