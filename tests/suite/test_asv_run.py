"""What ``asv run`` is told of a device, and the command that names the machine."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.machine import Load
from spmark.impls.core.problem import Op
from spmark.impls.runtime.device import find, shipped_calibration
from spmark.impls.table import IMPLEMENTATIONS, create
from spmark.suite.asv.series import live, questions_of, swept
from spmark.suite.benchmarks import tracked
from spmark.suite.benchmarks.tracked import REFUSED
from spmark.suite.cli import asv as asv_run
from spmark.suite.cli import main as cli
from spmark.suite.plan import refusals as roster

CPU_ONLY = ["scipy_cpu", "numba_cpu", "blas_cpu", "taco_cpu"]


def test_what_is_named_is_asked_and_nothing_else() -> None:
    assert questions_of(["LiveConversions.*hyb_32", r"LiveSearches.track_cpu_ratio\('sddmm', 'stile"]) == [
        *sorted(("hyb_32", matrix) for matrix in tracked.CONVERTED),
        *sorted(("sddmm", "stile_a100", matrix) for matrix in tracked.SEARCHED),
    ]
    (key,) = questions_of([r"LivePlans.track_regret\('spmm', 'cusparse', 'rmat/rmat_13'\)"])
    assert key == ("spmm", "cusparse_best", "rmat/rmat_13", "128", "float32"), "what the benchmark looks up"
    assert questions_of(["no such name"]) == []
    assert set(dict(tracked.questions())) <= set(questions_of([]))


@pytest.fixture
def told(monkeypatch, tmp_path):
    """Give a function that has the plugin prepare a command on a device; gives what benchmarks are told."""
    plugin = pytest.importorskip("spmark.suite.asv.plugin", reason="airspeed velocity is not installed (extra asv)")
    (tmp_path / "asv.conf.json").write_text('{"version": 1, "repo": ".", "results_dir": "results"}')
    monkeypatch.chdir(tmp_path)

    def told(device: DeviceSpec, *arguments: str, free_cores: float = 2.0):
        monkeypatch.setattr(plugin, "LoadMeter", lambda: SimpleNamespace(read=lambda seconds: Load(2, free_cores)))
        monkeypatch.setattr(plugin, "find", lambda name: device)
        monkeypatch.setattr("sys.argv", ["asv", *arguments])
        monkeypatch.setenv(tracked.LIVE, "")
        plugin.setup()
        return json.loads(os.environ[tracked.LIVE] or "{}")

    return told


def test_a_cpu_measures_its_own_and_says_what_is_left_out(told, caplog) -> None:
    caplog.set_level("INFO")
    known = told(find("cpu"), "run", "HEAD^!")
    assert set(CPU_ONLY) <= set(known["implementations"]) <= {*CPU_ONLY, "dgl"}
    assert known["device"] == "cpu"
    assert {key[1] for key in known["questions"] if len(key) == 5} == set(known["implementations"])
    assert ["hyb_32", "rmat/rmat_13"] in known["questions"]
    left_out = re.findall(r"([\w, ]+) \(runs on [a-z -]+\)", caplog.text.partition("left out: ")[2])
    told_of = {name for names in left_out for name in names.strip().split(", ")}
    followed = IMPLEMENTATIONS.keys() - REFUSED.keys()
    assert told_of == {name for name in followed if DeviceKind.CPU not in create(name).devices}


def test_a_gpu_measures_every_implementation_for_it(told, monkeypatch, caplog) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr("spmark.impls.core.errors.find_spec", lambda module: None if module == "triton" else module)
    known = told(DeviceSpec.load(shipped_calibration("nvidia-h200")), "continuous", "-b", "LiveSpmm", "HEAD")
    gone = {*CPU_ONLY, *REFUSED, "triton_blocksparse"}
    assert set(known["implementations"]) == set(IMPLEMENTATIONS) - gone
    assert {key[0] for key in known["questions"]} == {"spmm"}
    assert "taco_cpu (runs on cpu)" in caplog.text
    assert "triton_blocksparse (triton is not installed: pip install" in caplog.text


@pytest.mark.parametrize("command", ["run", "continuous"])
def test_seconds_are_left_out_on_a_cpu_and_what_a_busy_host_times_is_not_compared(told, command, caplog) -> None:
    gpu, cpu = DeviceSpec.load(shipped_calibration("nvidia-h200")), find("cpu")
    builds = {"track_build", "track_search", "track_phase"}
    assert set(told(gpu, command)["left_out"]) == set()
    assert set(told(cpu, command)["left_out"]) == builds | {"track_time", "track_regret"}
    assert not caplog.text
    busy = {device.kind: set(told(device, command, free_cores=0.5)["left_out"]) for device in (gpu, cpu)}
    if command == "run":
        assert busy == {DeviceKind.CUDA: set(), DeviceKind.CPU: builds | {"track_time", "track_regret"}}
        return
    ratios = {"track_cpu_ratio", "track_build_cpu_ratio"}
    assert busy[DeviceKind.CUDA] == builds | ratios
    assert busy[DeviceKind.CPU] == builds | ratios | {"track_time", "track_regret", "track_ratio"}
    assert "This machine is busy: other processes take 1.5 of 2 cores" in caplog.text


def test_a_command_that_measures_nothing_is_told_nothing(told) -> None:
    assert told(find("cpu"), "compare", "HEAD~1", "HEAD") == {}


def test_the_list_names_imported_sweeps_and_of_a_site_all_machines(told, tmp_path) -> None:
    path = tmp_path / "results" / "benchmarks.json"
    told(find("cpu"), "compare", "HEAD~1", "HEAD")
    assert not path.exists(), "nothing was measured: asv says so"
    path.parent.mkdir()
    path.write_text('{"version": 2, "tracked.LiveSpmm.track_ratio": {"params": []}, "of.another": {}}')
    told(find("cpu"), "compare", "HEAD~1", "HEAD")
    held = json.loads(path.read_text())
    assert held.keys() == {"version", "of.another", "tracked.LiveSpmm.track_ratio", *(of.name for of in swept())}
    assert held["tracked.LiveSpmm.track_ratio"]["params"] == []
    told(find("cpu"), "publish")
    held = json.loads(path.read_text())
    assert {of.name for of in (*live(), *swept())} <= held.keys()
    assert "'gespmm'" in held["tracked.LiveSpmm.track_ratio"]["params"][0]


def test_a_missing_module_is_a_reason(monkeypatch) -> None:
    monkeypatch.setattr(roster, "create", lambda name, config: __import__("no_such_module"))
    reason = roster.refusal("gespmm", {}, DeviceKind.CPU, Op.SPMM)
    assert reason == "needs the package no_such_module, which is not installed"


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """Give a function that runs the command where asv is a program that only takes its arguments down."""
    (tmp_path / "asv.conf.json").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    here = find("cpu")
    monkeypatch.setattr("spmark.suite.asv.machine.find", lambda name: here)
    commands: list[list[str]] = []

    def invoke(*arguments: str, returns: int = 0):
        def run(command: list[str], **options):
            commands.append(command)
            return SimpleNamespace(returncode=returns)

        monkeypatch.setattr(asv_run, "subprocess", SimpleNamespace(run=run))
        commands.clear()
        result = CliRunner().invoke(cli.app, ["asv", "run", *arguments])
        return result, commands

    return invoke


def test_the_command_names_the_machine_and_hands_everything_on(checkout, tmp_path) -> None:
    result, (command,) = checkout("--python=same", "--quick", "-b", "LiveConversions", "HEAD^!")
    assert result.exit_code == 0, result.output
    name = find("cpu").name
    assert command[1:5] == ["-m", "asv", "run", f"--machine={name}"]
    assert command[5:] == ["--python=same", "--quick", "-b", "LiveConversions", "HEAD^!"]
    assert name in json.loads((tmp_path / ".asv-machine.json").read_text())


def test_a_machine_that_is_named_is_not_registered(checkout, tmp_path) -> None:
    result, (command,) = checkout("--machine", "other")
    assert result.exit_code == 0, result.output
    assert command[4:] == ["--machine", "other"]
    assert not (tmp_path / ".asv-machine.json").exists()


def test_a_failure_of_asv_is_one_of_the_command(checkout) -> None:
    assert checkout("--machine", "other", returns=2)[0].exit_code == 1


def test_outside_of_a_checkout_and_without_asv_it_says_so(checkout, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(asv_run, "find_spec", lambda name: None)
    assert "expected airspeed velocity, found none" in str(checkout()[0].exception)
    Path(tmp_path, "asv.conf.json").unlink()
    assert "expected a checkout as working folder, found no asv.conf.json" in str(checkout()[0].exception)
