"""The kernels for float64 against float64 sums, in the host ring over every instance, and SciPy on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from problems import matrices
from tables import TableTarget, every_instance, table_target

from spmark.impls.core.errors import OperandError, UnsupportedError
from spmark.impls.core.problem import Csr, Op, PlainProblem
from spmark.impls.kernels.plain import SDDMM_PLAIN, SPMM_PLAIN, PlainPlan
from spmark.impls.runtime.device import find
from spmark.impls.runtime.template import Instance
from spmark.impls.scipy_cpu.plan import ScipyCpu

target = table_target(SPMM_PLAIN, SDDMM_PLAIN)


def plain_problem(op: Op, matrix: Csr, width: int, scaled: bool = False) -> PlainProblem:
    return PlainProblem(op, matrix, matrix.values.astype(np.float64), width, scaled)


def run_and_check(plan: Any, problem: PlainProblem) -> None:
    rng = np.random.default_rng(0)
    dense = [rng.standard_normal(shape) for shape in problem.operand_shapes]
    out = np.full(problem.out_shape, np.nan)
    plan.run(dense, out)
    a, rows, columns = problem.values, problem.matrix.rows_of_entries(), problem.matrix.indices
    if problem.op is Op.SPMM:
        terms = a[:, None] * dense[0][columns]
        expected, magnitude = np.zeros(problem.out_shape), np.zeros(problem.out_shape)
        np.add.at(expected, rows, terms)
        np.add.at(magnitude, rows, np.abs(terms))
    else:
        terms = dense[0][rows] * dense[1][columns] * (a[:, None] if problem.scaled else 1)
        expected, magnitude = terms.sum(axis=1), np.abs(terms).sum(axis=1)
    assert (np.abs(out - expected) <= 64 * 2.0**-53 * magnitude).all()


@every_instance(SPMM_PLAIN, SDDMM_PLAIN)
def test_every_instance(instance: Instance, target: TableTarget) -> None:
    op = Op.SPMM if instance.template is SPMM_PLAIN else Op.SDDMM
    lanes = int(instance.values["lanes"])
    for name, width in (("empty_rows", lanes), ("under_32_rows", lanes - 1 if lanes < 32 else 70)):
        problem = plain_problem(op, matrices()[name], width, scaled=op is Op.SDDMM)
        plan = PlainPlan(problem, target)
        assert plan.config == {"lanes": lanes}
        run_and_check(plan, problem)


@pytest.mark.parametrize("name", matrices())
def test_scipy_on_the_host(name: str) -> None:
    for op, width, scaled in ((Op.SPMM, 5, False), (Op.SDDMM, 33, False), (Op.SDDMM, 1, True)):
        problem = plain_problem(op, matrices()[name], width, scaled)
        run_and_check(ScipyCpu().build(problem, find("cpu")), problem)


def test_operands_may_be_read_only_and_are_checked(target: TableTarget) -> None:
    problem = plain_problem(Op.SPMM, matrices()["tall"], 2)
    dense = np.ones(problem.operand_shapes[0])
    dense.flags.writeable = False
    for plan in (ScipyCpu().build(problem, find("cpu")), PlainPlan(problem, target)):
        plan.run((dense,), np.empty(problem.out_shape))
        with pytest.raises(OperandError, match="expected dtype float64, found float32"):
            plan.run((dense.astype(np.float32),), np.empty(problem.out_shape))


def test_widths_beyond_the_grid_are_refused(target: TableTarget) -> None:
    with pytest.raises(UnsupportedError, match="expected J of at most 2,097,120, found 2,097,121"):
        PlainPlan(plain_problem(Op.SPMM, matrices()["one_by_one"], 32 * 65535 + 1), target)
