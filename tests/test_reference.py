"""scripts/reference.py: GPUs and cores are dealt out, a limit leaves tasks, and shards are joined without loss."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest
from candidate_records import held, write_manifest
from scripts_by_name import load_script

from spmark.datasets.sweep.model import Sweep, expand
from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.untrusted import Frozen
from spmark.records.rowfile import read_rows
from spmark.records.unpack import unpacked
from spmark.suite.plan.plan import select

pytestmark = pytest.mark.full


class Run(Frozen):
    """A row of a test."""

    run: int


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("reference")


def test_workers_take_turns_and_a_limit_leaves_the_rest(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = (
        "import os, sys, time; matrix = sys.argv[6].removeprefix('matrix=')\n"
        "print(os.environ['CUDA_VISIBLE_DEVICES'], *os.sched_getaffinity(0), matrix, flush=True)\n"
        "time.sleep(60) if matrix == 'long' else sys.exit(4 if matrix == 'bad' else 0)"
    )
    monkeypatch.setattr(script, "_GRACE_S", 0)
    monkeypatch.setattr(script, "_PROGRAM", (sys.executable, "-c", program))
    core = min(os.sched_getaffinity(0))
    crew = script.workers(["7"], [core])
    tasks = [script.Task("sweep", (name,), place) for place, name in enumerate(("good", "bad", "long", "good"))]
    assert script.run_tasks(tasks, crew, tmp_path, (), 3) == 3
    logs = [file.read_text().strip() for file in sorted(tmp_path.glob("*/log.txt"))]
    assert logs == [f"7 {core} good", f"7 {core} bad", f"7 {core} long"]


def test_cores_are_dealt_out_evenly(script: ModuleType) -> None:
    assert script.workers(["0", "5"], range(9), 2) == [("0", "0,1"), ("5", "2,3"), ("0", "4,5"), ("5", "6,7")]
    with pytest.raises(SystemExit, match="found 2 GPUs and 3 cores"):
        script.workers(["0", "5"], range(3), 2)


def test_shards_are_joined_and_every_line_is_kept_once(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = {0: b'{"a": 1}\n{"a": 2}\n', 1: b'{"a": 2}\n{"a": 3}\n{"torn'}
    for gpu, text in lines.items():
        folder = tmp_path / "shards" / str(gpu) / "sweep" / "nvidia-h200"
        folder.mkdir(parents=True)
        (folder / "records.jsonl").write_bytes(text)
        (folder / "candidates.jsonl").write_bytes(text)
        (folder / "environments.jsonl").write_bytes(b'{"digest": "d"}\n')
    for _ in range(2):
        script.join([tmp_path / "shards"], tmp_path / "into")
        told = capsys.readouterr().out
        assert told == f"{tmp_path}/into/sweep: 3 records, 3 candidates, 1 environments of 2 shards\n"
    found = tmp_path / "into" / "sweep"
    assert bz2.decompress((found / "records.jsonl.bz2").read_bytes()) == b'{"a": 1}\n{"a": 2}\n{"a": 3}\n'
    assert (found / "environments.jsonl").read_bytes() == b'{"digest": "d"}\n'
    assert lzma.decompress((found / "candidates.jsonl.xz").read_bytes()) == b'{"a": 1}\n{"a": 2}\n{"a": 3}\n'
    assert sorted(file.name for file in found.iterdir()) == [
        *("candidates.jsonl.xz", "environments.jsonl", "records.jsonl.bz2")
    ]


def test_facts_of_studies_are_joined_by_folder(script: ModuleType, tmp_path: Path) -> None:
    for shard, lines in (("1", '{"a": 1}\n{"b": 2}\n'), ("2", '{"b": 2}\n{"c": 3}\n')):
        folder = tmp_path / "shards" / shard / "dash_study"
        folder.mkdir(parents=True)
        (folder / "transfers.jsonl").write_text(lines)
    into = tmp_path / "into"
    script.join([tmp_path / "shards"], into)
    found = lzma.decompress((into / "dash_study" / "transfers.jsonl.xz").read_bytes())
    assert found == b'{"a": 1}\n{"b": 2}\n{"c": 3}\n'


@pytest.mark.parametrize("kind", [".bz2", ".gz", ".xz"])
def test_records_that_stand_are_kept(script: ModuleType, tmp_path: Path, kind: str) -> None:
    file = tmp_path / "into" / "sweep" / f"records.jsonl{kind}"
    file.parent.mkdir(parents=True)
    first = script._PACKERS[kind](b'{"run": -1}\n')
    file.write_bytes(first)
    for number in range(2):
        folder = tmp_path / f"run{number}" / "sweep" / "nvidia-h200"
        folder.mkdir(parents=True)
        (folder / "records.jsonl").write_text(f'{{"run": {number}}}\n')
        script.join([tmp_path / f"run{number}"], tmp_path / "into")
    assert list(file.parent.iterdir()) == [file], "an archive of another kind beside it would split the sweep"
    joined = file.read_bytes()
    assert unpacked(file) == b'{"run": -1}\n{"run": 0}\n{"run": 1}\n'
    assert joined.startswith(first), "bytes that git has are kept"
    assert [row.run for row in read_rows(file, Run)] == [-1, 0, 1], "one archive after the other"


def shard(root: Path, *names: str) -> Path:
    folder = root / "run" / "sweep" / "nvidia-h200"
    folder.mkdir(parents=True)
    for name in names or ("records.jsonl",):
        (folder / name).write_text('{"run": 1}\n')
    return root / "run"


@pytest.mark.parametrize("kind", [".bz2", ".gz", ".xz"])
@pytest.mark.parametrize(
    "spoil",
    [
        lambda whole: whole + b"garbage",
        lambda whole: whole + bytes([whole[0] ^ 1]) + whole[1:],
        lambda whole: whole[:-3],
        lambda whole: b"no archive",
    ],
    ids=["garbage behind", "damage behind", "cut off", "something else"],
)
def test_nothing_is_put_behind_damage(
    script: ModuleType, tmp_path: Path, kind: str, spoil: Callable[[bytes], bytes]
) -> None:
    file = tmp_path / "into" / "sweep" / f"records.jsonl{kind}"
    file.parent.mkdir(parents=True)
    content = spoil(script._PACKERS[kind](b'{"run": 0}\n' * 100))
    file.write_bytes(content)
    with pytest.raises(SystemExit, match=rf"records\.jsonl\{kind}: expected a whole archive, found damage"):
        script.join([shard(tmp_path)], tmp_path / "into")
    assert file.read_bytes() == content


def test_a_sweep_is_not_split_over_two_files(script: ModuleType, tmp_path: Path) -> None:
    into = tmp_path / "into" / "sweep"
    into.mkdir(parents=True)
    (into / "records.jsonl").write_text('{"run": 0}\n')
    script.join([shard(tmp_path)], tmp_path / "into")
    assert (into / "records.jsonl").read_text() == '{"run": 0}\n{"run": 1}\n'
    (into / "records.jsonl.gz").write_bytes(gzip.compress(b'{"run": 2}\n'))
    with pytest.raises(SystemExit, match=r"expected one file of records\.jsonl, found records\.jsonl and records\.j"):
        script.join([tmp_path / "run"], tmp_path / "into")


def test_candidates_that_are_published_apart_have_to_be_here(script: ModuleType, tmp_path: Path) -> None:
    into = tmp_path / "into"
    write_manifest(into, files=[{"path": "sweep/candidates.jsonl.gz", "bytes": 9, "sha256": "0" * 64}])
    (into / "sweep").mkdir()
    (into / "sweep" / "records.jsonl.bz2").write_bytes(bz2.compress(b'{"run": 0}\n'))
    before = held(into)
    with pytest.raises(SystemExit, match="`spmark fetch candidates --into"):
        script.join([shard(tmp_path, "records.jsonl", "candidates.jsonl")], into)
    assert held(into) == before, "neither are records put there"
    (tmp_path / "run/sweep/nvidia-h200/candidates.jsonl").unlink()
    script.join([tmp_path / "run"], into)
    assert [path.name for path in (into / "sweep").iterdir()] == ["records.jsonl.bz2"]


def test_a_torn_line_does_not_spoil_the_next(script: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / "run" / "sweep" / "nvidia-h200"
    folder.mkdir(parents=True)
    (folder / "records.jsonl").write_text('{"run": 1}\n')
    (folder / "runs.jsonl").write_text('{"began": 1}\n')
    into = tmp_path / "into" / "sweep"
    into.mkdir(parents=True)
    (into / "records.jsonl.gz").write_bytes(gzip.compress(b'{"run": 0}\n{"ru'))
    (into / "runs.jsonl").write_bytes(b'{"began": 0}\n{"beg')
    script.join([tmp_path / "run"], tmp_path / "into")
    assert gzip.decompress((into / "records.jsonl.gz").read_bytes()) == b'{"run": 0}\n{"run": 1}\n'
    assert (into / "runs.jsonl").read_bytes() == b'{"began": 0}\n{"began": 1}\n'


@pytest.mark.parametrize(("sweep", "together"), [("smoke", 1), ("stile_fig7_spmm", 1), ("lo_spmm_fig9_icache", 4)])
def test_tasks_together_run_every_case_once(script: ModuleType, sweep: str, together: int) -> None:
    cases, found = expand(Sweep.load(sweep, ()), DeviceKind.CUDA), []
    for task in script.every_matrix([sweep], together):
        words = task.command(Path("out"))
        found += select(cases, [words[words.index("--only") + 1]])
    assert sorted(case.case_id for case in found) == sorted(case.case_id for case in cases)


def test_missing_cases_are_those_that_no_sweep_has_records_of(script: ModuleType) -> None:
    cases = expand(Sweep.load("lo_spmm_table2"), DeviceKind.CUDA)
    both = [*cases, *expand(Sweep.load("lo_spmm_fig11_search_time"), DeviceKind.CUDA)]
    rows = [
        {"case_id": case.case_id, "matrix": case.matrix.id, "status": "ok", "nnz": 1000 - place}
        | {"implementation": case.implementation, "implementation_version": "of other code"}
        for place, case in enumerate(cases[:21])
    ]
    rows[20]["status"] = "timeout"
    tasks = script.missing(["lo_spmm_table2", "lo_spmm_fig11_search_time"], pd.DataFrame(rows), 3)
    found = []
    for task in tasks:
        words = task.command(Path("out"))
        chosen = [words[place + 1] for place, word in enumerate(words) if word == "--only"]
        found += [case.case_id for case in select(expand(Sweep.load(task.sweep), DeviceKind.CUDA), chosen)]
    assert len(found) == len(set(found))
    assert set(found) == {case.case_id for case in both} - {case.case_id for case in cases[:20]}
    assert len({task.folder(Path("out")) for task in tasks}) == len(tasks)
    again = script.missing(["lo_spmm_table2", "lo_spmm_fig11_search_time"], pd.DataFrame(rows), 3, same_code=True)
    assert sum(map(len, (task.matrices for task in again))) > sum(map(len, (task.matrices for task in tasks)))
    sizes = {row["matrix"].partition("/")[2]: row["nnz"] for row in rows}
    first = [sizes.get(task.matrices[0], 0) for task in tasks]
    assert first == sorted(first)
    assert max(first) > 0
