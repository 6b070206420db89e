"""LiteForm's cost as a cost model of configs."""

from __future__ import annotations

import numpy as np
import pytest
from problems import random_csr

from spmark.impls.core.problem import Op, Problem
from spmark.impls.liteform.plan import LiteForm
from spmark.impls.runtime.device import find as find_device
from spmark.impls.table import cost_model

RNG = np.random.default_rng(5)
DEVICE = find_device("host-simt")


@pytest.mark.parametrize("config", [{}, {"cost": "paper"}, {"order": "gathered"}, {"thirds": True}])
def test_the_cost_is_what_a_build_tells(config: dict[str, object]) -> None:
    """A plan on the host is built with the paper's cost; it says what every cap would have cost."""
    problem = Problem(Op.SPMM, random_csr(90, 130, RNG.integers(0, 60, 90).tolist()), 32)
    how = LiteForm(format="cell", partitions=2, **config)  # type: ignore[arg-type]
    search = how.build(problem, DEVICE).search
    assert search is not None
    told = {candidate.config["max_width"]: candidate.predicted for candidate in search.seen}
    scores = cost_model(how, "cost", DEVICE).score(problem, [candidate.config for candidate in search.seen])
    assert scores.tolist() == list(told.values())
