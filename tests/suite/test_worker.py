from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from spmark.impls.core.errors import DeviceError
from spmark.impls.core.record import Status
from spmark.suite.wire import Setup
from spmark.suite.worker import Interrupted, Worker


@pytest.fixture
def start(fakes):
    """Start workers with a bench of `suite_fakes`, and end them."""
    made = []

    def start(factory="open_bench", stop=lambda: False, start_limit_s=30.0):
        environment = fakes.environment()
        setup = Setup(device=fakes.CPU, environment=environment.digest, factory=f"suite_fakes:{factory}")
        made.append(Worker(setup, stop, start_limit_s))
        return made[-1]

    yield start
    for worker in made:
        worker.close()


def gone(pid: int) -> bool:
    """Wait until a process has ended."""
    for _ in range(100):
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.05)
    return False


def test_a_good_case_gives_its_row_its_candidates_and_its_phases(start, fakes):
    phases = []
    result = start().measure(fakes.case(), phases.append)
    assert result.row.status is Status.OK
    assert result.row.samples_us == [10.0, 11.0]
    assert [row.config for row in result.candidates] == [{"tile": 8}]
    assert phases == ["loading", "building", "timing"]


@pytest.mark.parametrize(
    ("do", "status", "words"),
    [
        ("segfault", Status.RUN_ERROR, ("SIGSEGV while building", "Fatal Python error", "suite_fakes.py")),
        ("exit", Status.RUN_ERROR, ("exit code 3 while building", "last words")),
        ("garbage", Status.RUN_ERROR, ("a message that makes no sense", "while building")),
        ("killed", Status.OUT_OF_MEMORY, ("SIGKILL while building", "out-of-memory")),
    ],
)
def test_a_death_is_a_row_and_the_next_case_runs(start, fakes, do, status, words):
    worker = start()
    row = worker.measure(fakes.case(do=do)).row
    assert row.status is status
    for word in words:
        assert word in row.reason
    assert worker.measure(fakes.case("next")).row.status is Status.OK


@pytest.mark.parametrize(
    ("do", "status", "words"),
    [
        ("build_error", Status.RUN_ERROR, "kernel.cu: spmm<float> does not compile"),
        ("memory", Status.OUT_OF_MEMORY, "Unable to allocate 1.00 PiB"),
        ("bug", Status.RUN_ERROR, 'TypeError: can only concatenate str (not "int") to str (suite_fakes.py:'),
    ],
)
def test_an_exception_is_a_row_of_the_same_process(start, fakes, do, status, words):
    worker = start()
    row = worker.measure(fakes.case(do=do)).row
    assert row.status is status
    assert words in row.reason
    assert worker.measure(fakes.case("next")).row.status is Status.OK
    pids = {line.split()[-1] for line in Path(os.environ["FAKE_LOG"]).read_text().splitlines()}
    assert len(pids) == 1


@pytest.mark.parametrize("do", ["hang", "hang_holding_gil"])
def test_a_hang_is_killed_at_its_limit(start, fakes, do):
    worker = start()
    worker.measure(fakes.case("first"))
    started = time.monotonic()
    row = worker.measure(fakes.case(do=do, time_limit_s=0.5)).row
    assert time.monotonic() - started < 5
    assert row.status is Status.TIMEOUT
    assert "within 0.5 s" in row.reason
    assert "building" in row.reason
    pid = int(Path(os.environ["FAKE_LOG"]).read_text().split()[-1])
    assert gone(pid)


def test_what_a_dead_child_started_dies_with_it(start, fakes):
    row = start().measure(fakes.case(do="orphan")).row
    assert "SIGSEGV" in row.reason
    assert gone(int(Path(os.environ["FAKE_LOG"] + ".orphan").read_text()))


def test_standard_output_of_a_kernel_does_not_disturb_the_messages(start, fakes, capfd):
    assert start().measure(fakes.case(do="chatty")).row.status is Status.OK
    assert capfd.readouterr().out == ""


def test_a_sticky_error_names_its_case_and_replaces_the_child(start, fakes):
    worker = start()
    row = worker.measure(fakes.case(do="sticky")).row
    assert row.status is Status.RUN_ERROR
    assert row.reason.startswith("an illegal memory access")
    assert "This case poisoned the device" in row.reason
    assert "the canary found 0" in row.reason
    assert worker.measure(fakes.case("next")).row.status is Status.OK
    pids = {line.split()[-1] for line in Path(os.environ["FAKE_LOG"]).read_text().splitlines()}
    assert len(pids) == 2


def test_a_canary_that_hangs_poisons_too(start, fakes):
    worker = start(start_limit_s=3.0)
    row = worker.measure(fakes.case(do="sticky_hang")).row
    assert "did not come back" in row.reason
    assert "canary kernel did not finish" in row.reason
    assert worker.measure(fakes.case("next")).row.status is Status.OK


def test_a_device_that_stays_dead_stops_the_run_and_names_the_case(start, fakes, monkeypatch, tmp_path):
    monkeypatch.setenv("FAKE_DEAD", str(tmp_path / "dead"))
    worker = start()
    poisoning = fakes.case(do="sticky_dead")
    assert worker.measure(poisoning).row.status is Status.RUN_ERROR
    with pytest.raises(DeviceError, match="does not compute: the canary found 0") as caught:
        worker.measure(fakes.case("next"))
    assert poisoning.case_id in str(caught.value)


@pytest.mark.parametrize(
    ("factory", "words"),
    [
        ("dying_bench", r"dies at start \(2 times\): exit code 9\nno such library"),
        ("refusing_bench", "fake-cpu cannot be measured on: ImportError: libcuda.so.1 is not there"),
        ("absent_bench", "absent_bench"),
    ],
)
def test_a_child_that_cannot_start_is_a_device_error(start, fakes, factory, words):
    with pytest.raises(DeviceError, match=words):
        start(factory).measure(fakes.case())


def test_stopping_gives_up_the_case_at_once(start, fakes):
    asked = []
    worker = start(stop=lambda: bool(asked))
    started = time.monotonic()
    with pytest.raises(Interrupted):
        worker.measure(fakes.case(do="hang"), lambda phase: asked.append(phase) if phase == "building" else None)
    assert time.monotonic() - started < 20
    assert gone(int(Path(os.environ["FAKE_LOG"]).read_text().split()[-1]))


def test_a_child_that_died_while_idle_is_not_the_next_cases_fault(start, fakes):
    worker = start()
    worker.measure(fakes.case())
    pid = int(Path(os.environ["FAKE_LOG"]).read_text().split()[-1])
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert worker.measure(fakes.case("next")).row.status is Status.OK
