from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import dask
import pytest
import suite_fakes
import yaml
from outside import fake_slurm, free_port, make_certificates, settings, start_scheduler, start_worker, wait_for

import spmark.report.site.site  # before the fakes: pydantic looks through all modules, and one of them raises
from spmark.impls.core.errors import DeviceError, SweepError
from spmark.records.rowfile import read_rows
from spmark.records.schema import Measurement, Status
from spmark.studies.collected import CollectedRow
from spmark.suite.cli import main as cli
from spmark.suite.cluster import clusters
from spmark.suite.cluster.description import Slurm, read_description
from spmark.suite.plan.options import Options
from spmark.suite.run.execute import Watcher, run_chosen


@pytest.fixture
def files(tmp_path):
    folder = tmp_path / "certificates"
    folder.mkdir()
    return make_certificates(folder)


def run_on(place, fakes, cases, folder, watcher=None):
    return run_chosen(fakes.chosen(cases), place, folder, Options(), watcher=watcher or Watcher(), until=float("inf"))


class KillScheduler(Watcher):
    def __init__(self, process, after):
        self._process, self._left = process, after

    def recorded(self, row):
        self._left -= 1
        if self._left == 0:
            self._process.kill()


def as_configured(files, timeout="1s"):
    return dask.config.set(settings(files) | {"distributed.comm.timeouts.connect": timeout})


@pytest.mark.full
def test_a_scheduler_that_is_started_anew_goes_on_with_what_is_left(fakes, files, tmp_path):
    port, folder = free_port(), tmp_path / "r"
    address, cases = f"tls://127.0.0.1:{port}", [fakes.case(f"m{at}", "slow") for at in range(8)]
    started = [start_scheduler(port, files), start_worker(port, files)]
    try:
        with as_configured(files, "5s"):
            with (
                pytest.raises(DeviceError, match="the same command goes on"),
                clusters.opened("cpu", scheduler=address) as place,
            ):
                run_on(place, fakes, cases, folder, KillScheduler(started[0], after=2))
            done = len(list(read_rows(folder / "records.jsonl", Measurement)))
            assert 2 <= done < 8
            started += [start_scheduler(port, files), start_worker(port, files)]
            with clusters.opened("cpu", scheduler=address) as place:
                summary = run_on(place, fakes, cases, folder)
        assert (summary.skipped, summary.statuses) == (done, {Status.OK: 8 - done})
        rows = [row.case_id for row in read_rows(folder / "records.jsonl", Measurement)]
        assert sorted(rows) == sorted(case.case_id for case in cases)
    finally:
        for process in started:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_a_scheduler_without_encryption_is_refused(files):
    with pytest.raises(SweepError, match="certificates"), clusters.opened("cpu", scheduler="tls://127.0.0.1:1"):
        pass
    with as_configured(files):
        with pytest.raises(SweepError, match="tls://HOST:PORT"), clusters.opened("cpu", scheduler="127.0.0.1:1"):
            pass
        with (
            pytest.raises(DeviceError, match="expected a scheduler of Dask at"),
            clusters.opened("cpu", scheduler="tls://127.0.0.1:1"),
        ):
            pass


@pytest.fixture
def slurm(files, tmp_path):
    return {
        "kind": "slurm", "gpus": 2, "cores": 1, "memory": "1GB", "walltime": "00:10:00", "queue": "gpu",
        "account": "project", "directives": ["--gres=gpu:1", "--exclusive"], "interface": "lo",
        "logs": str(tmp_path), "certificates": files,
    }  # fmt: skip


