from __future__ import annotations

import hashlib
import itertools
import os
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest
import yaml

from spmark.datasets.sweep.reading import checked_sweep
from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.errors import DeviceError, RecordError, SweepError
from spmark.impls.core.problem import Op
from spmark.records.rowfile import RUNS, lock_folder, read_rows
from spmark.records.schema import CandidateRow, EnvironmentRow, Flush, MatrixRef, Measurement, Status
from spmark.suite.plan import plan, resume
from spmark.suite.plan.options import Options
from spmark.suite.run import execute, worker
from spmark.suite.run.execute import Watcher
from spmark.suite.run.provenance import RunRow


@pytest.fixture
def run(fakes, tmp_path):
    """Run cases into one folder."""

    def run(cases, *, environment=None, watcher=None, **fields):
        return fakes.run_cases(cases, tmp_path / "r", environment or fakes.environment(), watcher, **fields)

    return run


def test_a_sweep_in_python_runs_once(fakes, monkeypatch, tmp_path):
    monkeypatch.setattr(execute, "find", {"cpu": fakes.CPU}.__getitem__)
    monkeypatch.setattr(execute, "calibrated", lambda device: device)
    sweep = checked_sweep(yaml.safe_load(fakes.SWEEP), tmp_path / "tiny.yaml")
    first, second = (execute.execute(sweep, "cpu", out=str(tmp_path / "out")) for _ in range(2))
    assert first.folder == tmp_path / "out" / "tiny" / "fake-cpu"
    assert [row.case_id for row in records(first.folder)] == [row.case_id for row in (*first.rows, *second.rows)]
    assert (len(first.rows), first.skipped) == (6, 0)
    assert second.statuses == {Status.RUN_ERROR: 2}, "a failure is tried once more"
    (told, _) = read_rows(first.folder / RUNS, RunRow)
    assert (told.command, told.sweep["name"]) == ((), "tiny")
    only = execute.execute(sweep, "cpu", Options(only=("matrix=a",)), out=tmp_path / "some")
    assert {row.spec.matrix.name for row in only.rows} == {"a"}
    with pytest.raises(SweepError, match="expected an implementation out of"):
        wrong = sweep.model_copy(update={"baseline": {DeviceKind.CPU: "nobody"}})
        execute.execute(wrong, "cpu", out=tmp_path / "other")
    assert not (tmp_path / "other").exists()


def records(folder: Path) -> list[Measurement]:
    return list(read_rows(folder / "records.jsonl", Measurement))


def measured() -> Counter[str]:
    """Count how often each case was given to a bench."""
    log = Path(os.environ["FAKE_LOG"])
    return Counter(line.split()[0] for line in log.read_text().splitlines()) if log.exists() else Counter()


def test_every_case_gets_a_row_and_the_sweep_goes_on(run, fakes, tmp_path):
    behaviours = ["ok", "segfault", "build_error", "memory", "hang", "sticky", "exit", "ok"]
    cases = [fakes.case(f"m{at}", do, time_limit_s=1 if do == "hang" else 30) for at, do in enumerate(behaviours)]
    summary = run(cases)
    assert [row.case_id for row in records(tmp_path / "r")] == [case.case_id for case in cases]
    assert summary.statuses == {
        Status.OK: 2, Status.RUN_ERROR: 4, Status.OUT_OF_MEMORY: 1, Status.TIMEOUT: 1,
    }  # fmt: skip
    assert (summary.left, summary.skipped, summary.interrupted) == (0, 0, False)
    environments = list(read_rows(tmp_path / "r" / "environments.jsonl", EnvironmentRow))
    assert [row.digest for row in environments] == [fakes.environment().digest]
    assert len(list(read_rows(tmp_path / "r" / "candidates.jsonl", CandidateRow))) == 2


def test_ok_is_final_and_a_failure_is_tried_twice(run, fakes):
    cases = [fakes.case("good"), fakes.case("bad", "build_error")]
    assert [len(run(cases).rows) for _ in range(4)] == [2, 1, 0, 0]
    assert measured() == {cases[0].case_id: 1, cases[1].case_id: 2}


