"""The gate before a record: each implementation here is wrong in one way that only one of its checks can see."""

from __future__ import annotations

import logging
import sys
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray
from suite_fakes import but, rmat_case

from spmark.datasets.cache import Cache
from spmark.impls.core.devicespec import BUSY, DeviceKind, DeviceSpec
from spmark.impls.core.errors import KernelFault
from spmark.impls.core.interfaces import Built
from spmark.impls.core.operators import random_operands, reference
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.core.tolerance import tolerance
from spmark.impls.runtime.device import find
from spmark.impls.runtime.timing import Run, Stopwatch
from spmark.impls.table import IMPLEMENTATIONS
from spmark.records.schema import MatrixRef, Status
from spmark.suite import measure
from spmark.suite.measure import Bench
from spmark.suite.plan.options import Options

DEVICE = find("cpu").model_copy(update={"read_bytes_per_s": 0.0, "fma_flops_per_s": 0.0})  # no time is implausible
QUICK = {kind: replace(how, max_seconds=0.02) for kind, how in measure._STOPPING.items()}
COLD_US, WARM_US, GRAPH_US = 30.0, 20.0, 10.0
CASE = rmat_case("actor", 8, 16)
Spoil = Callable[[NDArray[Any], NDArray[Any]], None]
"""Changes a right result, given what rounding may change of each element."""


class Act(Built):
    """A plan that computes the truth in float64, and then spoils it."""

    def __init__(self, problem: Problem, spoil: Spoil, seen: list[tuple[Problem, list[NDArray[Any]]]]) -> None:
        super().__init__({}, {}, problem.matrix.nnz, problem.matrix.nbytes)
        self._problem, self._spoil, self._seen = problem, spoil, seen

    def run(self, operands: Sequence[Any], out: Any) -> None:
        self._seen.append((self._problem, [np.array(operand) for operand in operands]))
        truth = reference(self._problem, operands)
        out[:] = truth.result
        self._spoil(out, truth.magnitude * tolerance(self._problem))


@dataclass(frozen=True)
class Actor:
    """Spoils nothing, but in what a test says."""

    name: ClassVar[str] = "actor"
    ops: ClassVar[frozenset[Op]] = frozenset(Op)
    devices: ClassVar[frozenset[DeviceKind]] = frozenset({DeviceKind.CPU})
    spoil: ClassVar[Spoil] = staticmethod(lambda out, allowed: None)
    seen: ClassVar[list[tuple[Problem, list[NDArray[Any]]]]] = []

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        return None

    def build(self, problem: Problem, device: DeviceSpec) -> Act:
        return Act(problem, type(self).spoil, type(self).seen)


@dataclass(frozen=True)
class Rival(Actor):
    """The same as a baseline, with a spoil of its own."""

    name: ClassVar[str] = "rival"
    spoil: ClassVar[Spoil] = staticmethod(lambda out, allowed: None)


class Clock(Stopwatch):
    """Says how each run was asked for."""

    def __init__(self, fails_warm: bool = False) -> None:
        self.cold: list[bool] = []
        self._fails_warm = fails_warm

    def batch(self, runs: Sequence[Run], rounds: int, cold: bool) -> NDArray[np.float64]:
        self.cold.append(cold)
        if self._fails_warm and not cold:
            raise KernelFault("an illegal address, once caches were warm")
        return np.full((len(runs), rounds), COLD_US if cold else WARM_US)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    module = types.ModuleType("spmark.impls.actor.plan")
    module.Actor, module.Rival = Actor, Rival  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "spmark.impls.actor.plan", module)
    own = {"actor": "spmark.impls.actor.plan:Actor", "rival": "spmark.impls.actor.plan:Rival"}
    monkeypatch.setattr("spmark.impls.table.IMPLEMENTATIONS", {**IMPLEMENTATIONS, **own})
    monkeypatch.setattr(measure, "_STOPPING", QUICK)
    monkeypatch.setattr(Actor, "seen", [])
    return Bench(DEVICE, Cache.default())


def spoil_one(factor: float) -> Spoil:
    """Move one element by a part of what rounding may move it."""

    def spoil(out: NDArray[Any], allowed: NDArray[Any]) -> None:
        place = np.unravel_index(int(np.argmax(allowed)), out.shape)
        out[place] += factor * allowed[place]

    return spoil


@pytest.mark.parametrize(
    ("factor", "status"), [(0.0, Status.OK), (0.5, Status.OK), (2.0, Status.WRONG_RESULT), (-5.0, Status.WRONG_RESULT)]
)
def test_no_more_is_allowed_than_rounding_explains(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, factor: float, status: Status
) -> None:
    monkeypatch.setattr(Actor, "spoil", staticmethod(spoil_one(factor)))
    row, _ = bench.measure(CASE)
    assert row.status is status, row.reason
    assert bool(row.samples_us) == (status is Status.OK)