def test_jobs_of_slurm_measure(fakes, slurm, monkeypatch, tmp_path):
    fake_slurm(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    path = tmp_path / "slurm.yaml"
    path.write_text(yaml.safe_dump(slurm))
    cases = [fakes.case(f"m{at}", "slow") for at in range(4)]
    with clusters.opened("cpu", file=path) as place:
        assert run_on(place, fakes, cases, tmp_path / "r").statuses == {Status.OK: 4}
    assert len((tmp_path / "cancelled").read_text().splitlines()) == 2


@pytest.mark.full
def test_hosts_by_ssh_measure(fakes, files, monkeypatch, tmp_path):
    port, home = free_port(), tmp_path / "home"
    server = subprocess.Popen([sys.executable, str(Path(__file__).with_name("sshd.py")), str(port), str(home)])
    try:
        wait_for((home / "ready").exists)
        monkeypatch.setenv("HOME", str(home))
        path = tmp_path / "ssh.yaml"
        told = {"kind": "ssh", "port": port, "hosts": [{"host": "127.0.0.1", "gpus": [0, 1]}], "interface": "lo"}
        path.write_text(yaml.safe_dump(told | {"certificates": files}))
        cases = [fakes.case(f"m{at}", "slow") for at in range(4)]
        with clusters.opened("cpu", file=path) as place:
            assert run_on(place, fakes, cases, tmp_path / "r").statuses == {Status.OK: 4}
    finally:
        server.kill()
        server.wait()


WRONG = [
    ({"prologue": "rm -rf x"}, "prologue"),
    ({"queue": "gpu\nrm -rf x"}, "queue"),
    ({"directives": ["--gres=gpu:1; rm"]}, "directives"),
    ({"directives": ["rm"]}, "directives"),
    ({"python": "sh -c x"}, "python"),
    ({"certificates": {"ca": "a.pem"}}, "certificates"),
    ({"kind": "pbs"}, "kind|tag"),
    ({"gpus": 0}, "gpus"),
]


@pytest.mark.parametrize(("change", "told"), WRONG)
def test_a_description_holds_what_is_named_and_no_commands(slurm, tmp_path, change, told):
    path = tmp_path / "slurm.yaml"
    path.write_text(yaml.safe_dump(slurm))
    assert isinstance(read_description(path), Slurm)
    path.write_text(yaml.safe_dump(slurm | change))
    with pytest.raises(SweepError, match=told):
        read_description(path)


def test_workers_of_this_machine_do_not_ask_nvml():
    """It ends those of a CPU whose number no GPU has."""
    with clusters.on_this_machine(["7"]) as client:
        told = client.run(lambda: __import__("dask").config.get("distributed.diagnostics.nvml"))
    assert list(told.values()) == [False]


def test_what_gpus_may_be(monkeypatch):
    assert clusters.chosen_gpus("0,2", "cpu") == ["0", "2"]
    monkeypatch.setattr(clusters, "visible_gpus", lambda: ["4", "5", "6"])
    assert clusters.chosen_gpus("all", "auto") == ["4", "5", "6"]
    assert clusters.chosen_gpus("0,2", "cuda") == ["4", "6"]
    for gpus in ("", "0,0", "x", "0-2", "-1"):
        with pytest.raises(SweepError, match="expected all, or numbers of GPUs"):
            clusters.chosen_gpus(gpus, "cuda")
    with pytest.raises(DeviceError, match="expected GPUs out of 0 to 2, found 3"):
        clusters.chosen_gpus("1,3", "cuda")
    with pytest.raises(SweepError, match="expected one of"), clusters.opened("cpu", gpus="0", file=Path("x")):
        pass


SWEEP = """
schema: 1
name: tiny
ops: [spmm, sddmm]
matrices:
  - {source: rmat, name: small, args: {scale: 6, edge_factor: 4}}
  - {source: patterns, name: logsparse_64}
widths: [8]
implementations: [scipy_cpu]
"""


def spmark(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["spmark", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code or 0


@pytest.mark.full
def test_shards_of_a_collection_run_on_all_workers(monkeypatch, capsys, tmp_path):
    sweep, out = tmp_path / "tiny.yaml", tmp_path / "samples"
    sweep.write_text(SWEEP)
    words = ["study", "collect", "--platform", "spade_sim", "--sweep", sweep, "--configs", 3, "--out", out]
    assert spmark(monkeypatch, *words, "--gpus", "0,1,2", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert [shard["made"] for shard in answer["shards"]] == [2, 2, 0], "there are two matrices"
    rows = [row for file in (out / "spade_sim").glob("*.jsonl") for row in read_rows(file, CollectedRow)]
    assert len({(row.matrix, row.op) for row in rows}) == len(rows) == 4
    assert spmark(monkeypatch, *words, "--json") == 0, "one shard in place of two goes on, too"
    assert json.loads(capsys.readouterr().out)["made"] == 0
    assert spmark(monkeypatch, *words, "--gpus", "0", "--shard", "1/2") == 2


def test_the_command_line_runs_a_sweep_on_workers(fakes, monkeypatch, capsys, tmp_path):
    sweep, out = tmp_path / "tiny.yaml", tmp_path / "r"
    sweep.write_text(suite_fakes.SWEEP)
    words = ["run", sweep, "--device", "cpu", "--gpus", "0,1", "--out", out, "--json"]
    assert spmark(monkeypatch, *words) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["statuses"] == {"ok": 2, "run_error": 2, "unsupported": 2}
    assert len(list(read_rows(out / "tiny" / "fake-cpu" / "records.jsonl", Measurement))) == 6


def test_the_files_of_the_documents_are_descriptions(tmp_path):
    page = (Path(__file__).parents[2] / "docs/cluster.md").read_text()
    blocks = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    kinds = []
    for block in blocks:
        (tmp_path / "cluster.yaml").write_text(block)
        kinds.append(read_description(tmp_path / "cluster.yaml").kind)
    assert kinds == ["slurm", "ssh"]


@pytest.mark.full
def test_a_paper_is_reproduced_on_workers(fakes, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(suite_fakes.SWEEP)
    paper = {
        "schema": 1,
        "name": "toy",
        "title": "A paper",
        "citation": "Someone",
        "needs": ["fake"],
        "beside": ["fake_gpu"],
    }
    paper |= {"steps": [{"sweep": str(tmp_path / "tiny.yaml"), "shows": "all of it"}]}
    (tmp_path / "toy.yaml").write_text(yaml.safe_dump(paper))
    words = ["reproduce", "toy.yaml", "--budget", "90s", "--device", "cpu", "--gpus", "0,1", "--out", "r", "--json"]
    assert spmark(monkeypatch, *words) == 0
    (step,) = json.loads(capsys.readouterr().out)["steps"]
    assert step["left"] == 0
    assert len(list(read_rows(tmp_path / "r" / "tiny" / "fake-cpu" / "records.jsonl", Measurement))) == 4
