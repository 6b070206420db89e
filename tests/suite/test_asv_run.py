"""What ``asv run`` measures and prints on which device, and what it says of the rest."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from itertools import product
from math import nan
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.runtime.device import find, shipped_calibration
from spmark.impls.table import IMPLEMENTATIONS, create
from spmark.suite.asv import pick as picking
from spmark.suite.asv.history import swept
from spmark.suite.asv.pick import live, pick
from spmark.suite.benchmarks import tracked
from spmark.suite.benchmarks.tracked import REFUSED
from spmark.suite.cli import asv_run
from spmark.suite.cli import main as cli
from spmark.suite.plan import refusals as roster

CPU_ONLY = ("scipy_cpu", "numba_cpu", "blas_cpu", "taco_cpu")


@pytest.fixture(scope="module")
def h200() -> DeviceSpec:
    return DeviceSpec.load(shipped_calibration("nvidia-h200"))


@pytest.fixture
def all_installed(monkeypatch):
    """Make DGL and Triton answer as where they are installed."""
    monkeypatch.setattr("spmark.impls.dgl.plan._missing", lambda kind: None)
    monkeypatch.setattr("spmark.impls.triton_blocksparse.plan._missing", lambda: None)


def names_of(picked) -> set[str]:
    """Give what was picked as asv names combinations."""
    every = {benchmark.name: list(product(*benchmark.params)) for benchmark in live()}
    return {f"{name}({', '.join(every[name][at])})" for name, places in picked.places.items() for at in places}


def mentioned(names: set[str]) -> set[str]:
    return {name for name in IMPLEMENTATIONS if any(f"'{name}'" in one for one in names)}


def test_a_cpu_measures_its_own_and_conversions_and_searches() -> None:
    picked = pick(find("cpu"))
    names = names_of(picked)
    assert len(names) == picked.values
    assert set(CPU_ONLY) <= mentioned(names) <= {*CPU_ONLY, "dgl"}
    assert "tracked.LiveSearches.track_time('sddmm', 'stile_a100', 'rmat/rmat_13')" in names
    assert not [name for name in names if "'sddmm', 'liteform_h200'" in name]
    assert "tracked.LiveConversions.track_cpu('ell', 'rmat/rmat_13')" in names
    assert not [name for name in names if re.search(r"track_(regret|search)|'(search|upload|features)'", name)]
    others = {name for name in IMPLEMENTATIONS if DeviceKind.CPU not in create(name).devices}
    assert set(picked.left_out["need a GPU"]) == others


def test_a_gpu_measures_every_implementation_for_it(h200, all_installed) -> None:
    picked = pick(h200)
    names = names_of(picked)
    assert picked.left_out == {"run on the CPU alone": CPU_ONLY}
    assert mentioned(names) == set(IMPLEMENTATIONS) - set(CPU_ONLY) - set(REFUSED)
    assert "tracked.LiveSpmm.track_time('lo_spmm', 'rmat/rmat_13', 128, 'float32')" in names
    assert "tracked.LiveSpmm.track_time('lo_spmm', 'rmat/rmat_13', 128, 'float16')" not in names
    assert "tracked.LiveHalfPlans.track_build('sddmm', 'sparsetir_bsr', 'rmat/rmat_13')" in names
    assert "tracked.LiveHalfPlans.track_build('sddmm', 'sparsetir_dbsr', 'rmat/rmat_13')" not in names


def test_what_is_not_installed_is_said_with_the_remedy(h200, monkeypatch) -> None:
    monkeypatch.setattr("spmark.impls.triton_blocksparse.plan._missing", lambda: "install the extra for Triton")
    assert "triton_blocksparse" in pick(h200).left_out["install the extra for Triton"]


def test_builds_on_the_host_have_no_other_phases_and_no_search(small_matrix) -> None:
    device = find("cpu")
    for name, op in product(CPU_ONLY, Op):
        plan = create(name).build(Problem(op, small_matrix, 8, DType.FLOAT32), device)
        assert set(plan.phases_s) <= set(picking._HOST_PHASES)
        assert plan.search is None


def test_only_what_is_looked_up_is_asked_of_implementations(monkeypatch) -> None:
    monkeypatch.setattr(picking, "refused", lambda *asked: pytest.fail(f"asked {asked}"))
    picked = pick(find("cpu"), ["LiveConversions.*ell", r"LiveSearches.track_cpu\('sddmm', 'stile"])
    assert {name.split(".")[1] for name in picked.places} == {"LiveConversions", "LiveSearches"}
    assert picked.questions == {
        *(("ell", matrix) for matrix in tracked.CONVERTED),
        *(("sddmm", "stile_a100", matrix) for matrix in tracked.SEARCHED),
    }


def test_nothing_may_be_left() -> None:
    picked = pick(find("cpu"), ["LiveSpmm.*cusparse_best"])
    assert (picked.values, picked.questions) == (0, frozenset())
    assert picked.left_out == {"need a GPU": ("cusparse_best",)}


@pytest.fixture
def discovered(monkeypatch):
    """Give a function that has asv discover our benchmarks on this machine's CPU, as ``asv run`` does."""
    pytest.importorskip("asv", reason="airspeed velocity is not installed (extra asv)")
    from spmark.suite.asv import narrow

    here, config = find("cpu"), pytest.importorskip("asv.config").Config()
    monkeypatch.setattr(narrow, "find", lambda name: here)
    monkeypatch.setattr(narrow, "cuda_missing", lambda: "no NVIDIA driver is loaded")
    monkeypatch.setenv(tracked.LIVE_KEYS, "to be put back")
    monkeypatch.delenv(tracked.SWEPT_FOLDER, raising=False)
    entries = [benchmark.entry() for benchmark in (*live(), *swept())]
    monkeypatch.setattr(narrow.Benchmarks, "_disc_benchmarks", lambda *given: entries)

    def discovered(*regex: str, compared: bool = False):
        monkeypatch.setattr(narrow.PickedBenchmarks, "compared", compared)
        return narrow.PickedBenchmarks.discover(config, None, [], [], regex=list(regex))

    return discovered


