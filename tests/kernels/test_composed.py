"""Hybrid decompositions computed in one grid: every instance of the fused kernel, on the host under sanitizers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from problems import random_csr, run_checked
from tables import TableTarget, every_instance, table_target

from spmark.impls.core.errors import BuildError
from spmark.impls.core.problem import Csr, DType, Op, Problem
from spmark.impls.formats.decompose import Rule, decompose
from spmark.impls.formats.rules import BlockRule, Buckets, Remainder
from spmark.impls.kernels.composed import SPMM_COMPOSED, TILE, ComposedPlan
from spmark.impls.runtime.template import Instance


def hybrid_matrix() -> Csr:
    """Give a 77 x 90 matrix: dense spots of 32 x 32, a scattered rest, a full row, empty rows; no size is round."""
    rng = np.random.default_rng(7)
    pattern = rng.random((77, 90)) < 0.04
    for row, col in ((0, 32), (32, 0), (32, 64), (64, 64)):
        pattern[row : row + 32, col : col + 32] |= rng.random(pattern[row : row + 32, col : col + 32].shape) < 0.8
    pattern[70] = True
    pattern[[3, 40, 76]] = False
    rows, cols = np.nonzero(pattern)
    values = (rng.uniform(0.5, 1, rows.size) * rng.choice([-1, 1], rows.size)).astype(np.float32)
    return Csr.checked(pattern.shape, np.searchsorted(rows, np.arange(78)), cols, values)


MATRIX = hybrid_matrix()
target = table_target(SPMM_COMPOSED)


def multiply(
    matrix: Csr, rules: Sequence[Rule], width: int, target: TableTarget, vector: int, lanes: int
) -> ComposedPlan:
    """Build, run over NaN and compare with the reference."""
    problem = Problem(Op.SPMM, matrix, width, DType.FLOAT16)
    plan = ComposedPlan(problem, target, decompose(matrix, rules), {}, vector=vector, lanes=lanes)
    run_checked(plan, problem)
    return plan


@pytest.mark.one_in(3)
@every_instance(SPMM_COMPOSED)
def test_every_instance(instance: Instance, target: TableTarget) -> None:
    vector, lanes, size = (int(instance.values[name]) for name in ("vector", "lanes", "size"))
    width = vector * (2 * TILE // vector + 1)  # a tile more than full ones, in every body
    blocks = BlockRule(size, 0.3)
    for rest in ([Buckets(4)], [Buckets(2, fold=False), Remainder()], [Remainder()], [Buckets(2, 3)]):
        plan = multiply(MATRIX, [blocks, *rest], width, target, vector, lanes)
        assert not plan.deterministic
        assert plan.stored >= MATRIX.nnz


@pytest.mark.parametrize(
    ("rules", "deterministic"),
    [
        ([BlockRule(16, 1e-9)], True),
        ([BlockRule(32, 1e-9)], True),
        ([Remainder()], True),
        ([Buckets(128)], True),
        ([Buckets(4)], False),
        ([Buckets(8, fold=False), Remainder()], True),
    ],
    ids=str,
)
def test_parts_alone(rules: list[Rule], deterministic: bool, target: TableTarget) -> None:
    plan = multiply(MATRIX, rules, 40, target, 8, 8)
    assert plan.deterministic == deterministic


@pytest.mark.parametrize(
    "matrix",
    [
        random_csr(5, 4, [0] * 5),
        random_csr(1, 1, [1]),
        random_csr(7, 1, [1, 0, 1, 1, 0, 1, 1]),
        random_csr(3, 10_000, [10_000, 0, 5]),
    ],
    ids=["no_nonzeros", "one_by_one", "single_column", "a_row_of_10000"],
)
def test_extremes(matrix: Csr, target: TableTarget) -> None:
    for rules in ([BlockRule(16, 0.01), Buckets(32), Remainder()], [Buckets(16, fold=False), Remainder()]):
        multiply(matrix, rules, 3, target, 1, 8)


def test_rows_that_only_blocks_hold_are_not_cleared(target: TableTarget) -> None:
    """A row of a block without a non-zero of its own must not be written by it, nor cleared where another writes."""
    pattern = np.zeros((16, 80), np.bool_)
    pattern[:8, :16] = True
    pattern[8:, 40:44] = True
    rows, cols = np.nonzero(pattern)
    values = np.random.default_rng(1).uniform(0.5, 1, rows.size).astype(np.float32)
    matrix = Csr.checked(pattern.shape, np.searchsorted(rows, np.arange(17)), cols, values)
    assert multiply(matrix, [BlockRule(16, 0.5), Buckets(4)], 24, target, 8, 8).deterministic


def test_parts_of_one_body_are_refused(target: TableTarget) -> None:
    problem = Problem(Op.SPMM, MATRIX, 8, DType.FLOAT16)
    parts = decompose(MATRIX, [Buckets(32, fold=False), Buckets(8)])
    with pytest.raises(BuildError, match="at most one part for each body, found ell_buckets, ell_buckets"):
        ComposedPlan(problem, target, parts, {}, vector=8, lanes=8)
