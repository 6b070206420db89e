"""The tiny problems of the suite, and what tests do with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from spmark.impls.core.operators import reference
from spmark.impls.core.problem import Csr, Problem
from spmark.impls.core.tolerance import tolerance
from spmark.suite.conformance import OPERATORS, dense_operands, matrices, problems, random_csr

__all__ = [
    "OPERATORS",
    "assert_same",
    "banded",
    "dense_operands",
    "matrices",
    "problems",
    "random_csr",
    "run_checked",
    "run_with_other_values",
]


def run_checked(plan: Any, problem: Problem) -> np.ndarray:
    """Run a plan on the host over NaN, hold its result against float64, and give it."""
    operands = dense_operands(problem)
    out = np.full(problem.out_shape, problem.dtype.nan, problem.dtype.numpy)
    plan.run(operands, out)
    assert reference(problem, operands).max_error(out) <= tolerance(problem)
    return out


def run_with_other_values(build: Callable[[Problem], Any], problem: Problem) -> None:
    """Write the values of another matrix of the same pattern into a plan, and hold its result against float64."""
    matrix = replace(problem.matrix, values=-2 * problem.matrix.values)
    other = Problem(problem.op, matrix, problem.width, problem.dtype)
    plan = build(problem)
    plan.values[:] = build(other).values
    run_checked(plan, other)


def assert_same(found: Csr, expected: Csr) -> None:
    """Hold two matrices against each other, bit for bit."""
    assert found.shape == expected.shape
    for name in ("indptr", "indices", "values"):
        one, other = getattr(found, name), getattr(expected, name)
        assert one.dtype == other.dtype, name
        np.testing.assert_array_equal(one.view(np.uint32), other.view(np.uint32), name)


def banded(num_rows: int, reach: int) -> Csr:
    """Give a square matrix with all elements up to ``reach`` columns from the diagonal."""
    rows = np.arange(num_rows)
    inside = np.abs(rows[:, np.newaxis] - rows) <= reach
    indptr = np.concatenate([[0], np.cumsum(np.count_nonzero(inside, 1))])
    values = np.random.default_rng(num_rows).uniform(0.5, 1, np.count_nonzero(inside))
    return Csr.checked(inside.shape, indptr, np.nonzero(inside)[1], values)
