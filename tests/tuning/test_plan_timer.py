"""The check of a search's candidates, with NumPy in the place of CuPy: what is wrong has no times."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from problems import dense_operands, random_csr
from relational import relational_problems

from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.errors import BuildError
from spmark.impls.core.operators import reference
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.runtime import cudalab, withcupy
from spmark.impls.runtime.device import find
from spmark.impls.scipy_cpu.plan import ScipyCpu
from spmark.impls.table import create
from spmark.impls.tuning.timer import PlanTimer, timer_of

MATRIX = random_csr(40, 2500, [3] * 20 + [2000] + [0] + [5] * 18)
LONGEST = 20
PROBLEM = Problem(Op.SPMM, MATRIX, 24, DType.FLOAT32)


class Stopwatch:
    """Runs what it is given and says that every run took 7 us."""

    def __init__(self, spec: object) -> None:
        pass

    def batch(self, runs: Sequence[Any], rounds: int, cold: bool) -> np.ndarray:
        assert cold
        for _ in range(rounds):
            for run in runs:
                run()
        return np.full((len(runs), rounds), 7.0)


class Product:
    """A right result, but for one fault."""

    def __init__(self, problem: Problem, fault: str) -> None:
        rows = np.arange(problem.matrix.num_rows)
        full = reference(problem, dense_operands(problem))
        self.right = np.zeros(problem.out_shape)
        self.right[rows] = full.result
        self.fault, self.runs, self.order, self.half_sums = fault, 0, None, False

    def run(self, operands: Sequence[Any], out: Any) -> None:
        self.runs += 1
        if self.fault == "adds into what is there":
            out += self.right
            return
        empty = LONGEST + 1
        for row in range(out.shape[0]):
            if not (self.fault == "leaves an empty row" and row == empty):
                out[row] = self.right[row]
        if self.fault == "drops an element of the longest row":
            column, value = MATRIX.indices[MATRIX.indptr[LONGEST]], MATRIX.values[MATRIX.indptr[LONGEST]]
            out[LONGEST] -= value * operands[0][column]


@pytest.fixture
def timer(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(withcupy, "cupy", np)
    monkeypatch.setattr(cudalab, "CudaStopwatch", Stopwatch)
    # NumPy has neither kernels nor a memset.
    monkeypatch.setattr(cudalab, "draw", lambda operand, out, arch: operand.fill(out))
    monkeypatch.setattr(cudalab, "taken", lambda array, places, dtype, arch: array[places])
    monkeypatch.setattr(PlanTimer, "_forget", lambda self: self._out.view(np.uint8).fill(0xFF))
    return PlanTimer(PROBLEM, find("host-simt").model_copy(update={"kind": DeviceKind.CUDA}))


def test_a_right_result_passes(timer: Any) -> None:
    plan = Product(PROBLEM, "")
    timer.check(plan)
    assert plan.runs == 1
    assert timer.times_us([plan], 9) == [[7.0] * 9]
    assert plan.runs > 1


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("adds into what is there", "left .* elements of `out` that it did not write"),
        ("leaves an empty row", "left 24 elements of `out` that it did not write"),
        ("drops an element of the longest row", "expected an error of at most .*, found a largest relative error of"),
    ],
)
def test_a_wrong_result_is_refused(fault: str, reason: str, timer: Any) -> None:
    plan = Product(PROBLEM, fault)
    with pytest.raises(BuildError, match="wrong result: .*" + reason):
        timer.check(plan)
    assert plan.runs == 1


def acting(number: int, order: list[int], monkeypatch: pytest.MonkeyPatch) -> Product:
    plan = Product(PROBLEM, "")
    monkeypatch.setattr(plan, "run", lambda operands, out: order.append(number))
    return plan


def test_plans_are_timed_in_alternation(timer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stopwatch, "state", lambda self: (0.0, []), raising=False)
    order: list[int] = []
    times = timer.alternating_us([acting(number, order, monkeypatch) for number in range(3)])
    assert [len(each) for each in times] == [10, 10, 10]  # all alike: known at once
    rounds = [tuple(order[at : at + 3]) for at in range(0, len(order), 3)]
    assert {tuple(sorted(one)) for one in rounds} == {(0, 1, 2)}
    assert len(set(rounds)) > 1


def test_a_race_on_the_host_checks_and_times_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spmark.impls.tuning.timer._HOST_S", 60.0)
    timer, device = PlanTimer(PROBLEM, find("cpu")), find("cpu")
    plan = ScipyCpu().build(PROBLEM, device)
    timer.check(plan)
    times = timer.times_us([plan, plan], 3)
    assert [len(each) for each in times] == [3, 3]
    assert all(time > 0 for each in times for time in each)
    with pytest.raises(BuildError, match="wrong result: "):
        timer.check(Product(PROBLEM, "leaves an empty row"))


@pytest.mark.parametrize("name", ["rgms_hyb", "gather_gemm_scatter"])
def test_plans_of_rgms_are_checked(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem, host = relational_problems((16, 8))["hub-16-8-float32"], find("host-simt")
    timer, plan = PlanTimer(problem, host), create(name).build(problem, host)
    timer.check(plan)
    right = plan.run

    def without_the_hub(operands: Any, out: Any) -> None:
        right(operands, out)
        out[1] = 0

    monkeypatch.setattr(plan, "run", without_the_hub)
    with pytest.raises(BuildError, match="wrong result"):
        timer.check(plan)


def test_races_within_a_race_share_its_timer() -> None:
    host, twin = find("cpu"), Problem(Op.SPMM, MATRIX, 24, DType.FLOAT32)
    outer = timer_of(PROBLEM, host)
    assert timer_of(PROBLEM, host) is outer
    assert timer_of(twin, host) is not outer
    with ThreadPoolExecutor(1) as other:
        assert other.submit(timer_of, PROBLEM, host).result() is not outer
    kept = weakref.ref(outer)
    del outer
    gc.collect()
    assert kept() is None