def test_only_a_plan_that_declares_half_sums_may_err_as_these_do(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Actor, "spoil", staticmethod(spoil_one(256.0)))
    case = but(CASE, dtype=DType.FLOAT16)
    assert bench.measure(case)[0].status is Status.WRONG_RESULT
    build = Actor.build

    def declared(self: Actor, problem: Problem, device: DeviceSpec) -> Act:
        plan = build(self, problem, device)
        plan.half_sums = True
        return plan

    monkeypatch.setattr(Actor, "build", declared)
    assert bench.measure(case)[0].status is Status.OK


def test_rates_of_a_busy_machine_refuse_no_time(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = DEVICE.model_copy(update={"read_bytes_per_s": 1.0})
    monkeypatch.setattr(bench, "_device", slow)
    assert bench.measure(CASE)[0].status is Status.IMPLAUSIBLE
    monkeypatch.setattr(bench, "_device", slow.model_copy(update={"calibrated_with": {BUSY: "1.5 of 2 cores"}}))
    assert bench.measure(CASE)[0].status is Status.OK


@pytest.mark.parametrize("what", ["element", "row"])
def test_rows_that_are_not_sampled_must_be_written_too(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    def forget(out: NDArray[Any], allowed: NDArray[Any]) -> None:
        out[3, 5 if what == "element" else slice(None)] = np.nan

    monkeypatch.setattr(Actor, "spoil", staticmethod(forget))
    monkeypatch.setattr(measure, "sampled_rows", lambda problem, seed: np.arange(100, 200))
    row, _ = bench.measure(CASE)
    assert row.status is Status.WRONG_RESULT
    assert f"left {1 if what == 'element' else 16} elements of `out` that it did not write" in row.reason
    assert row.samples_us == []


def test_a_baseline_with_a_wrong_result_is_none(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    case = but(CASE, baseline="rival")
    row, _ = bench.measure(case)
    assert row.baseline.implementation == "rival"
    bench._forget()  # the plan of a baseline is kept for the problem
    monkeypatch.setattr(Rival, "spoil", staticmethod(spoil_one(2.0)))
    with caplog.at_level(logging.WARNING):
        row, _ = bench.measure(case)
    assert row.status is Status.OK
    assert row.baseline is None
    assert "no baseline: " in caplog.text


@pytest.mark.parametrize(
    "changes",
    [
        {"scaled": True},
        {"seed": 4},
        {"width": 24},
        {"dtype": DType.FLOAT16},
        {"op": Op.SPMM},
        {"matrix": MatrixRef(source="rmat", name="rmat_7", args={"scale": 7})},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_problem_and_operands_are_those_of_the_case_whatever_was_measured_before(
    bench: Bench, changes: dict[str, Any]
) -> None:
    first = but(CASE, op=Op.SDDMM)
    for case in (first, but(first, **changes), first):
        Actor.seen.clear()
        row, _ = bench.measure(case)
        assert row.status is Status.OK, row.reason
        problem, operands = Actor.seen[0]
        assert (problem.op, problem.width, problem.dtype, problem.scaled) == (
            case.op,
            case.width,
            case.dtype,
            case.scaled,
        )
        assert problem.matrix.hash == row.matrix_hash
        loaded = measure.load_matrix(case.matrix, bench._cache, case.seed)
        assert np.array_equal(problem.values, problem.dtype.stored(loaded.csr.values))
        expected = random_operands(problem, case.seed)
        assert len(operands) == len(expected)
        assert all(source.equals(operand) for source, operand in zip(expected, operands, strict=True))


def test_a_failed_case_has_no_samples_and_its_baseline_neither(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(fails_warm=True)
    monkeypatch.setattr(bench._lab, "stopwatch", clock)
    monkeypatch.setattr(bench, "_options", Options(warm=True))
    row, _ = bench.measure(but(CASE, baseline="rival"))
    assert clock.cold[:2] == [True, True]  # there were samples
    assert row.status is Status.RUN_ERROR
    assert row.samples_us == row.warm_samples_us == row.graph_samples_us == row.clocks_mhz == []
    assert (row.baseline, row.load_average) == (None, None)
    assert row.max_rel_error is not None


def test_cold_and_warm_samples_are_what_they_are_called(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench._lab, "stopwatch", Clock())
    monkeypatch.setattr(bench._lab, "graph_times_us", lambda run, replays: [GRAPH_US] * replays)
    monkeypatch.setattr(bench, "_options", Options(warm=True))
    monkeypatch.setattr(measure, "_GRAPH_BELOW_US", COLD_US + 1)
    row, _ = bench.measure(CASE)
    assert set(row.samples_us) == {COLD_US}
    assert set(row.warm_samples_us) == {WARM_US}
    assert set(row.graph_samples_us) == {GRAPH_US}
