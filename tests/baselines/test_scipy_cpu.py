from __future__ import annotations

import pytest
from problems import problems, run_checked

from spmark.impls.runtime.device import find
from spmark.impls.scipy_cpu.plan import ScipyCpu


@pytest.mark.parametrize("chunk_bytes", [1, 8 * 32, 8 * 32 * 7, 1 << 30])
def test_chunks_of_any_size_give_the_result(chunk_bytes: int) -> None:
    """One entry at a time, a chunk that does not divide the non-zeros, and one that holds them all."""
    problem = problems()["sddmm_scaled-empty_rows-J32-float32"]
    plan = ScipyCpu(chunk_bytes=chunk_bytes).build(problem, find("cpu"))
    run_checked(plan, problem)
    assert plan.config == {"chunk_bytes": chunk_bytes}
