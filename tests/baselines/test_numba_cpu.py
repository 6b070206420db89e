from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import dense_operands, problems, random_csr

from spmark.impls.numba_cpu import kernels
from spmark.impls.numba_cpu.plan import NumbaCpu, equal_tasks
from spmark.impls.runtime.device import find


@given(st.lists(st.integers(0, 40), min_size=1, max_size=60), st.integers(1, 9))
def test_tasks_cover_the_rows_and_share_the_cost(lengths: list[int], tasks: int) -> None:
    bounds = equal_tasks(random_csr(len(lengths), 40, lengths), tasks)
    assert bounds.dtype == np.int64
    assert (bounds[0], bounds[-1], bounds.size) == (0, len(lengths), tasks + 1)
    assert (np.diff(bounds) >= 0).all()
    share = (sum(lengths) + len(lengths)) / tasks
    for start, stop in pairwise(bounds):
        cost = sum(lengths[start:stop]) + stop - start
        assert cost <= share + max(lengths) + 1


@pytest.mark.parametrize("name", ["spmm-hub-J32-float32", "sddmm_scaled-hub-J32-float32"])
def test_kernels_compile_when_they_are_built_and_never_in_a_run(name: str) -> None:
    problem = problems()[name]
    plan = NumbaCpu().build(problem, find("cpu"))
    kernel = kernels.spmm if name.startswith("spmm") else kernels.sddmm
    before = len(kernel.signatures)
    assert before >= 1
    operands = dense_operands(problem)
    plan.run(operands, np.empty(problem.out_shape, np.float32))
    assert len(kernel.signatures) == before
