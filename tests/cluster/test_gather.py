from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from distributed import Client, Security
from outside import wait_for

from spmark.impls.core.errors import DeviceError, RecordError
from spmark.records.rowfile import RUNS, read_rows
from spmark.records.schema import CandidateRow, EnvironmentRow, Measurement, Status
from spmark.suite.cluster import gather
from spmark.suite.cluster.slow_gpus import slower
from spmark.suite.run.execute import Watcher
from spmark.suite.run.provenance import RunRow
from spmark.suite.run.share import SHARE, share_of_cores


def records(folder: Path) -> list[Measurement]:
    return list(read_rows(folder / "records.jsonl", Measurement))


def measured() -> Counter[str]:
    """Count how often each case was given to a bench."""
    return Counter(case for case, _ in benched())


def benched() -> list[list[str]]:
    """List what benches were given, and the children's ids; each worker's probe is left out."""
    lines = [line.split() for line in Path(os.environ["FAKE_LOG"]).read_text().splitlines()]
    return [line for line in lines if "/rmat/probe/" not in line[0]]


def each_once(folder: Path, cases) -> bool:
    return sorted(row.case_id for row in records(folder)) == sorted(case.case_id for case in cases)


class After(Watcher):
    """Does something once, after a number of records."""

    def __init__(self, count, action):
        self._left, self._action = count, action

    def recorded(self, row):
        self._left -= 1
        if self._left == 0:
            self._action()


def test_every_case_has_one_record_and_the_next_run_goes_on(run, fakes, tmp_path):
    behaviours = ["ok", "segfault", "memory", "hang", "sticky", "ok"]
    cases = [fakes.case(f"m{at}", do, time_limit_s=1 if do == "hang" else 30) for at, do in enumerate(behaviours)]
    cases.append(fakes.case(implementation="fake_gpu"))
    summary = run(cases)
    assert each_once(tmp_path / "r", cases)
    assert summary.statuses == {
        Status.OK: 2, Status.RUN_ERROR: 2, Status.OUT_OF_MEMORY: 1, Status.TIMEOUT: 1, Status.UNSUPPORTED: 1,
    }  # fmt: skip
    assert (summary.left, summary.skipped, summary.interrupted) == (0, 0, False)
    assert len(list(read_rows(tmp_path / "r" / "candidates.jsonl", CandidateRow))) == 2
    (environment,) = read_rows(tmp_path / "r" / "environments.jsonl", EnvironmentRow)
    assert {row.environment for row in records(tmp_path / "r")} == {environment.digest}
    again = run(cases)
    assert (len(again.rows), again.skipped) == (4, 3)
    assert len(run(cases).rows) == 0


def test_cases_of_one_problem_share_a_child_and_every_worker_has_one(run, fakes):
    told = [{"do": "sleep", "seconds": seconds} for seconds in (0.2, 0.1)]
    cases = [fakes.but(fakes.case(f"m{at}"), config=config) for at in range(8) for config in told]
    run(cases)
    lines = benched()
    by_matrix = {}
    for case, child in lines:
        by_matrix.setdefault(case.split("/")[2], set()).add(child)
    assert all(len(children) == 1 for children in by_matrix.values())
    assert len({child for _, child in lines}) == 4


def test_a_worker_that_is_killed_loses_nothing_and_repeats_no_recorded_case(run, fakes, client, tmp_path):
    killed = {}

    def kill():
        address, process = next(iter(client.run(os.getpid).items()))
        killed[address] = process
        psutil.Process(process).kill()

    told = [{"do": "sleep", "seconds": 0.1 + 0.01 * number} for number in range(6)]
    cases = [fakes.but(fakes.case(f"m{at}"), config=config) for at in range(4) for config in told]
    summary = run(cases, After(12, kill))
    assert killed
    assert (summary.statuses, summary.left) == ({Status.OK: 24}, 0)
    assert each_once(tmp_path / "r", cases)
    assert sum(count - 1 for count in measured().values()) <= 2


