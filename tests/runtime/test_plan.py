"""What a plan reports of its building."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from problems import random_csr

from spmark.impls.core.interfaces import Plan
from spmark.impls.core.problem import Op, Problem
from spmark.impls.runtime.device import find
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import Target


class Uploading(DevicePlan):
    def enqueue(self, operands: Sequence[Any], out: Any) -> None:
        raise NotImplementedError


def test_a_phase_inside_of_itself_counts_once() -> None:
    plan = Plan(phases_s={"upload": 1.0})
    started = time.perf_counter()
    with plan.phase("upload"):
        time.sleep(0.02)
        with plan.phase("upload"):
            time.sleep(0.02)
    assert 1.04 <= plan.phases_s["upload"] <= 1.0 + time.perf_counter() - started


def test_what_a_plan_uploads_counts_in_bytes_and_seconds() -> None:
    plan = Uploading(Problem(Op.SPMM, random_csr(4, 4, [2] * 4), 8), Target(find("host-simt")), {})
    plan.upload(np.zeros(1 << 20, np.float32))
    assert plan.device_bytes == 4 << 20
    assert 0 < plan.phases_s["upload"] < 10
