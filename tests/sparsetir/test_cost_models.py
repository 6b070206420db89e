"""SparseTIR's rule as a cost model: the width of the rule first, the others by their distance."""

from __future__ import annotations

import numpy as np
from problems import random_csr

from spmark.impls.core.problem import Op, Problem
from spmark.impls.runtime.device import find
from spmark.impls.sparsetir.plan import SparseTir
from spmark.impls.table import cost_model


def test_widths_are_scored_by_their_distance_from_the_rule() -> None:
    problem = Problem(Op.SPMM, random_csr(100, 90, [5] * 99 + [60]), 32)  # 5.55 on average: the rule says 8
    configs = [{"c": c, "max_width": width} for width in (8, 4, 64, 2) for c in (1, 4)]
    scores = cost_model(SparseTir(), "rule", find("host-simt")).score(problem, configs)
    assert scores.tolist() == [0, 0, 1, 1, 3, 3, 2, 2]


def test_configs_of_csr_have_no_score_and_leave_the_others_theirs() -> None:
    problem = Problem(Op.SPMM, random_csr(10, 10, [3] * 10), 32)
    configs = [{"format": "direct", "vector": 4, "lanes": 8, "longest": 256}, {"c": 1, "max_width": 8}]
    scores = cost_model(SparseTir(), "rule", find("host-simt")).score(problem, configs)
    np.testing.assert_array_equal(scores, [np.nan, 1])