def test_retry_runs_the_endings_that_it_names(run, fakes):
    cases = [fakes.case("good"), fakes.case("bad", "build_error"), fakes.case("big", "memory")]
    for _ in range(2):
        run(cases)
    assert [row.spec.matrix.name for row in run(cases, retry=(Status.OUT_OF_MEMORY,)).rows] == ["big"]
    assert [row.spec.matrix.name for row in run(cases, retry=(Status.OK, Status.RUN_ERROR)).rows] == ["good", "bad"]


@pytest.mark.full
def test_a_case_that_somebody_kills_is_tried_until_it_has_ended_by_itself(run, fakes, monkeypatch):
    monkeypatch.setattr(worker, "oom_kills", lambda: 0)
    cases = [fakes.case("unlucky", "killed")]
    assert [[row.killed_from_outside for row in run(cases).rows] for _ in range(4)] == [[True]] * 4
    counts = itertools.count()
    monkeypatch.setattr(worker, "oom_kills", lambda: next(counts))
    assert [[row.status for row in run(cases).rows] for _ in range(3)] == [[Status.OUT_OF_MEMORY]] * 2 + [[]]


def test_other_code_another_driver_or_protocol_is_measured_again(run, fakes, monkeypatch):
    cases = [fakes.case()]
    run(cases)
    assert len(run(cases, environment=fakes.environment(driver="580.1")).rows) == 1
    assert len(run(cases, environment=fakes.environment(driver="580.1")).rows) == 0
    monkeypatch.setattr(plan, "implementation_version", lambda package: "edited")
    assert len(run(cases).rows) == 1


@pytest.mark.full
def test_a_file_with_another_content_is_measured_again(run, fakes, tmp_path):
    """Only the content counts: what has the same path, age and size may be another matrix."""
    paths = [tmp_path / folder / "mine.npz" for folder in ("first", "second")]
    for path, content in zip(paths, (b"one", b"two"), strict=True):
        path.parent.mkdir()
        path.write_bytes(content)
        os.utime(path, (1e9, 1e9))
    cases = [
        fakes.case(do=do).model_copy(
            update={
                "matrix": MatrixRef(source="npz", name="mine.npz", folder=str(path.parent)),
                "case_id": f"mine-{do}",
            }
        )
        for path in paths
        for do in ("ok", "build_error")
    ]
    assert [len(run(cases[:2]).rows) for _ in range(3)] == [2, 1, 0]
    assert [len(run(cases[2:]).rows) for _ in range(3)] == [2, 1, 0]
    assert run(cases).skipped == 4
    paths[0].write_bytes(b"new")
    assert [row.spec.matrix.file_sha256 for row in run(cases).rows] == [hashlib.sha256(b"new").hexdigest()] * 2


def test_warm_samples_are_made_up_for(run, fakes):
    assert run([fakes.case()]).rows[0].warm_samples_us == []
    assert run([fakes.case()], warm=True).rows[0].warm_samples_us == [9.0]
    assert len(run([fakes.case()], warm=True).rows) == 0


@pytest.fixture
def planned(fakes, monkeypatch, tmp_path):
    """Plan one case of which an earlier run has a record."""

    def planned(case, environment, options=None, baseline=None):
        (known,) = plan.completed([case])
        earlier = resume.Earlier(Status.OK, environment.packages, warm=False, baseline=baseline)
        history = resume.History({known.key(environment): earlier})
        monkeypatch.setattr(resume.History, "read", staticmethod(lambda folder: history))
        return plan.make_plan(fakes.chosen([case]), environment, tmp_path, options or Options())

    return planned


def test_a_run_with_another_baseline_says_what_stays_as_it_was(planned, fakes, caplog):
    for name, other in (("fake", ""), ("fake_gpu", "fake")):
        made = planned(fakes.case().model_copy(update={"baseline": name}), fakes.environment(), baseline="fake")
        assert [(item.action, item.other_baseline) for item in made.items] == [("skip", other)]
        caplog.clear()
        execute._tell_of_other_baselines(made)
        told = "1 cases are done and were measured beside fake, which is not their baseline now: --retry ok measures"
        assert (told in caplog.text) == bool(other)


