"""The check of a search's candidates, with NumPy in the place of CuPy: what is wrong has no times."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from problems import dense_operands, random_csr

from spmark.impls.core.errors import BuildError
from spmark.impls.core.operators import reference
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.runtime.device import find

MATRIX = random_csr(40, 2500, [3] * 20 + [2000] + [0] + [5] * 18)
LONGEST = 20


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
        self.fault, self.runs, self.order = fault, 0, None

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
def trial(monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("cupy")
    from spmark.impls.kernels import trial

    monkeypatch.setattr(trial, "cupy", SimpleNamespace(**{**vars(np), "asnumpy": np.asarray}))
    monkeypatch.setattr(trial, "CudaStopwatch", Stopwatch)
    return trial.Trial(Problem(Op.SPMM, MATRIX, 24, DType.FLOAT32), find("host-simt"))


def test_a_right_result_is_timed_after_its_check(trial: Any) -> None:
    plan = Product(Problem(Op.SPMM, MATRIX, 24), "")
    assert set(trial.samples_us(plan)) == {7.0}
    assert plan.runs > 1


@pytest.mark.parametrize(
    "fault", ["adds into what is there", "leaves an empty row", "drops an element of the longest row"]
)
def test_a_wrong_result_is_refused_before_it_is_timed(fault: str, trial: Any) -> None:
    plan = Product(Problem(Op.SPMM, MATRIX, 24), fault)
    with pytest.raises(BuildError, match=r"wrong result: expected an error of at most .*, found (inf|nan|\d)"):
        trial.samples_us(plan)
    assert plan.runs == 1


def test_plans_are_timed_in_alternation(trial: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stopwatch, "state", lambda self: (0.0, []), raising=False)
    problem = Problem(Op.SPMM, MATRIX, 24)
    plans = [Product(problem, "") for _ in range(3)]
    order: list[int] = []
    for number, plan in enumerate(plans):
        monkeypatch.setattr(plan, "run", lambda operands, out, number=number: order.append(number))
    times = trial.alternating_us(plans)
    assert [len(each) for each in times] == [10, 10, 10]  # all alike: known at once
    assert order == [0, 1, 2] * (len(order) // 3)
