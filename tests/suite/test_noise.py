"""A busy machine and wide intervals are said: before a run, in its records, in its table, and to `calibrate`."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import pytest

from spmark.impls.core import machine as load_meter
from spmark.impls.core.machine import Load
from spmark.impls.runtime import device
from spmark.impls.stile.calibration import published_a100
from spmark.suite.cli import run as run_command

BUSY, IDLE = Load(2, 0.4, 3.0), Load(2, 1.9, 0.1)


class Meter:
    """Says what a test wants of the machine."""

    def __init__(self, load: Load) -> None:
        self.load = load

    def read(self, least_s: float = 0.0) -> Load:
        return self.load


@pytest.fixture
def machine(monkeypatch):
    """Make the machine busy or idle for the commands."""

    def machine(load: Load) -> None:
        for module in (run_command, load_meter):
            monkeypatch.setattr(module, "LoadMeter", lambda: Meter(load))

    return machine


@pytest.mark.parametrize("load", [BUSY, IDLE])
def test_a_run_on_a_busy_machine_is_warned_of(invoke, sweep, machine, load):
    machine(load)
    code, out, err = invoke("run", sweep, "--only", "label=fake")
    assert code == 0, err
    warned = "This machine is busy: other processes take 1.6 of 2 cores" in out
    assert warned is (load is BUSY)
    assert "busy" not in invoke("run", sweep, "--dry-run")[1], "a dry run measures nothing"


def test_records_that_a_busy_machine_made_are_counted(invoke, sweep, machine, fakes, monkeypatch):
    """The bench of the child is real code; here the rows that came back say how busy it was."""
    machine(IDLE)
    measure = run_command.execute

    def execute(*arguments, **named):
        summary = measure(*arguments, **named)
        rows = tuple(row.model_copy(update={"free_cores": 0.3}) for row in summary.rows)
        return replace(summary, rows=rows, cores=2)

    monkeypatch.setattr(run_command, "execute", execute)
    out = invoke("run", sweep, "--only", "label=fake")[1]
    assert "The machine was busy in 2 of 2 cases (at the worst, other processes take 1.7 of 2 cores)" in out
    assert json.loads(invoke("run", sweep, "--only", "label=fake", "--retry", "ok", "--json")[1])["busy"] == 2


def test_the_table_marks_wide_intervals_and_says_what_the_mark_is(invoke, sweep, machine, monkeypatch):
    from spmark.report.tables import table as summary

    machine(IDLE)
    row = {"op": "spmm", "dtype": "float32", "implementation": "fake", "speedup": "2.05× ~", "ok": 2, "failed": 0}
    monkeypatch.setattr(summary, "short_table", lambda frame: [row])
    out = " ".join(invoke("run", sweep, "--only", "label=fake")[1].split())
    assert "~ at least half of the cases have a 95 % interval that reaches more than 10%" in out
    monkeypatch.setattr(summary, "short_table", lambda frame: [row | {"speedup": "2.05×"}])
    assert "~" not in invoke("run", sweep, "--only", "label=fake", "--retry", "ok")[1]


@pytest.fixture
def calibrate(invoke, fakes, monkeypatch, tmp_path):
    """Calibrate the fake device, whose rates come out as a multiple of what its spec says."""
    path = tmp_path / "cpu.json"
    monkeypatch.setattr(device, "find", lambda name: fakes.CPU)

    def calibrate(factor, *options):
        made = {name: factor * getattr(fakes.CPU, name) for name in ("copy_bytes_per_s", "fma_flops_per_s")}
        monkeypatch.setattr(device, "calibrate", lambda spec: spec.model_copy(update=made))
        code, _, err = invoke("calibrate", "--device", "cpu", "--out", path, *options)
        return code, err, device.DeviceSpec.load(path).fma_flops_per_s / fakes.CPU.fma_flops_per_s

    return calibrate


def test_a_busy_machine_replaces_no_calibration(calibrate, machine):
    machine(BUSY)
    assert calibrate(1)[0] == 0, "there was none"
    code, err, kept = calibrate(1.1)
    assert (code, kept) == (3, 1.0)
    assert "expected an idle machine to replace this calibration, found that other processes take 1.6 of 2 cores" in err
    assert "--force" in err
    assert calibrate(1.1, "--force")[::2] == (0, pytest.approx(1.1))


@pytest.mark.parametrize("factor", [0.1, 0.4, 1.6])
def test_rates_that_differ_much_replace_no_calibration(calibrate, machine, factor):
    machine(IDLE)
    calibrate(1)
    code, err, kept = calibrate(factor)
    assert (code, kept) == (3, 1.0)
    assert f"float32 multiply-add {100 * factor:.0f} GFLOP/s instead of 100 GFLOP/s" in err
    assert calibrate(factor, "--force")[::2] == (0, pytest.approx(factor))


def test_what_was_measured_of_a_gpu_is_told(invoke, fakes, machine, monkeypatch, tmp_path):
    machine(IDLE)
    measured = {
        "cold_launch_s": 2.25e-6, "cold_load_s": 0.7e-6, "l2_gather_bytes_per_s": {64: 5e12},
        "l1_gather_bytes_per_s": {64: 2e13}, "table_gather_bytes_per_s": {2 * fakes.CPU.l2_bytes: 2e10},
    }  # fmt: skip
    monkeypatch.setattr(device, "find", lambda name: fakes.CPU)
    monkeypatch.setattr(device, "calibrate", lambda spec: spec.model_copy(update=measured))
    _, out, _ = invoke("calibrate", "--device", "cpu", "--out", tmp_path / "gpu.json")
    told = [" ".join(line.strip("│").replace("│", " ").split()) for line in out.splitlines()]
    assert {
        "L2 gather, rows of 64 B 5,000 GB/s",
        "L1 gather, rows of 64 B 20,000 GB/s",
        "gather, table of 2 x L2 20 GB/s",
        "launch, caches cold 2.25 us",
        "load that another waits for 0.70 us",
        "from memory, table of 2 x L2 50% at most",
    } <= set(told)


@pytest.mark.parametrize("factor", [0.6, 1.4])
def test_rates_that_differ_little_replace_it(calibrate, machine, factor):
    machine(IDLE)
    calibrate(1)
    assert calibrate(factor)[::2] == (0, pytest.approx(factor))


def test_the_users_own_calibration_and_a_shipped_one_are_held_against_new_rates(
    invoke, fakes, machine, monkeypatch, tmp_path
):
    machine(IDLE)
    monkeypatch.setenv("SPMARK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(device, "find", lambda name: fakes.CPU)
    monkeypatch.setattr(device, "shipped_calibration", lambda name: tmp_path / "shipped.json")
    fakes.CPU.save(tmp_path / "shipped.json")
    monkeypatch.setattr(device, "calibrate", lambda spec: spec.model_copy(update={"read_bytes_per_s": 1e9}))
    run = partial(invoke, "calibrate", "--device", "cpu")
    code, _, err = run()
    assert code == 3
    assert "read 1 GB/s instead of 10 GB/s" in err
    assert not device.user_calibration("fake-cpu").exists()
    assert run("--force")[0] == 0
    assert device.user_calibration("fake-cpu").is_file()


def test_measured_tiles_are_not_replaced_while_the_machine_is_busy(invoke, machine, monkeypatch, tmp_path):
    machine(BUSY)
    monkeypatch.setattr(device, "find", lambda name: published_a100())
    (tmp_path / "stile.json").write_text("{}")
    code, _, err = invoke("study", "calibrate", "stile", "--out", tmp_path / "stile.json")
    assert code == 3
    assert "expected an idle machine" in err
    assert (tmp_path / "stile.json").read_text() == "{}"
