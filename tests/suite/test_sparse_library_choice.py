"""A run with a chosen cuSPARSE: what its children load, what is recorded, and which records count."""

from __future__ import annotations

import json
from pathlib import Path

import fake_cusparse
import pytest
from compilers import needs_compilers

from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.errors import DeviceError
from spmark.records.schema import Status
from spmark.suite.environment import collect

pytestmark = needs_compilers


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the cuSPARSE that processes find by themselves."""
    file = fake_cusparse.installed(tmp_path / "packages", "12.6.3.3")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(file.parent))
    return file


@pytest.fixture
def new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make another one in spmark's cache."""
    monkeypatch.setenv("SPMARK_CACHE", str(tmp_path / "cache"))
    return fake_cusparse.installed(tmp_path / "cache" / "cusparse" / "mine", "12.9.4.2")


@pytest.fixture
def run(fakes, tmp_path, old, new):
    """Run cases into one folder as `execute` does with ``--cusparse``."""

    def run(cases, asked=""):
        facts = collect(fakes.CPU.model_copy(update={"kind": DeviceKind.CUDA}), asked)
        facts = facts.model_copy(update={"device": fakes.CPU})
        return fakes.run_cases(cases, tmp_path / "r", facts, sparse_library=asked)

    return run


def test_the_version_and_the_file_below_its_package_are_recorded(run, fakes, tmp_path):
    run([fakes.case()])
    run([fakes.case()], "12.9")
    rows = [json.loads(line)["environment"] for line in (tmp_path / "r" / "environments.jsonl").open()]
    assert [row["packages"]["nvidia-cusparse"] for row in rows] == ["12.6.3.3", "12.9.4.2"]
    assert {row["sparse_library"] for row in rows} == {"nvidia/cu13/lib/libcusparse.so.12"}


def test_records_of_another_version_count_unless_one_is_asked_for(run, fakes):
    cases = [fakes.case("good"), fakes.case("bad", "build_error")]
    assert len(run(cases).rows) == 2
    assert [len(run(cases, "12.9").rows) for _ in range(3)] == [2, 1, 0]
    assert len(run(cases, "12.6").rows) == 1, "the failure is tried twice with each"
    assert len(run(cases).rows) == 0


def test_a_child_that_gets_a_second_one_is_no_measurement_and_is_replaced(run, fakes, old, new, monkeypatch):
    monkeypatch.setenv("FAKE_CUSPARSE", str(old))
    mixed, clean = run([fakes.case("m", "other_cusparse"), fakes.case("n")], "12.9").rows
    assert mixed.status is Status.RUN_ERROR
    assert f"expected {new} as the only cuSPARSE of this process, found " in mixed.reason
    assert str(old) in mixed.reason
    assert clean.status is Status.OK


def test_a_file_that_went_away_stops_the_run(fakes, tmp_path):
    facts = fakes.environment().model_copy(update={"sparse_library": str(tmp_path / "libcusparse.so.12")})
    with pytest.raises(DeviceError, match=r"fake-cpu cannot be measured on: .*libcusparse.so.12: expected a cuSPARSE"):
        fakes.run_cases([fakes.case()], tmp_path / "r", facts)


def test_the_command_refuses_what_is_missing_and_a_device_without_any(sweep, fakes, invoke, monkeypatch, old, new):
    assert invoke("run", sweep, "--cusparse", "12.9")[0] == 3
    gpu = fakes.CPU.model_copy(update={"kind": DeviceKind.CUDA})
    monkeypatch.setattr("spmark.impls.runtime.device.find", lambda name: gpu)
    code, _, error = invoke("run", sweep, "--cusparse", "11.7", "--dry-run")
    assert code == 3
    assert "expected a cuSPARSE of version 11.7, found 12.9.4.2" in " ".join(error.split())
    assert invoke("run", sweep, "--cusparse", "12.9", "--dry-run")[0] == 0


def test_a_cpu_has_no_cusparse(fakes):
    assert collect(fakes.CPU).sparse_library == ""
    with pytest.raises(DeviceError, match=r"expected a GPU, on which alone cuSPARSE 12.9 runs, found fake-cpu"):
        collect(fakes.CPU, "12.9")
