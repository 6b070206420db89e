"""What ``spmark asv-run`` measures on which device, and what it says of the rest."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from itertools import product
from math import prod
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.errors import SweepError
from spmark.impls.runtime.device import find, shipped_calibration
from spmark.impls.table import IMPLEMENTATIONS, create
from spmark.suite import cli
from spmark.suite.asv.pick import live, pick, shown
from spmark.suite.benchmarks.tracked import REFUSED
from spmark.suite.commands import asv_run

CPU_ONLY = ("scipy_cpu", "numba_cpu", "blas_cpu", "taco_cpu")
PRINTED = """\
[ 50.00%] ··· tracked.LiveConversions.track_time                              ok
[ 50.00%] ··· =========== ======================= ==============
              --                          matrix
              ----------- --------------------------------------
                 format    patterns/strided_4096   rmat/rmat_13
              =========== ======================= ==============
                  ell            18.6±10ms           127±10ms
                bsr_4x4             n/a                n/a
              =========== ======================= ==============

[100.00%] ··· tracked.LivePhases.track_phase                           1/8 failed
[100.00%] ··· ======= ================= ========================= ========== ============
                op     implementation            matrix            phase
              ------- ----------------- ------------------------- ---------- ------------
                spmm       cusparse      patterns/logsparse_4096   features      n/a
                spmm      scipy_cpu      patterns/logsparse_4096   convert    1.90±0.3μs
                spmm      scipy_cpu      patterns/logsparse_4096   compile       n/a
                spmm      numba_cpu      patterns/logsparse_4096   convert      failed
                spmm       stile         patterns/logsparse_4096   convert       n/a
               ======= ================= ========================= ========== ============
               For parameters: 'spmm', 'numba_cpu', 'patterns/logsparse_4096', 'convert'
               RuntimeError: build_error: n/a
"""


@pytest.fixture(scope="module")
def h200() -> DeviceSpec:
    return DeviceSpec.load(shipped_calibration("nvidia-h200"))


@pytest.fixture
def all_installed(monkeypatch):
    """Make DGL and Triton answer as where they are installed."""
    monkeypatch.setattr("spmark.impls.dgl.plan._missing", lambda kind: None)
    monkeypatch.setattr("spmark.impls.triton_blocksparse.plan._missing", lambda: None)


def matched(patterns) -> set[str]:
    """Give the names of the combinations that asv's ``--bench`` would select."""
    names = {f"{benchmark.name}({', '.join(reprs)})" for benchmark in live() for reprs in product(*benchmark.params)}
    return {name for name in names if any(re.search(pattern, name) for pattern in patterns)}


def mentioned(names: set[str]) -> set[str]:
    return {name for name in IMPLEMENTATIONS if any(f"'{name}'" in one for one in names)}


def test_a_cpu_measures_its_own_and_conversions_and_searches() -> None:
    picked = pick(find("cpu"))
    names = matched(picked.patterns)
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
    names = matched(picked.patterns)
    assert picked.left_out == {"run on the CPU alone": CPU_ONLY}
    assert mentioned(names) == set(IMPLEMENTATIONS) - set(CPU_ONLY) - set(REFUSED)
    assert "tracked.LiveSpmm.track_time('lo_spmm', 'rmat/rmat_13', 128, 'float32')" in names
    assert "tracked.LiveSpmm.track_time('lo_spmm', 'rmat/rmat_13', 128, 'float16')" not in names
    assert "tracked.LiveHalfPlans.track_build('sddmm', 'sparsetir_bsr', 'rmat/rmat_13')" in names
    assert "tracked.LiveHalfPlans.track_build('sddmm', 'sparsetir_dbsr', 'rmat/rmat_13')" not in names


def test_what_is_not_installed_is_said_with_the_remedy(h200, monkeypatch) -> None:
    monkeypatch.setattr("spmark.impls.triton_blocksparse.plan._missing", lambda: "install the extra for Triton")
    assert "triton_blocksparse" in pick(h200).left_out["install the extra for Triton"]


def test_airspeed_velocity_selects_these_and_keeps_every_parameter() -> None:
    benchmarks = pytest.importorskip("asv.benchmarks", reason="airspeed velocity is not installed (extra asv)")
    config = pytest.importorskip("asv.config")
    entries = [benchmark.entry() for benchmark in live()]
    picked = pick(find("cpu"))
    selected = benchmarks.Benchmarks(config.Config(), entries, regex=list(picked.patterns))
    assert sum(map(len, selected.benchmark_selection.values())) == picked.values
    assert {name: len(selected.benchmark_selection[name]) for name in picked.combinations} == {
        name: len(combinations) for name, combinations in picked.combinations.items()
    }
    assert selected._all_benchmarks.keys() == {entry["name"] for entry in entries}, "the list of benchmarks stays whole"
    assert all(selected[name]["params"] == entry["params"] for entry in entries if (name := entry["name"]) in selected)


