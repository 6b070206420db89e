"""Timers with a GPU that only says how long a plan would take: what is built, checked and told."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from problems import random_csr

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import BuildError, UnsupportedError
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.liteform.compose import StoredAs
from spmark.impls.liteform.cost import count
from spmark.impls.liteform.features import Features
from spmark.impls.liteform.schedule import Gathering, ScheduleTable, direct_candidates
from spmark.impls.liteform.weights import Weights
from spmark.impls.runtime.device import shipped_calibration
from spmark.impls.tuning.race import FIRST, MORE

gpu = pytest.importorskip("spmark.impls.liteform.study.gpu", reason="needs CuPy")
DEVICE = DeviceSpec.model_validate_json(Path(shipped_calibration("nvidia-h200")).read_text())
MATRIX = random_csr(300, 300, np.random.default_rng(1).integers(0, 90, 300).tolist())


class FakeTarget:
    """Holds arrays on the host; its kernels do nothing."""

    xp, location = np, "cpu"

    def __init__(self, spec: DeviceSpec) -> None:
        self.spec = spec
        self.loaded: list[Any] = []

    def upload(self, array: np.ndarray) -> np.ndarray:
        return array

    def empty(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        return np.empty(shape, dtype)

    def load(self, instances: Sequence[Any]) -> list[Any]:
        self.loaded += instances
        return fake(instances)

    def synchronize(self) -> None:
        pass


def fake(instances: Sequence[Any]) -> list[Any]:
    return [SimpleNamespace(instance=instance, launch=lambda *_, **__: None) for instance in instances]


class FakePlanTimer:
    """A plan takes as long as it stores, and longer the more its groups take."""

    checked: list[Any]

    def __init__(self, problem: Problem, device: DeviceSpec) -> None:
        self._width = problem.width

    def check(self, plan: Any) -> None:
        type(self).checked.append((self._width, plan.stored))

    def times_us(self, plans: Sequence[Any], rounds: int) -> list[list[float]]:
        work = [1 + plan.config.get("work", 0) / 100 for plan in plans]
        return [[plan.stored * self._width * 1e-3 * more] * rounds for plan, more in zip(plans, work, strict=True)]


@pytest.fixture(autouse=True)
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    FakePlanTimer.checked = []
    monkeypatch.setattr(gpu, "PlanTimer", FakePlanTimer)
    monkeypatch.setattr(gpu, "open_target", FakeTarget)
    monkeypatch.setattr("spmark.impls.liteform.plan.open_target", FakeTarget)


def with_table(monkeypatch: pytest.MonkeyPatch, table: ScheduleTable | None) -> None:
    for module in ("study.gpu", "plan", "schedule"):
        monkeypatch.setattr(f"spmark.impls.liteform.{module}.table_for", lambda _: table)


def test_a_config_is_timed_at_every_j_and_checked_at_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with_table(monkeypatch, None)
    timer = gpu.GpuTimer(MATRIX, DEVICE, DType.FLOAT32, (32, 64))
    timer.prepare([(1, 8), (4, 16)])
    first, second = timer.cell(1, 8), timer.cell(4, 16)
    assert set(first) == set(second) == {32, 64}
    assert [width for width, _ in FakePlanTimer.checked] == [32, 64, 32]
    assert timer.cell(2, 4).keys() == {32, 64}, "what was not prepared is laid out when it is asked for"
    assert timer.fixed(StoredAs.CSR, 32)
    assert timer.fixed(StoredAs.DIRECT, 32)
    with pytest.raises(UnsupportedError, match="float16"):
        timer.fixed(StoredAs.BSR, 32)


def test_rows_are_gathered_as_a_plan_would(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = Weights(1.0, 0.1, 1.0, 1.0, 1.0)
    table = ScheduleTable(device="nvidia-h200", entries=(), weights=weights, gathering=Gathering(64, 0, 10.0, weights))
    with_table(monkeypatch, table)
    seen: list[tuple[int, bool]] = []
    real = gpu.EllBucketsPlan

    def watched(problem: Problem, *given: Any, **named: Any) -> Any:
        seen.append((problem.width, named.get("positions") is not None))
        return real(problem, *given, **named)

    monkeypatch.setattr(gpu, "EllBucketsPlan", watched)
    gpu.GpuTimer(MATRIX, DEVICE, DType.FLOAT32, (32, 64)).cell(1, 8)
    assert seen == [(32, False), (64, True)]


def test_what_is_clearly_slower_gets_few_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    with_table(monkeypatch, None)
    timer = gpu.GpuTimer(MATRIX, DEVICE, DType.FLOAT32, (32,))
    counts = [len(timer.cell(1, width)[32]) for width in (8, 1024)]
    assert counts == [FIRST + MORE, FIRST]


def test_schedules_are_timed_with_what_a_table_is_made_of(monkeypatch: pytest.MonkeyPatch) -> None:
    with_table(monkeypatch, None)
    row = gpu.ScheduleTimer(MATRIX, DEVICE, DType.FLOAT32, 64).row("made/up")
    assert (row.matrix, row.nnz, row.width) == ("made/up", MATRIX.nnz, 64)
    assert row.counts(thirds=False).rows.sum() == np.count_nonzero(MATRIX.row_lengths)
    assert len(row.by_width(gathered=False, tail_in_last=False)) > 3
    assert row.trials()
    best = min(row.timed, key=lambda timed: timed.time_us)
    assert best.schedule.work == min(timed.schedule.work for timed in row.timed)
    assert {timed.tail_in_last for timed in row.timed} == {False, True}
    assert {timed.thirds for timed in row.timed if timed.max_width > 16} == {False, True}
    assert not any(timed.thirds for timed in row.timed if timed.max_width <= 16)
    thirds = count(MATRIX, 1, thirds=True)
    np.testing.assert_array_equal(row.counts(thirds=True).slots, thirds.slots)
    np.testing.assert_array_equal(row.counts(thirds=True).split_slots, thirds.split_slots)
    problem = Problem(Op.SPMM, MATRIX, 64)
    assert [timed.schedule for timed in row.direct] == list(direct_candidates(problem))
    trials = row.direct_trials()
    assert trials is not None
    assert trials.cell_us == min(timed.time_us for timed in row.timed)
    assert trials.features == Features.of(MATRIX)


def test_labels_have_the_widths_that_a_plan_would(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = {}
    for thirds in (False, True):
        with_table(monkeypatch, ScheduleTable(device="nvidia-h200", entries=(), thirds=thirds))
        FakePlanTimer.checked = []
        timer = gpu.GpuTimer(MATRIX, DEVICE, DType.FLOAT32, (32,))
        timer.prepare([(1, 64)])
        timer.cell(1, 64)
        stored[thirds] = FakePlanTimer.checked
        timer.cell(1, 32)
        assert FakePlanTimer.checked == stored[thirds], "checked once at a J"
    assert stored[True][0][1] < stored[False][0][1]


def test_a_schedule_with_a_wrong_result_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with_table(monkeypatch, None)

    def check(timer: FakePlanTimer, plan: Any) -> None:
        if plan.config["lanes"] == 8:
            raise BuildError("wrong result")

    monkeypatch.setattr(FakePlanTimer, "check", check)
    row = gpu.ScheduleTimer(MATRIX, DEVICE, DType.FLOAT32, 64).row("made/up")
    assert row.timed
    assert 8 not in {timed.schedule.lanes for timed in row.timed}


def test_where_no_schedule_can_be_timed_the_matrix_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with_table(monkeypatch, None)

    def check(timer: FakePlanTimer, plan: Any) -> None:
        raise BuildError("wrong result")

    monkeypatch.setattr(FakePlanTimer, "check", check)
    with pytest.raises(BuildError, match="made/up: expected a schedule"):
        gpu.ScheduleTimer(MATRIX, DEVICE, DType.FLOAT32, 64).row("made/up")


def test_every_kernel_is_compiled_before(monkeypatch: pytest.MonkeyPatch) -> None:
    target = FakeTarget(DEVICE)
    monkeypatch.setattr(gpu, "open_target", lambda _: target)
    gpu.compile_schedules(DEVICE, [DType.FLOAT32], [32, 512], None)
    assert len(target.loaded) == len({one.expression for one in target.loaded}) > 4


def test_the_climb_begins_at_the_width_of_least_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    with_table(monkeypatch, None)
    assert 1 <= gpu.start_width(MATRIX, DEVICE) <= 128


def test_every_kernel_of_a_schedule_is_compiled_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    monkeypatch.setattr(FakeTarget, "load", lambda _, some: loaded.extend(one.expression for one in some) or fake(some))
    gpu.compile_schedules(DEVICE, list(DType), (32, 512), None)
    ahead = set(loaded)
    assert len(ahead) == len(loaded)
    loaded.clear()
    for dtype in DType:
        gpu.ScheduleTimer(MATRIX, DEVICE, dtype, 512).row("made/up")
    timed = {one for one in loaded if one.startswith(("spmm_ell_buckets", "spmm_direct"))}
    assert timed
    assert timed <= ahead
