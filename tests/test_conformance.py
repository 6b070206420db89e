"""Every implementation of the table on every tiny problem and every kind of device that is here.

An implementation that is added to the table is covered without an edit.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import nullcontext
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from _pytest.mark import ParameterSet
from problems import problems
from together import compiled_together, given_on_host

from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.errors import DeviceError
from spmark.impls.core.interfaces import Plan
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.runtime.device import find
from spmark.impls.table import IMPLEMENTATIONS, create
from spmark.suite.conformance import (
    ORDERED,
    WRONG_ARRAYS,
    NonconformingError,
    Place,
    build_plan,
    check_account,
    check_capture,
    check_orders,
    check_refuses,
    check_refuses_number_and_overlap,
    check_result,
)


def kinds_of(name: str) -> list[DeviceKind]:
    module, _, label = IMPLEMENTATIONS[name].partition(":")
    try:
        return sorted(getattr(import_module(module), label).devices)
    except (ImportError, AttributeError):
        return [DeviceKind.CPU]  # the test itself fails on it


PAIRS = [
    pytest.param(name, kind, id=f"{name}-{kind}", marks=[pytest.mark.gpu] if kind is DeviceKind.CUDA else [])
    for name in IMPLEMENTATIONS
    for kind in kinds_of(name)
]
ONE_IN = 5
"""`make test` takes one problem in so many, no divisor of the nine pairs of operator and type that follow each other.
"""
PLANS_OF_OTHERS = {"auto": 17, "dash": 17}
"""The same of implementations that choose among plans which are tested under other names: of their
problems, `make test-rest` takes one in `ONE_IN` alone."""
HOST_PAIRS = [pair for pair in PAIRS if pair.values[1] is DeviceKind.HOST_SIMT]
CUDA_PAIRS = [pair for pair in PAIRS if pair.values[1] is DeviceKind.CUDA]


def one_problem(name: str, op: Op, place: Place) -> Problem:
    """Give a problem for what one is enough for: in float32, or in the dtype that the implementation takes."""
    found = [problems()[f"{op}-empty_rows-J20-{dtype}"] for dtype in DType]
    return next((one for one in found if create(name).unsupported(one, place.spec) is None), found[0])


@pytest.fixture
def place(kind: DeviceKind) -> Place:
    try:
        return Place(find(kind.value))
    except DeviceError as error:
        pytest.skip(f"{kind}: {error}")


@pytest.fixture(scope="module", autouse=True)
def few_executables(request: pytest.FixtureRequest) -> Generator[None]:
    """Compile the kernels of a source once for all tests of this file that run."""
    given = [one for one in given_on_host(request) if one["name"] not in PLANS_OF_OTHERS]
    with compiled_together(partial(build_of, **one) for one in given):
        yield


def build_of(name: str, kind: DeviceKind, problem: Problem | None = None, **others: Any) -> Plan | str:
    """Build the plan of a test with these parameters."""
    place = Place(find(kind.value))
    if problem is None:
        problem = problems()[others["case"]] if "case" in others else one_problem(name, others["op"], place)
    return build_plan(create(name), problem, place)


def build(name: str, problem: Problem, place: Place) -> Plan:
    plan = build_plan(create(name), problem, place)
    if isinstance(plan, str):
        pytest.skip(f"{name}: {plan}")
    return plan


def results() -> list[ParameterSet]:
    """Pair implementations with problems; two neighbours in the table take other problems in `make test`."""
    found = []
    for turn, pair in enumerate(PAIRS):
        name = str(pair.values[0])
        one_in = PLANS_OF_OTHERS.get(name, ONE_IN)
        for number, (case, problem) in enumerate(problems().items()):
            left_out = (number + turn) % one_in != 0
            if left_out and name in PLANS_OF_OTHERS and number % ONE_IN:
                continue
            marks = [*pair.marks, *([pytest.mark.full] if left_out else [])]
            found.append(pytest.param(*pair.values, problem, id=f"{pair.id}-{case}", marks=marks))
    return found


@pytest.mark.parametrize(("name", "kind", "problem"), results())
def test_result(name: str, problem: Problem, place: Place) -> None:
    check_result(build(name, problem, place), problem, place)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("case", ORDERED)
@pytest.mark.parametrize(("name", "kind"), HOST_PAIRS)
def test_every_order_gives_the_result(name: str, case: str, place: Place) -> None:
    """Blocks, warps and lanes run down, and as two seeds draw them."""
    problem = problems()[case]
    check_orders(build(name, problem, place), problem, place)


@pytest.mark.parametrize("op", Op)
@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_accounts(name: str, op: Op, place: Place) -> None:
    problem = one_problem(name, op, place)
    check_account(build(name, problem, place), problem)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("fault", WRONG_ARRAYS)
@pytest.mark.parametrize("op", Op)
@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_wrong_array_is_refused(name: str, op: Op, fault: str, place: Place) -> None:
    problem = one_problem(name, op, place)
    check_refuses(fault, build(name, problem, place), problem, place)


@pytest.mark.parametrize("op", Op)
@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_wrong_number_and_overlap_are_refused(name: str, op: Op, place: Place) -> None:
    problem = one_problem(name, op, place)
    check_refuses_number_and_overlap(build(name, problem, place), problem, place)


@pytest.mark.gpu
@pytest.mark.parametrize("op", Op)
@pytest.mark.parametrize(("name", "kind"), CUDA_PAIRS)
def test_run_can_be_captured(name: str, op: Op, place: Place) -> None:
    """An allocation, a synchronisation or a launch on another stream breaks the capture of a CUDA graph."""
    problem = one_problem(name, op, place)
    refused = pytest.raises(NonconformingError, match="during stream capture") if name == "cupyx" else nullcontext()
    with refused:
        check_capture(build(name, problem, place), problem, place)


@pytest.mark.parametrize("kept", ["the result", "an operand"])
def test_a_plan_that_keeps_what_a_run_brought_is_found(kept: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, problem = Place(find("cpu")), problems()["spmm-empty_rows-J20-float32"]
    plan = create("scipy_cpu").build(problem, place.spec)
    whole_run, held = plan.run, list[Any]()

    def keeping(operands: Any, out: Any) -> None:
        held.append(operands if kept == "an operand" else None)
        whole_run(held[0] or operands, out)
        if kept == "the result":
            held[0] = None
            held.append(out.copy())
            out[:] = held[1]

    monkeypatch.setattr(plan, "run", keeping)
    with pytest.raises(NonconformingError, match="found that of the operands of an earlier run; keep no result"):
        check_result(plan, problem, place)


def test_a_result_that_is_left_unwritten_is_called_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that writes all rows but the first: the failure names what it left, not an error of infinity."""
    place, problem = Place(find("cpu")), problems()["spmm-empty_rows-J20-float32"]
    plan = create("scipy_cpu").build(problem, place.spec)
    whole_run = plan.run

    def lazy(operands: Any, out: Any) -> None:
        whole_run(operands, complete := np.empty_like(out))
        out[1:] = complete[1:]

    monkeypatch.setattr(plan, "run", lazy)
    monkeypatch.setattr(sys.modules[__name__], "build", lambda *_: plan)
    with pytest.raises(
        NonconformingError, match=r"20 elements of `out` that the run left unwritten, .* at \(0, 0\); wri"
    ):
        test_result("scipy_cpu", problem, place)