def test_a_connection_that_breaks_is_made_again(run, fakes, client, tmp_path):
    cases = [fakes.case(f"m{at}", "slow") for at in range(12)]
    cut = After(3, lambda: client.loop.add_callback(client.scheduler_comm.comm.abort))
    summary = run(cases, cut)
    assert (summary.statuses, summary.left) == ({Status.OK: 12}, 0)
    assert each_once(tmp_path / "r", cases)


def test_a_case_that_two_workers_measure_is_recorded_once(run, fakes, monkeypatch, tmp_path):
    monkeypatch.setattr(gather, "grouped", lambda items, workers: [[item] for item in items] * 2)
    cases = [fakes.case(f"m{at}") for at in range(4)]
    assert len(run(cases).rows) == 4
    assert each_once(tmp_path / "r", cases)
    assert max(measured().values()) == 2


def test_a_full_disk_is_an_error_and_loses_nothing(run, fakes, tmp_path):
    path, cases = tmp_path / "r" / "records.jsonl", [fakes.case(f"m{at}") for at in range(6)]
    run(cases[:1])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size * 7 // 2, hard))  # two more and a half
        with pytest.raises(RecordError, match="make room and run again"):
            run(cases)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)
    kept = len(records(tmp_path / "r"))
    assert 1 <= kept <= 3, "outcomes that come together are written together, or not at all"
    assert run(cases).skipped == kept
    assert each_once(tmp_path / "r", cases)


@pytest.mark.full
def test_ctrl_c_ends_all_processes_and_the_next_run_goes_on(run, fakes, tmp_path):
    command = [sys.executable, str(Path(__file__).with_name("drive.py")), str(tmp_path / "r"), "40"]
    process = subprocess.Popen(command, start_new_session=True)
    path = tmp_path / "r" / "records.jsonl"
    wait_for(lambda: path.exists() and path.read_bytes().count(b"\n") >= 4)
    below = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    assert process.wait(30) == 130
    psutil.wait_procs(below, 5)
    assert not [child for child in below if child.is_running()]
    done = len(records(tmp_path / "r"))
    assert 4 <= done < 40
    cases = [fakes.case(f"m{at}", "slow") for at in range(40)]
    assert run(cases).skipped == done
    assert each_once(tmp_path / "r", cases)
    # Of each of two workers the case that was given up, and perhaps the one before, whose outcome was on its way.
    assert sum(count - 1 for count in measured().values()) <= 4


def test_time_that_is_up_ends_a_run_after_the_cases_that_have_begun(run, fakes, monkeypatch, tmp_path):
    ahead = [0.0]
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + ahead[0], sleep=time.sleep)
    monkeypatch.setattr(gather, "time", clock)
    cases = [fakes.case(f"m{at}", "slow") for at in range(40)]
    summary = run(cases, After(4, lambda: ahead.__setitem__(0, 2e6)), until=time.monotonic() + 1e6)
    assert 4 <= len(summary.rows) < 40
    assert (summary.left, summary.interrupted) == (40 - len(summary.rows), False)
    assert sum(measured().values()) == len(summary.rows)


def test_nobody_without_the_certificate_is_let_in(client):
    worker, scheduler = next(iter(client.nthreads())), client.scheduler.address
    assert worker.startswith("tls://")
    for address in (worker, scheduler):
        plain = address.replace("tls://", "tcp://")
        for url, security in ((plain, None), (address, Security.temporary())):
            with pytest.raises((OSError, TimeoutError)), Client(url, security=security, timeout=1):
                pass
    assert client.submit(sum, (1, 2)).result() == 3


def test_parts_of_a_machine_cover_its_cores(monkeypatch):
    cores = os.sched_getaffinity(0)
    covered = []
    for number in range(len(cores)):
        monkeypatch.setenv(SHARE, f"{number}/{len(cores)}")
        covered += share_of_cores()
    assert sorted(covered) == sorted(cores)
    monkeypatch.setenv(SHARE, f"{len(cores)}/{2 * len(cores)}")
    assert len(share_of_cores()) == 1, "more parts than cores"


