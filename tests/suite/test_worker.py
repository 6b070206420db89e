from __future__ import annotations

import itertools
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import suite_fakes

from spmark.impls.core.errors import DeviceError
from spmark.records.schema import Status
from spmark.suite.run import worker as worker_module
from spmark.suite.run.messages import Request, Setup
from spmark.suite.run.worker import Interrupted, Worker


@pytest.fixture
def start(fakes, monkeypatch):
    """Start workers with a bench of `suite_fakes`, and end them."""
    made = []

    def start(bench="FakeBench", stop=lambda: False, start_limit_s=30.0):
        monkeypatch.setenv("FAKE_BENCH", f"suite_fakes:{bench}")
        made.append(Worker(Setup(device=fakes.CPU), stop, start_limit_s))
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


def test_a_good_case_gives_its_outcome_its_candidates_and_its_phases(start, fakes):
    phases = []
    result = start().measure(fakes.case(), phases.append)
    assert result.outcome.status is Status.OK
    assert result.outcome.samples_us == [10.0, 11.0]
    assert [one.config for one in result.seen] == [{"tile": 8}]
    assert phases == ["loading", "building", "timing"]


@pytest.mark.full
def test_waiting_for_another_process_on_the_device_does_not_count_towards_the_limit(start, fakes):
    phases = []
    result = start().measure(fakes.case(do="wait", time_limit_s=1.0), phases.append)
    assert result.outcome.status is Status.OK, result.outcome.reason
    assert phases == ["loading", "building", "waiting", "building", "timing"]


@pytest.mark.full
@pytest.mark.parametrize(
    ("do", "status", "words"),
    [
        ("segfault", Status.RUN_ERROR, ("SIGSEGV while building", "Fatal Python error", "suite_fakes.py")),
        ("exit", Status.RUN_ERROR, ("exit code 3 while building", "last words")),
        ("garbage", Status.RUN_ERROR, ("a message that makes no sense", "while building")),
        (
            "killed",
            Status.OUT_OF_MEMORY,
            ("killed by signal 9 (SIGKILL) while building by the system", "memory had run"),
        ),
    ],
)
def test_a_death_is_a_row_and_the_next_case_runs(start, fakes, monkeypatch, do, status, words):
    counts = itertools.count()
    monkeypatch.setattr(worker_module, "oom_kills", lambda: next(counts))
    worker = start()
    row = worker.measure(fakes.case(do=do)).outcome
    assert row.status is status
    for word in words:
        assert word in row.reason
    assert worker.measure(fakes.case("next")).outcome.status is Status.OK


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
    row = worker.measure(fakes.case(do=do)).outcome
    assert row.status is status
    assert words in row.reason
    assert worker.measure(fakes.case("next")).outcome.status is Status.OK
    pids = {line.split()[-1] for line in Path(os.environ["FAKE_LOG"]).read_text().splitlines()}
    assert len(pids) == 1


@pytest.mark.full
@pytest.mark.parametrize("do", ["hang", "hang_holding_gil"])
def test_a_hang_is_killed_at_its_limit(start, fakes, do):
    worker = start()
    worker.measure(fakes.case("first"))
    started = time.monotonic()
    row = worker.measure(fakes.case(do=do, time_limit_s=0.5)).outcome
    assert time.monotonic() - started < 5
    assert row.status is Status.TIMEOUT
    assert "within 0.5 s" in row.reason
    assert "building" in row.reason
    pid = int(Path(os.environ["FAKE_LOG"]).read_text().split()[-1])
    assert gone(pid)


def test_after_waiting_a_case_has_its_limit_again(start, fakes):
    row = start().measure(fakes.case(do="hang_after_waiting", time_limit_s=1.0)).outcome
    assert row.status is Status.TIMEOUT
    assert row.reason == "expected an end within 1 s, found none while placing: killed"


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_numbers_that_json_does_not_know_reach_the_child(value):
    case = suite_fakes.case().model_copy(update={"config": {"budget_s": value}, "time_limit_s": math.inf})
    asked = Request.model_validate_json(Request(case=case).model_dump_json()).case
    assert (asked.case_id, asked.time_limit_s) == (case.case_id, math.inf)
    assert repr(asked.config) == repr(case.config)


def test_what_a_dead_child_started_dies_with_it(start, fakes):
    row = start().measure(fakes.case(do="orphan")).outcome
    assert "SIGSEGV" in row.reason
    assert gone(int(Path(os.environ["FAKE_LOG"] + ".orphan").read_text()))


def test_standard_output_of_a_kernel_does_not_disturb_the_messages(start, fakes, capfd):
    assert start().measure(fakes.case(do="chatty")).outcome.status is Status.OK
    assert capfd.readouterr().out == ""


def test_a_sticky_error_names_its_case_and_replaces_the_child(start, fakes):
    worker = start()
    row = worker.measure(fakes.case(do="sticky")).outcome
    assert row.status is Status.RUN_ERROR
    assert row.reason.startswith("an illegal memory access")
    assert "This case poisoned the device" in row.reason
    assert "the canary found 0" in row.reason
    assert worker.measure(fakes.case("next")).outcome.status is Status.OK
    pids = {line.split()[-1] for line in Path(os.environ["FAKE_LOG"]).read_text().splitlines()}
    assert len(pids) == 2


