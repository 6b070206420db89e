from __future__ import annotations

import numpy as np
import pytest
from problems import dense_operands, problems

from spmark.impls.core.operators import reference, tolerance
from spmark.impls.runtime.device import find
from spmark.impls.scipy_cpu.plan import ScipyCpu


@pytest.mark.parametrize("chunk_bytes", [1, 8 * 32, 8 * 32 * 7, 1 << 30])
def test_chunks_of_any_size_give_the_result(chunk_bytes: int) -> None:
    """One entry at a time, a chunk that does not divide the non-zeros, and one that holds them all."""
    problem = problems()["sddmm_scaled-empty_rows-J32-float32"]
    operands = dense_operands(problem)
    out = np.full(problem.out_shape, np.nan, np.float32)
    plan = ScipyCpu(chunk_bytes=chunk_bytes).build(problem, find("cpu"))
    plan.run(operands, out)
    assert reference(problem, operands).max_error(out) <= tolerance(problem)
    assert plan.config == {"chunk_bytes": chunk_bytes}