@pytest.mark.full
@pytest.mark.parametrize("client", [("leaves", "stays")], indirect=True)
def test_a_node_that_leaves_hands_its_cases_on(run, fakes, client, tmp_path):
    cases = [fakes.case(f"m{at}", "slow") for at in range(8)]
    summary = run(cases, After(2, lambda: client.cluster.scale(1)))
    assert (summary.statuses, summary.left) == ({Status.OK: 8}, 0)
    assert each_once(tmp_path / "r", cases)


@pytest.mark.parametrize("client", [("", "other"), pytest.param(("", "dead"), marks=pytest.mark.full)], indirect=True)
def test_a_worker_that_cannot_measure_leaves_and_the_others_do_its_cases(run, fakes, client, caplog, tmp_path):
    cases = [fakes.case(f"m{at}", "slow") for at in range(6)]
    assert run(cases).statuses == {Status.OK: 6}
    assert each_once(tmp_path / "r", cases)
    (told,) = [record.getMessage() for record in caplog.records if "a worker leaves" in record.getMessage()]
    assert "expected the driver " in told or "the canary found 0" in told
    assert len(client.nthreads()) == 1


@pytest.mark.parametrize("client", [("dead",)], indirect=True)
def test_a_run_without_a_worker_that_computes_is_an_error(run, fakes):
    with pytest.raises(DeviceError, match=r"found none left: .*the canary found 0"):
        run([fakes.case()])


@pytest.mark.full
@pytest.mark.parametrize("client", [("", "skewed")], indirect=True)
def test_times_in_records_are_of_the_clock_of_the_process_that_writes(run, fakes, client, tmp_path):
    ahead = [seconds - time.time() for seconds in client.run(time.time).values()]
    assert max(ahead) > 80_000, "one worker's clock is a day ahead"
    before = datetime.now(UTC)
    cases = [fakes.case(f"m{at}", "slow") for at in range(6)]
    run(cases)
    assert all(before <= row.started_at <= datetime.now(UTC) for row in records(tmp_path / "r"))
    runs = list(read_rows(tmp_path / "r" / RUNS, RunRow))
    assert min(run.started_at for run in runs) <= min(row.started_at for row in records(tmp_path / "r"))
    assert each_once(tmp_path / "r", cases)


@pytest.mark.full
@pytest.mark.parametrize("client", [("apart", "", "")], indirect=True)
def test_a_machine_that_does_not_see_the_cache_is_told_of_once(run, fakes, caplog):
    run([fakes.case(f"m{at}", "slow") for at in range(9)])
    (told,) = [line.getMessage() for line in caplog.records if "a cache of its own" in line.getMessage()]
    assert told.startswith("127.0.0.1 has a cache")
    assert "SPMARK_CACHE" in told and "spmark mirror make" in told


@pytest.mark.parametrize("client", [("", "", "slow")], indirect=True)
def test_a_gpu_that_is_slower_than_its_siblings_is_told_of(run, fakes, caplog):
    run([fakes.case(f"m{at}", "slow") for at in range(12)])
    (told,) = [one.getMessage() for one in caplog.records if one.name == gather.__name__]
    assert "is 900.0 % slower than the median of 3 GPUs" in told


def test_what_runs_of_one_code_differ_by_is_no_slower_gpu(fakes):
    usual = {f"gpu{number}": 100.0 + number for number in range(8)}
    assert slower(usual, fakes.CPU) == {}
    assert slower(usual | {"hot": 150.0}, fakes.CPU) == {"hot": pytest.approx(150 / 104 - 1)}
    assert slower({"a": 100.0, "b": 300.0}, fakes.CPU) == {}, "of two, none is the usual one"