@pytest.mark.full
def test_a_canary_that_hangs_poisons_too(start, fakes):
    worker = start(start_limit_s=3.0)
    row = worker.measure(fakes.case(do="sticky_hang")).outcome
    assert "did not come back" in row.reason
    assert "canary kernel did not finish" in row.reason
    assert worker.measure(fakes.case("next")).outcome.status is Status.OK


def test_a_device_that_stays_dead_stops_the_run_and_names_the_case(start, fakes, monkeypatch, tmp_path):
    monkeypatch.setenv("FAKE_DEAD", str(tmp_path / "dead"))
    worker = start()
    poisoning = fakes.case(do="sticky_dead")
    assert worker.measure(poisoning).outcome.status is Status.RUN_ERROR
    with pytest.raises(DeviceError, match="does not compute: the canary found 0") as caught:
        worker.measure(fakes.case("next"))
    assert poisoning.case_id in str(caught.value)


@pytest.mark.parametrize(
    ("bench", "words"),
    [
        ("DyingBench", r"dies at start \(2 times\): exit code 9\nno such library"),
        ("RefusingBench", "fake-cpu cannot be measured on: ImportError: libcuda.so.1 is not there"),
        ("AbsentBench", "AbsentBench"),
    ],
)
def test_a_child_that_cannot_start_is_a_device_error(start, fakes, bench, words):
    with pytest.raises(DeviceError, match=words):
        start(bench).measure(fakes.case())


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
    assert worker.measure(fakes.case("next")).outcome.status is Status.OK


@pytest.mark.parametrize(("number", "name"), [(signal.SIGKILL, "SIGKILL"), (signal.SIGTERM, "SIGTERM")])
def test_a_child_that_somebody_kills_is_told_from_one_that_ran_out_of_memory(start, fakes, monkeypatch, number, name):
    monkeypatch.setattr(worker_module, "oom_kills", lambda: 3)
    row = start().measure(fakes.case(do="killed" if number == signal.SIGKILL else "terminated")).outcome
    assert (row.status, row.killed_from_outside) == (Status.RUN_ERROR, True)
    assert f"killed by signal {number:d} ({name}) while building, which somebody sent" in row.reason


def test_a_kill_that_nothing_explains_says_so(start, fakes, monkeypatch):
    monkeypatch.setattr(worker_module, "oom_kills", lambda: None)
    row = start().measure(fakes.case(do="killed")).outcome
    assert (row.status, row.killed_from_outside) == (Status.RUN_ERROR, False)
    assert "does not say whether memory had run out" in row.reason


@pytest.mark.skipif(sys.platform != "linux", reason="a stopped process is ended by Linux alone")
def test_a_child_that_is_stopped_while_it_is_loaded_dies_with_its_runner(fakes, tmp_path):
    """The runner is killed; only the kernel ends a stopped process, and must have been asked to before the imports."""
    runner = subprocess.Popen([sys.executable, str(Path(__file__).with_name("drive.py")), str(tmp_path / "r"), "3"])
    child = next(iter(wait_for(lambda: psutil.Process(runner.pid).children())))
    wait_for(lambda: "1000" in Path(f"/proc/{child.pid}/oom_score_adj").read_text())
    assert not any("numpy" in mapped.path for mapped in child.memory_maps()), "it is still being loaded"
    child.suspend()
    runner.kill()
    runner.wait()
    assert gone(child.pid)


def test_without_the_kernel_a_thread_looks_for_the_runner(monkeypatch):
    """What other systems do, tried on this one: a process whose parent has gone ends its session."""
    script = (
        "import os, sys, time\nfrom spmark.suite.run import worker_main\nsys.platform = 'other'\n"
        "worker_main._LOOK_S = 0.1\nworker_main.tie(os.getppid())\nprint(os.getpid(), flush=True)\ntime.sleep(60)\n"
    )
    parent = (
        "import subprocess, sys\n"
        f"command = [sys.executable, '-c', {script!r}]\n"
        "child = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE)\n"
        "print(child.stdout.readline().decode().strip(), flush=True)\n"
    )
    pid = int(subprocess.run([sys.executable, "-c", parent], capture_output=True, text=True, timeout=30).stdout)
    assert gone(pid)


def test_a_device_with_long_tables_does_not_make_the_runner_wait_for_the_child(start, fakes, monkeypatch):
    """A socket takes some 100 KB before somebody reads; the calibration of an H200 is longer."""
    tables = {"long": [float(number) for number in range(100_000)]}
    monkeypatch.setattr(fakes, "CPU", fakes.CPU.model_copy(update={"tables": tables}))
    monkeypatch.setattr(worker_module.worker_main, "__file__", str(Path(__file__).with_name("stuck.py")))
    asked = threading.Event()
    threading.Timer(1.0, asked.set).start()
    started = time.monotonic()
    with pytest.raises(Interrupted):
        start(stop=asked.is_set).measure(fakes.case())
    assert time.monotonic() - started < 10


def wait_for(ask: Callable[[], Any]) -> Any:
    """Ask until the answer is not empty."""
    deadline = time.monotonic() + 20
    while not (answer := ask()):
        assert time.monotonic() < deadline
        time.sleep(0.001)
    return answer
