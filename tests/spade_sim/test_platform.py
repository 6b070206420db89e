"""The accelerator as a platform of collected configs: prices, a label that hides nothing, a version."""

from __future__ import annotations

import re

import numpy as np
from problems import random_csr

from spmark.impls.core.problem import Op, Problem
from spmark.impls.spade_sim import platform
from spmark.impls.spade_sim.simulate import simulate
from spmark.impls.table import IMPLEMENTATIONS


def test_configs_are_priced_in_their_order() -> None:
    problem = Problem(Op.SPMM, random_csr(200, 3000, [6] * 200), 32)
    configs = [*platform.space(problem).configs()][::17]
    found = platform.seconds(problem, configs)
    assert found.dtype == np.float64
    assert found.tolist() == [simulate(problem, config).seconds for config in configs]
    assert len(set(found.tolist())) > len(configs) // 2
    assert platform.seconds(problem, []).shape == (0,)
    assert platform.seconds(problem, [platform.default(problem)])[0] > 0


def test_the_platform_says_that_it_is_simulated_and_gives_no_records() -> None:
    assert platform.LABEL == "spade_sim"
    assert platform.NOTE == "SPADE-like, simulated; not the published simulator"
    assert re.fullmatch("[0-9a-f]{16}", platform.version())
    assert platform.LABEL not in IMPLEMENTATIONS