def test_no_case_begins_after_the_time_is_up_and_one_that_has_begun_ends(run, fakes):
    assert run([fakes.case("a")], until=0.0).rows == ()
    summary = run([fakes.case(f"m{at}", "slow") for at in range(30)], until=time.monotonic() + 1.5)
    assert 0 < len(summary.rows) < 30
    assert (len(summary.rows) + summary.left, summary.interrupted) == (30, False)
    assert summary.statuses == {Status.OK: len(summary.rows)}


def test_ctrl_c_at_the_last_record_is_not_lost(run, fakes):
    class Stopping(Watcher):
        def recorded(self, row):
            signal.raise_signal(signal.SIGINT)

    summary = run([fakes.case()], watcher=Stopping())
    assert (len(summary.rows), summary.left, summary.interrupted) == (1, 0, True)


def test_another_flush_is_measured_beside_the_first(run, fakes):
    cases = [fakes.case(), fakes.case("lost", "segfault"), fakes.case(implementation="fake_gpu")]
    for flush in Flush:
        assert [row.spec.flush for row in run(cases, flush=flush).rows] == [flush] * 3
    assert [run(cases[::2], flush=flush).skipped for flush in Flush] == [2, 2]


@pytest.mark.parametrize(("kind", "action"), [(DeviceKind.CPU, "run"), (DeviceKind.HOST_SIMT, "skip")])
def test_where_times_mean_nothing_no_warm_sample_is_made_up_for(planned, fakes, kind, action):
    environment = fakes.environment(device=fakes.CPU.model_copy(update={"kind": kind}))
    (item,) = planned(fakes.case(), environment, Options(warm=True)).items
    assert item.action == action


def test_what_cannot_run_here_is_recorded_without_a_child(run, fakes):
    cases = [fakes.case(implementation="fake_gpu"), fakes.case(implementation="fake_missing"), fakes.case(op=Op.SDDMM)]
    summary = run(cases)
    assert [row.status for row in summary.rows] == [Status.UNSUPPORTED] * 3
    assert [row.reason for row in summary.rows] == [
        "runs on cuda, found a cpu device",
        "needs the package dgl, which is not installed: pip install -e '.[dgl]' in a checkout",
        "supports SpMM alone; SDDMM was asked for",
    ]
    assert measured() == {}
    assert run(cases).skipped == 3


def test_a_package_that_was_installed_since_is_noticed(run, fakes, monkeypatch):
    cases = [fakes.case(implementation="fake_missing")]
    run(cases)
    monkeypatch.setitem(fakes.IMPLEMENTATIONS, "fake_missing", fakes.TABLE["fake"])
    installed = fakes.environment().model_copy(update={"packages": {"spmark": "0", "dgl": "1.1.3"}})
    assert run(cases, environment=installed).rows[0].status is Status.OK
    assert run(cases, environment=installed).rows == ()


@pytest.mark.parametrize(
    ("implementation", "words"), [("nope", "found 'nope'"), ("fake_gpuu", "did you mean fake_gpu")]
)
def test_a_wrong_name_stops_before_anything_runs(run, fakes, tmp_path, implementation, words):
    with pytest.raises(SweepError, match=words):
        run([fakes.case(), fakes.case(implementation=implementation)])
    assert not (tmp_path / "r").exists()


def test_a_dead_device_stops_the_run_and_keeps_the_records(run, fakes, monkeypatch, tmp_path):
    monkeypatch.setenv("FAKE_DEAD", str(tmp_path / "dead"))
    with pytest.raises(DeviceError, match="the canary"):
        run([fakes.case("a"), fakes.case("b", "sticky_dead"), fakes.case("c")])
    rows = records(tmp_path / "r")
    assert [row.spec.matrix.name for row in rows] == ["a", "b"]
    assert "poisoned the device" in rows[1].reason
    (tmp_path / "dead").unlink()
    assert run([fakes.case("a"), fakes.case("c")]).statuses == {Status.OK: 1}


def test_two_runs_do_not_share_a_folder(run, fakes, tmp_path):
    with lock_folder(tmp_path / "r"), pytest.raises(RecordError, match=f"process {os.getpid()}"):
        run([fakes.case()])
    assert len(run([fakes.case()]).rows) == 1


