"""RGMS over the 3-D hyb: every instance on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from relational import drawn, operand_arrays, relational_matrices, run_relational
from tables import DTYPES, TableTarget, every_instance, table_target

from spmark.impls.core.errors import BuildError, OperandError
from spmark.impls.core.problem import DType
from spmark.impls.core.relational import RelationalProblem
from spmark.impls.formats.relational_hyb import RelationalHyb
from spmark.impls.kernels.ordered_rows import SUM_PIECES
from spmark.impls.kernels.relational_hyb import RGMS_HYB, RGMS_HYB_FLOAT, RelationalHybPlan
from spmark.impls.runtime.template import Instance

MATRIX = drawn(60, 90, [120, 0, 7, 1, 40, 90], seed=4, hub=60)
target = table_target(RGMS_HYB, RGMS_HYB_FLOAT, SUM_PIECES)
HALF = {"slots": 64, "tile": 32, "depth": 32}


def plan_of(problem: RelationalProblem, target: TableTarget, slots: int, **schedule: Any) -> RelationalHybPlan:
    widest = schedule.pop("widest", 16)
    held = RelationalHyb.of(problem.matrix, slots, widest)
    plan = RelationalHybPlan(problem, target, held, {}, **schedule)
    assert plan.stored == held.stored
    return plan


@pytest.mark.one_in(3)
@every_instance(RGMS_HYB)
def test_every_half_instance(instance: Instance, target: TableTarget) -> None:
    values = instance.values
    # Neither of the widths fills its tile or its steps.
    widths = (72, 40) if values["vector"] == 8 else (37, 67)
    problem = RelationalProblem(MATRIX, *widths, DTYPES[str(values["T"])])
    schedule = {name: values[name] for name in ("tile", "depth", "ordered")}
    for apart in (False, True):
        plan = plan_of(problem, target, int(values["slots"]), apart=apart, **schedule)
        run_relational(plan, problem)
        assert plan.deterministic == values["ordered"]


@every_instance(RGMS_HYB_FLOAT)
@pytest.mark.parametrize("widths", [(37, 67), (64, 32), (1, 1)])
def test_every_float_instance(widths: tuple[int, int], instance: Instance, target: TableTarget) -> None:
    problem, ordered = RelationalProblem(MATRIX, *widths), instance.values["ordered"]
    plan = plan_of(problem, target, int(instance.values["slots"]), ordered=ordered)
    run_relational(plan, problem)


@pytest.mark.parametrize("dtype", list(DType))
@pytest.mark.parametrize("widest", [1, 16])
@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("name", relational_matrices())
def test_tiny_matrices(name: str, ordered: bool, widest: int, dtype: DType, target: TableTarget) -> None:
    problem = RelationalProblem(relational_matrices()[name], 16, 32, dtype)
    schedule: dict[str, Any] = HALF if dtype.narrow else {"slots": 32}
    run_relational(plan_of(problem, target, widest=widest, ordered=ordered, **schedule), problem)


@pytest.mark.parametrize("dtype", list(DType))
def test_ordered_sums_give_the_same_bits_in_any_order_of_blocks(
    dtype: DType, target: TableTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = RelationalProblem(MATRIX, 16, 32, dtype)
    schedule: dict[str, Any] = HALF if dtype.narrow else {"slots": 32}
    plan = plan_of(problem, target, ordered=True, **schedule)
    assert plan.deterministic
    results = []
    for order in ("0", "2", "5"):
        monkeypatch.setenv("SPMARK_HOST_ORDER", order)
        results.append(run_relational(plan, problem))
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)


def test_what_no_kernel_takes_is_refused(target: TableTarget) -> None:
    problem = RelationalProblem(MATRIX, 16, 32)
    with pytest.raises(BuildError, match="expected slots out of"):
        plan_of(problem, target, 256, ordered=False)


def test_operands_are_left_as_they_are(target: TableTarget) -> None:
    problem = RelationalProblem(MATRIX, 16, 32, DType.FLOAT16)
    plan, operands = plan_of(problem, target, ordered=False, **HALF), operand_arrays(problem)
    before = [array.copy() for array in operands]
    plan.run(operands, np.empty(problem.out_shape, np.float16))
    for array, other in zip(operands, before, strict=True):
        np.testing.assert_array_equal(array, other)


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("dtype", list(DType))
def test_a_result_is_as_aligned_as_what_finishes_it_needs(dtype: DType, ordered: bool, target: TableTarget) -> None:
    """Rows of X are copied element by element, rows of Y are cleared and finished by vectors."""
    problem = RelationalProblem(MATRIX, 5, 16, dtype)
    schedule: dict[str, Any] = HALF if dtype.narrow else {"slots": 32}
    plan, operands = plan_of(problem, target, ordered=ordered, **schedule), operand_arrays(problem)
    held = np.empty(problem.out_shape[0] * 16 + 1, dtype.numpy)
    with pytest.raises(OperandError, match="expected an address that is a multiple of 16 bytes"):
        plan.run(operands, held[1:].reshape(problem.out_shape))
    run_relational(plan, problem)
