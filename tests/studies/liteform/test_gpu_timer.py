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
from spmark.impls.core.problem import DType, Problem
from spmark.impls.liteform.compose import StoredAs
from spmark.impls.liteform.cost import count
from spmark.impls.liteform.schedule import ScheduleTable
from spmark.impls.runtime.device import shipped_calibration

gpu = pytest.importorskip("spmark.studies.liteform.gpu", reason="needs CuPy")
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

    def filled(self, shape: tuple[int, ...], dtype: Any, byte: int) -> np.ndarray:
        return np.zeros(shape, dtype)

    def load(self, instances: Sequence[Any]) -> list[Any]:
        self.loaded += instances
        return fake(instances)

    def kernel(self, instance: Any) -> Any:
        return self.load([instance])[0]

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
    for module in ("studies.liteform.gpu", "impls.liteform.plan", "impls.liteform.schedule"):
        monkeypatch.setattr(f"spmark.{module}.table_for", lambda _: table)


def test_a_config_is_timed_at_every_j_and_checked_at_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with_table(monkeypatch, None)
    timer = gpu.GpuTimer(MATRIX, DEVICE, DType.FLOAT32, (32, 64))
    first, second = timer.cell(1, 8), timer.cell(4, 16)
    assert set(first) == set(second) == {32, 64}
    assert [width for width, _ in FakePlanTimer.checked] == [32, 64, 32]
    assert timer.fixed(StoredAs.CSR, 32)
    with pytest.raises(UnsupportedError, match="16-bit floats"):
        timer.fixed(StoredAs.BSR, 32)


def test_schedules_are_timed_with_what_a_table_is_made_of(monkeypatch: pytest.MonkeyPatch) -> None:
    with_table(monkeypatch, None)
    row = gpu.ScheduleTimer(MATRIX, DEVICE, DType.FLOAT32, 64).row("made/up")
    assert (row.matrix, row.nnz, row.width) == ("made/up", MATRIX.nnz, 64)
    assert row.counts(thirds=False).rows.sum() == np.count_nonzero(MATRIX.row_lengths)
    assert len({timed.max_width for timed in row.timed}) > 3
    best = min(row.timed, key=lambda timed: timed.time_us)
    assert best.schedule.work == min(timed.schedule.work for timed in row.timed)
    assert {timed.thirds for timed in row.timed if timed.max_width > 16} == {False, True}
    assert not any(timed.thirds for timed in row.timed if timed.max_width <= 16)
    thirds = count(MATRIX, 1, thirds=True)
    np.testing.assert_array_equal(row.counts(thirds=True).slots, thirds.slots)
    np.testing.assert_array_equal(row.counts(thirds=True).split_slots, thirds.split_slots)


def test_a_schedule_with_a_wrong_result_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with_table(monkeypatch, None)

    def check(timer: FakePlanTimer, plan: Any) -> None:
        if plan.config["lanes"] == 8:
            raise BuildError("wrong result")

    monkeypatch.setattr(FakePlanTimer, "check", check)
    row = gpu.ScheduleTimer(MATRIX, DEVICE, DType.FLOAT32, 64).row("made/up")
    assert row.timed
    assert 8 not in {timed.schedule.lanes for timed in row.timed}