def test_a_watcher_hears_everything_in_order(run, fakes):
    heard = []

    class Ear(Watcher):
        def begun(self, plan):
            heard.append(("begun", len(plan.items)))

        def entered(self, case, phase):
            heard.append((case.matrix.name, phase))

        def recorded(self, row):
            heard.append((row.spec.matrix.name, row.status.value))

    run([fakes.case("a"), fakes.case("b", implementation="fake_gpu")], watcher=Ear())
    phases = [("a", phase) for phase in ("starting", "loading", "building", "timing")]
    assert heard == [("begun", 2), *phases, ("a", "ok"), ("b", "unsupported")]


def test_a_full_disk_is_an_error_and_loses_nothing(run, fakes, tmp_path):
    run([fakes.case("before")])
    path = tmp_path / "r" / "records.jsonl"
    before, size = path.read_bytes(), path.stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size * 5 // 2, hard))  # one more row and half of the next
        with pytest.raises(RecordError, match="make room and run again"):
            run([fakes.case(f"m{n}") for n in range(4)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)
    kept = path.read_bytes()
    assert kept.startswith(before)
    assert kept.endswith(b"\n")
    names = [row.spec.matrix.name for row in records(tmp_path / "r")]
    assert names == ["before", "m0"]
    run([fakes.case("before")] + [fakes.case(f"m{n}") for n in range(4)])
    assert [row.spec.matrix.name for row in records(tmp_path / "r")] == ["before", "m0", "m1", "m2", "m3"]


def drive(folder: Path, cases: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(Path(__file__).with_name("drive.py")), str(folder), str(cases)]
    return subprocess.Popen(command, stderr=subprocess.PIPE)


def wait_for_records(folder: Path, count: int) -> None:
    for _ in range(400):
        path = folder / "records.jsonl"
        if path.exists() and path.read_bytes().count(b"\n") >= count:
            return
        time.sleep(0.05)
    raise AssertionError("no records came")


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_leaves_valid_records_and_the_next_run_goes_on(run, fakes, tmp_path, number):
    process = drive(tmp_path / "r", 12)
    wait_for_records(tmp_path / "r", 3)
    process.send_signal(number)
    assert process.wait(10) == 130, process.stderr.read()
    process.stderr.close()
    done = len(records(tmp_path / "r"))
    assert 3 <= done < 12
    summary = run([fakes.case(f"m{n}", "slow") for n in range(12)])
    assert (summary.skipped, len(summary.rows)) == (done, 12 - done)
    assert sum(count - 1 for count in measured().values()) <= 1  # only the case that was given up


@pytest.mark.full
def test_kill_minus_9_of_the_runner_loses_no_record_and_leaves_no_process(run, fakes, tmp_path, caplog):
    process = drive(tmp_path / "r", 12)
    wait_for_records(tmp_path / "r", 4)
    process.kill()
    process.wait()
    process.stderr.close()
    child = int(Path(os.environ["FAKE_LOG"]).read_text().split()[-1])
    deadline = time.monotonic() + 5
    while psutil.pid_exists(child) and psutil.Process(child).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "the child outlived the runner"
        time.sleep(0.02)
    path = tmp_path / "r" / "records.jsonl"
    done = len(records(tmp_path / "r"))
    with path.open("ab") as file:
        file.write(path.read_bytes()[:100])  # what a crash in the middle of a line leaves
    summary = run([fakes.case(f"m{n}", "slow") for n in range(12)])
    assert (summary.skipped, len(summary.rows)) == (done, 12 - done)
    assert "cut off" in caplog.text
    assert sorted(row.spec.matrix.name for row in records(tmp_path / "r")) == sorted(f"m{n}" for n in range(12))
    assert sum(count - 1 for count in measured().values()) <= 1


@pytest.mark.full
def test_a_thousand_cheap_cases_cost_less_than_20_ms_each(run, fakes, record_property):
    run([fakes.case("first")])
    summary = run([fakes.case(f"m{number}") for number in range(1000)])
    record_property("overhead_ms", summary.seconds)
    assert len(summary.rows) == 1000
    assert summary.seconds / 1000 < 0.020
