"""The GPU's configs as a platform: the paper's rule for hyb(c, k)."""

from __future__ import annotations

import numpy as np
import pytest
from problems import random_csr

from spmark.impls.core.problem import Op, Problem
from spmark.impls.kernels import direct_spmm
from spmark.impls.kernels.ell_buckets import NEVER
from spmark.impls.sparsetir.platform import CudaPlatform


def test_the_rule_prefers_its_width_then_fewer_partitions_and_csr_last() -> None:
    platform = CudaPlatform()
    problem = Problem(Op.SPMM, random_csr(64, 64, [13] * 64), 32)  # 2^k = 16
    hyb = {"work": 32, "order": "width", "spread": 128, "together": NEVER, "threads": 128}
    ordered = [
        {**hyb, "c": 1, "max_width": 16},
        {**hyb, "c": 16, "max_width": 16},
        {**hyb, "c": 1, "max_width": 32},
        {**hyb, "c": 2, "max_width": 8},
        {**hyb, "c": 1, "max_width": 2048},
        {"rows": 1, "parts": 1},
    ]
    scores = platform.by_rule(problem, ordered)
    assert (np.diff(scores) > 0).all()
    assert platform.by_rule(problem, [platform.default(problem)])[0] == scores[0]
    assert platform.ruled == {Op.SPMM}


def test_what_the_kernels_offer_leaves_the_space_of_collected_samples_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_spmm, "ROWS", (1, 2, 4, 8))
    known = {Op.SPMM: "dfe194fad5781b53", Op.SDDMM: "27fddd910b815dec"}
    assert {op: CudaPlatform().digest(op) for op in Op} == known