def test_benchmarks_can_be_narrowed() -> None:
    picked = pick(find("cpu"), ["LiveConversions", r"Spmm.*'numba_cpu'"])
    kinds = {name.split(".")[1] for name in matched(picked.patterns)}
    assert kinds == {"LiveConversions", "LiveSpmm"}
    with pytest.raises(SweepError, match="expected values of the live set that match Nothing"):
        pick(find("cpu"), ["Nothing"])
    with pytest.raises(SweepError, match="expected regular expressions"):
        pick(find("cpu"), ["("])


def test_rows_that_cannot_be_had_are_not_printed_and_no_other_is_left_out() -> None:
    lines = PRINTED.splitlines(keepends=True)
    gone = [line for line in lines if line not in list(shown(lines, pick(find("cpu"))))]
    assert [line.split()[1] for line in gone] == ["cusparse", "stile"]
    only = pick(find("cpu"), ["LiveConversions.*ell"])
    gone = [line for line in lines if line not in list(shown(lines, only))]
    assert [line.split()[0] for line in gone] == ["bsr_4x4", *["spmm"] * 5]


@pytest.mark.parametrize("name", ["tracked.LivePhases.track_phase", "tracked.LiveSpmm.track_time"])
def test_rows_are_told_in_tables_as_airspeed_velocity_prints_them(name) -> None:
    results = pytest.importorskip("asv.results", reason="airspeed velocity is not installed (extra asv)")
    entry = next(benchmark.entry() for benchmark in live() if benchmark.name == name)
    table = results._format_benchmark_result([(7.25, None)] * prod(map(len, entry["params"])), entry)
    picked = pick(find("cpu"))
    left = list(shown([f"[50.00%] ··· {name}   ok", *table], picked))
    assert sum("7.25" in line for line in left) == len(picked.combinations[name])
    assert len(left) < len(table)


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """Give a function that runs the command where asv is a program that only takes its arguments down."""
    (tmp_path / "asv.conf.json").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    here = find("cpu")
    monkeypatch.setattr("spmark.impls.runtime.device.find", lambda name: here)
    monkeypatch.setattr("spmark.impls.runtime.device.cuda_missing", lambda: "no NVIDIA driver is loaded")
    commands: list[list[str]] = []

    def invoke(*arguments: str, returns: int = 0):
        class Asv:
            """Takes its arguments down and prints a table."""

            stdout = PRINTED.splitlines(keepends=True)
            returncode = returns

            def __init__(self, command: list[str], **options) -> None:
                commands.append(command)

            __enter__ = lambda self: self  # noqa: E731
            __exit__ = lambda self, *raised: None  # noqa: E731

        monkeypatch.setattr(asv_run, "subprocess", SimpleNamespace(Popen=Asv, PIPE=subprocess.PIPE))
        commands.clear()
        result = CliRunner().invoke(cli.app, ["asv-run", *arguments])
        return result, commands

    return invoke


def test_the_command_says_one_line_and_hands_everything_else_on(checkout, tmp_path) -> None:
    result, commands = checkout("--python=same", "--quick", "-b", "LiveConversions", "HEAD^!")
    assert result.exit_code == 0, result.output
    line, *printed = result.output.splitlines()
    assert "tracked.LiveConversions.track_time" in printed[0]
    assert "no NVIDIA driver is loaded" in line
    assert re.search(r"\b18 of the live set's [\d,]+ values; left out: cusparse, .*lo_spmm.* \(need a GPU\)", line)
    name = find("cpu").name
    (command,) = commands
    assert command[:5] == [sys.executable, "-u", "-m", "asv", "run"]
    assert command[5:9] == [f"--machine={name}", "--python=same", "--quick", "HEAD^!"]
    assert all(argument.startswith(r"--bench=^tracked\.LiveConversions\.") for argument in command[9:])
    assert name in json.loads((tmp_path / ".asv-machine.json").read_text())


def test_a_failure_of_asv_is_one_of_the_command(checkout) -> None:
    assert checkout("--machine", "other", returns=2)[0].exit_code == 1


def test_outside_of_a_checkout_and_without_asv_it_says_so(checkout, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(asv_run, "find_spec", lambda name: None)
    assert "expected airspeed velocity, found none" in str(checkout()[0].exception)
    Path(tmp_path, "asv.conf.json").unlink()
    assert "expected a checkout as working folder, found no asv.conf.json" in str(checkout()[0].exception)