def test_airspeed_velocity_selects_what_can_be_had_and_keeps_every_parameter(discovered, monkeypatch, caplog) -> None:
    caplog.set_level("INFO")
    picked, found = pick(find("cpu")), discovered()
    assert found.keys() == picked.places.keys()
    assert all(found.benchmark_selection[name] == list(places) for name, places in picked.places.items())
    assert found._all_benchmarks.keys() == {of.name for of in (*live(), *swept())}, "the list of benchmarks stays whole"
    assert all(found[of.name]["params"] == of.params for of in live() if of.name in found)
    assert set(map(tuple, json.loads(os.environ[tracked.LIVE_KEYS]))) == picked.questions
    assert re.search(
        r"no NVIDIA driver is loaded\): \d+ of the live set's [\d,]+ values; left out: cusparse", caplog.text
    )
    monkeypatch.setenv(tracked.SWEPT_FOLDER, "a folder")
    assert {of.name for of in swept()} <= discovered().keys()


def test_asv_s_bench_narrows_further_and_what_measures_is_told(discovered) -> None:
    found = discovered(r"LiveConversions.track_cpu\(.*ell")
    assert list(found) == ["tracked.LiveConversions.track_cpu"]
    assert json.loads(os.environ[tracked.LIVE_KEYS]) == sorted(["ell", matrix] for matrix in tracked.CONVERTED)


def test_commits_are_compared_on_a_cpu_by_what_has_a_baseline_beside_it(discovered) -> None:
    methods = {name.rpartition(".")[2] for name in discovered("Live", compared=True)}
    assert methods == {
        "track_ratio", "track_build_cpu_ratio", "track_cpu_ratio", "track_stored", "track_device_bytes",
        "track_predicted",
    }  # fmt: skip


def test_continuous_compares(discovered, monkeypatch) -> None:
    from spmark.suite.asv import narrow

    monkeypatch.setattr(narrow.PickedBenchmarks, "compared", False)
    monkeypatch.setattr(narrow.run.Run, "run", classmethod(lambda cls, *given, **named: 7))
    assert narrow.ComparedRun.run(None) == 7
    assert narrow.PickedBenchmarks.compared


@pytest.mark.parametrize(
    ("widest", "rows"),
    [
        (100, ["op a / convert b / convert", "spmm n/a 3.142", "sddmm failed 7.0"]),
        (20, ["op name convert", "spmm b 3.142", "sddmm a failed", "sddmm b 7.0"]),
    ],
)
def test_a_table_has_a_line_for_each_row_with_a_value_and_is_as_wide_as_it_may(monkeypatch, widest, rows) -> None:
    results = pytest.importorskip("asv.results", reason="airspeed velocity is not installed (extra asv)")
    from spmark.suite.asv import narrow

    params = [["'spmm'", "'sddmm'"], ["'a'", "'b'"], ["'search'", "'convert'"]]
    benchmark = {"name": "b", "unit": "ratio", "param_names": ["op", "name", "phase"], "params": params}
    held = results.Results.unnamed()
    held._results["b"] = [nan, nan, nan, 3.14159, nan, None, nan, 7.0]
    held._stats["b"], held._benchmark_params["b"] = [None] * 8, params
    held._stderr["b"] = "For parameters: 'sddmm', 'a', 'convert'"
    monkeypatch.setattr(narrow, "_WIDEST", widest)
    info, table = narrow.compact(results.format_benchmark_result)(held, benchmark)
    assert info == "1/8 failed"
    assert [" ".join(line.split()) for line in table.splitlines()] == [*rows, held._stderr["b"]]


def test_the_plugin_narrows() -> None:
    code = (
        "import spmark.suite.asv.plugin, asv.runner, asv.commands.run as run, asv.commands.continuous as continuous\n"
        "print(run.Benchmarks.__module__, continuous.Run.__module__, asv.runner.format_benchmark_result.__module__)"
    )
    pytest.importorskip("asv", reason="airspeed velocity is not installed (extra asv)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["spmark.suite.asv.narrow"] * 3


def test_a_missing_module_is_a_reason(monkeypatch) -> None:
    monkeypatch.setattr(roster, "create", lambda name, config: __import__("no_such_module"))
    reason = roster.refused("gespmm", Op.SPMM, 8, DType.FLOAT32, find("cpu"))
    assert reason == "needs the package no_such_module, which is not installed"


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """Give a function that runs the command where asv is a program that only takes its arguments down."""
    (tmp_path / "asv.conf.json").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    here = find("cpu")
    monkeypatch.setattr("spmark.impls.runtime.device.find", lambda name: here)
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
