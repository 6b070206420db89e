"""CuPy's CSR matrix of a problem, for plans that call what CuPy's users call."""

from __future__ import annotations

from typing import Any

from spmark.impls.core.problem import Problem
from spmark.impls.runtime.plan import DevicePlan


def csr_matrix(plan: DevicePlan, problem: Problem) -> Any:
    """Upload A as a `cupyx.scipy.sparse.csr_matrix`; counted in the plan's bytes."""
    from cupyx.scipy import sparse

    matrix = problem.matrix
    arrays = tuple(plan.upload(one) for one in (problem.values, matrix.indices, matrix.indptr))
    made = sparse.csr_matrix(arrays, shape=matrix.shape)
    made.sum_duplicates()  # there are none, which CuPy asks before every product until it knows
    return made
