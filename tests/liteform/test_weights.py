"""The weighed cost against a direct count over the format that is built."""

from __future__ import annotations

import numpy as np
import pytest
from cell_format import CellFormat
from problems import matrices, random_csr

from spmark.impls.core.problem import Csr
from spmark.impls.liteform.cost import CHAIN, Weights, count, weighed

RNG = np.random.default_rng(6)
WEIGHTS = Weights(atomic=3.5, slot=0.25, chain=7.0, beyond=2.0, launch=1000.0)
SAMPLES = {
    **{name: matrix for name, matrix in matrices().items() if name != "no_nonzeros"},
    "long_rows": random_csr(30, 3000, RNG.integers(0, 2600, 30).tolist()),
}


def counted(matrix: Csr, width: int, power: int, *, thirds: bool) -> float:
    """Count slot by slot and store by store what the weights price, in one partition."""
    held = CellFormat.from_csr(matrix, [1 << power], tail_in_last=False, thirds=thirds).held
    rows = held.rows[held.rows >= 0]
    times = np.bincount(rows, minlength=matrix.num_rows)
    stored = sum(b.width * int((held.rows[b.first : b.first + b.count] >= 0).sum()) for b in held.buckets)
    plain, added, cleared = int((times == 1).sum()), int(times[times > 1].sum()), int((times > 1).sum())
    chain = WEIGHTS.chain * min(1 << power, CHAIN) + WEIGHTS.beyond * max((1 << power) - CHAIN, 0)
    stores = plain + cleared + WEIGHTS.atomic * added
    launch = WEIGHTS.launch if cleared else 0.0
    return 2 * stored + width * (stores + WEIGHTS.slot * stored) + chain + launch


@pytest.mark.parametrize("thirds", [True, False])
@pytest.mark.parametrize("name", SAMPLES)
def test_the_weighed_cost_is_the_count(name: str, thirds: bool) -> None:
    counts = count(SAMPLES[name], 1, thirds=thirds)
    table = weighed(counts, 17, WEIGHTS)
    top = int(counts.widest[0])
    assert np.isinf(table[0, top + 1 :]).all()
    for power in range(top + 1):
        assert table[0, power] == counted(SAMPLES[name], 17, power, thirds=thirds), power
