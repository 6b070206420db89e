"""What others do on the cores, told apart from this process's own work."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from spmark.impls.core import machine as load_module
from spmark.impls.core.machine import Load, LoadMeter


class Machine:
    """A clock and accounts that a test moves on."""

    def __init__(self, cores: int) -> None:
        self.now, self.own, self.used = 100.0, 5.0, [50.0] * cores

    def work(self, seconds: float, own: float, others: list[float]) -> None:
        self.now += seconds
        self.own += own
        self.used = [used + own / len(others) + other for used, other in zip(self.used, others, strict=True)]

    def cpu_times(self, percpu: bool) -> list[SimpleNamespace]:
        return [SimpleNamespace(user=used * 0.6, system=used * 0.3, steal=used * 0.1, idle=1e6) for used in self.used]


@pytest.fixture
def machine(monkeypatch):
    made = Machine(4)
    times = SimpleNamespace(user=0, system=0, children_system=0)
    monkeypatch.setattr(load_module.psutil, "cpu_times", made.cpu_times)
    monkeypatch.setattr(load_module.time, "monotonic", lambda: made.now)
    monkeypatch.setattr(load_module.os, "times", lambda: SimpleNamespace(**vars(times), children_user=made.own))
    monkeypatch.setattr(load_module, "allowed_cores", lambda: [0, 1, 2])
    return made


def test_what_others_take_of_this_process_s_cores_is_not_free(machine):
    meter = LoadMeter()
    machine.work(2.0, own=1.5, others=[2.0, 0.4, 0.0, 2.0])
    # Of its own work a quarter was on the core that this process may not use.
    assert meter.read().free_cores == pytest.approx(3 - (2.4 - 1.5 / 4) / 2, abs=0.01)


def test_own_work_leaves_the_cores_free(machine):
    meter = LoadMeter()
    machine.work(1.0, own=2.0, others=[0.0] * 4)
    assert meter.read() == Load(3, 3.0, pytest.approx(os.getloadavg()[0], abs=0.5))


def test_moments_and_systems_without_accounts_say_nothing(machine):
    meter = LoadMeter()
    machine.work(0.05, own=0, others=[0.05] * 4)
    assert meter.read().free_cores is None
    machine.used = [0.0] * 4
    machine.now += 10
    assert meter.read().free_cores is None
    assert not meter.read().busy


@pytest.mark.parametrize(
    ("cores", "free", "busy"),
    [
        (2, 1.6, False),
        (2, 1.4, True),
        (1, 0.4, True),
        (64, 60.0, False),
        (64, 57.0, True),
        (8, None, False),
        (8, 8.2, False),
    ],
)
def test_from_when_on_a_machine_is_busy(cores, free, busy):
    assert Load(cores, free).busy is busy
