"""The accelerator as a platform of collected configs: prices, a note that hides nothing."""

from __future__ import annotations

from problems import random_csr
from spade_reference import simulate

from spmark.impls.core.problem import Op, Problem
from spmark.impls.spade_sim.platform import SpadePlatform
from spmark.impls.table import IMPLEMENTATIONS

PLATFORM = SpadePlatform()


def test_configs_are_priced_in_their_order() -> None:
    problem = Problem(Op.SPMM, random_csr(200, 3000, [6] * 200), 32)
    configs = [*PLATFORM.space(problem).configs()][::17]
    found = [one.samples_us for one in PLATFORM.measure(problem, configs, None)]
    assert found == [(simulate(problem, config).seconds * 1e6,) for config in configs]
    assert len(set(found)) > len(configs) // 2
    assert not PLATFORM.measure(problem, [], None)


def test_the_platform_says_that_it_is_simulated_and_gives_no_records() -> None:
    assert PLATFORM.note == "SPADE-like, simulated; not the published simulator"
    assert PLATFORM.kind is None
    assert PLATFORM.name not in IMPLEMENTATIONS
