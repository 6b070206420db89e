"""nnzbalanced: every instance of its tables on the host under sanitizers, its marks, and which kernel a rule takes."""

from __future__ import annotations

import pytest
from problems import random_csr, run_checked
from tables import DTYPES, TableTarget, every_instance, table_target

from spmark.impls.core.problem import Csr, DType, Op, Problem
from spmark.impls.nnzbalanced.plan import (
    ROWS_PARALLEL,
    ROWS_SEQUENTIAL,
    SPANS_PARALLEL,
    SPANS_SEQUENTIAL,
    NnzBalanced,
    NnzBalancedPlan,
    choose,
    row_balanced,
)
from spmark.impls.runtime.device import find
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.template import Instance

# Spans of 32 begin in a row, with one, and lie inside of one; rows are empty at both ends and between.
MATRIX = random_csr(25, 97, [0, 1, 2, 3, 7, 8, 11, 0, 15, 16, 17, 31, 33, 63, 64, 65, 96, 97, 0, 5, 1, 1, 4, 12, 0])
EVEN = random_csr(16, 40, [8] * 16)
HOST = find("host-simt")
TABLES = (ROWS_SEQUENTIAL, ROWS_PARALLEL, SPANS_SEQUENTIAL, SPANS_PARALLEL)
target = table_target(*TABLES)


def planned(instance: Instance, problem: Problem, target: TableTarget, span: int) -> DevicePlan:
    values = instance.values
    vector, name = int(values["vector"]), instance.template.name
    if "rows" in name:
        parallel, lanes = "parallel" in name, int(values["lanes"])
        return row_balanced(problem, target, parallel=parallel, vector=vector, lanes=lanes)
    sums = (int(values["lanes"]), int(values["flight"])) if "lanes" in values else None
    return NnzBalancedPlan(problem, target, span=span, vector=vector, sums=sums)


@pytest.mark.one_in(5)
@every_instance(*TABLES)
def test_every_instance(instance: Instance, target: TableTarget) -> None:
    values = instance.values
    width = int(values["vector"]) * (int(values.get("lanes", 1)) + 3)
    problem = Problem(Op.SPMM, MATRIX, width, DTYPES[str(values["T"])])
    run_checked(planned(instance, problem, target, span=32), problem)


@pytest.mark.parametrize("dtype", list(DType))
@pytest.mark.parametrize("sums", [(4, 8), None], ids=["sequential", "parallel"])
@pytest.mark.parametrize("matrix", [MATRIX, EVEN], ids=["uneven", "even"])
def test_several_trips_and_a_second_run(
    matrix: Csr, sums: tuple[int, int] | None, dtype: DType, target: TableTarget
) -> None:
    problem = Problem(Op.SPMM, matrix, 12, dtype)
    plan = NnzBalancedPlan(problem, target, span=96, vector=4, sums=sums)
    for _ in range(2):  # what the first run left in the workspaces must not reach the second
        run_checked(plan, problem)


def test_only_sharing_is_random(target: TableTarget) -> None:
    alone, shared = (
        NnzBalancedPlan(Problem(Op.SPMM, matrix, 8), target, span=32, vector=4, sums=(4, 8))
        for matrix in (EVEN, MATRIX)
    )
    assert alone.deterministic
    assert not shared.deterministic
    assert shared.stored == MATRIX.nnz


@pytest.mark.parametrize(
    ("matrix", "width", "dtype", "expected"),
    [
        (EVEN, 4, DType.FLOAT32, ("parallel", "rows")),
        (MATRIX, 4, DType.FLOAT32, ("parallel", "nnz")),
        (MATRIX, 4, DType.FLOAT16, ("parallel", "rows")),
        (MATRIX, 32, DType.FLOAT32, ("parallel", "nnz")),
        (MATRIX, 64, DType.FLOAT32, ("sequential", "nnz")),
        (MATRIX, 64, DType.FLOAT16, ("sequential", "nnz")),
        (EVEN, 64, DType.FLOAT32, ("sequential", "rows")),
    ],
)
def test_the_rule(matrix: Csr, width: int, dtype: DType, expected: tuple[str, str]) -> None:
    problem = Problem(Op.SPMM, matrix, width, dtype)
    parallel, by_nnz = choose(problem)
    assert ("parallel" if parallel else "sequential", "nnz" if by_nnz else "rows") == expected
    plan = NnzBalanced().build(problem, HOST)
    assert (plan.config["reduction"], plan.config["balance"]) == expected


@pytest.mark.parametrize(("beyond", "words"), [(1, "expected J of at most 2,097,120, found 2,097,121"), (2, None)])
def test_widths_beyond_the_grid_are_refused(beyond: int, words: str | None) -> None:
    """An odd J has loads of one, and 32 lanes of each of 65,535 blocks; an even J has wider loads."""
    assert NnzBalanced().unsupported(Problem(Op.SPMM, MATRIX, 32 * 65535 + beyond), HOST) == words
