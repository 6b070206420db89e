"""What a run leaves of itself in ``runs.jsonl``, and the commands that are made of it."""

from __future__ import annotations

import json
import subprocess
from datetime import timedelta

import pytest
import yaml

from spmark.datasets.sweep.model import Sweep
from spmark.impls.core.errors import RecordError
from spmark.impls.runtime import device
from spmark.records.rowfile import RUNS, RecordFile, read_rows
from spmark.records.schema import EnvironmentRow
from spmark.report.records import load_every_run
from spmark.suite import environment
from spmark.suite.run import execute
from spmark.suite.run.provenance import RunRow, command_words, read_batches, recipe

SWEEP = """
schema: 1
name: tiny
ops: [spmm]
matrices: [{source: patterns, name: a}, {source: patterns, name: b}]
widths: [32]
implementations: [fake, {name: fake, label: slow, config: {do: slow}}]
"""


@pytest.fixture
def sweep(fakes, monkeypatch, tmp_path):
    monkeypatch.setattr(device, "find", lambda name: fakes.CPU)
    monkeypatch.setattr(execute, "calibrated", lambda spec: spec)
    path = tmp_path / "deep" / "folder" / "tiny.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(SWEEP)
    return path


def test_a_run_leaves_its_command_without_paths_and_its_whole_sweep(sweep, tmp_path, invoke):
    out = tmp_path / "out"
    arguments = ("--out", out, "--device", "cpu", "--set", "widths=[64]", "--only", "matrix=a")
    assert invoke("run", sweep, *arguments)[0] == 0
    folder = out / "tiny" / "fake-cpu"
    (row,) = read_rows(folder / RUNS, RunRow)
    asked = ("--device", "cpu", "--set", "widths=[64]", "--only", "matrix=a")
    assert row.command == ("spmark", "run", "tiny.yaml", *asked)
    assert str(tmp_path) not in row.model_dump_json()
    assert row.cases == 2
    assert row.environment == next(read_rows(folder / "environments.jsonl", EnvironmentRow)).digest
    assert Sweep.model_validate(row.sweep) == Sweep.load(sweep, ["widths=[64]"])
    assert len(load_every_run([out])) == 2, "the side file is no record file"


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["/x/bin/spmark", "run", "quickstart", "--out=there"], ("spmark", "run", "quickstart")),
        (["/x/spmark/__main__.py", "run", "planetoid/cora"], ("spmark", "run", "planetoid/cora")),
        (
            ["spmark", "run", "tiny", f"--cusparse={__file__}"],
            ("spmark", "run", "tiny", "--cusparse=test_provenance.py"),
        ),
        (["python", "script.py"], ()),
    ],
)
def test_words_are_those_of_the_command_line(argv, words):
    assert command_words(argv) == words


@pytest.mark.full
def test_a_run_with_nothing_to_do_leaves_no_row_and_a_resumed_one_is_one_batch(sweep, tmp_path, invoke):
    out = tmp_path / "out"
    arguments = ("run", sweep, "--out", out, "--only", "matrix=a")
    assert invoke(*arguments, "--limit", 1)[0] == 0
    assert invoke(*arguments)[0] == 0
    assert invoke(*arguments)[0] == 0
    rows = list(read_rows(out / "tiny" / "fake-cpu" / RUNS, RunRow))
    assert ["--limit" in row.command for row in rows] == [True, False]
    (batches,) = read_batches(out).values()
    assert [len(batch.records) for batch in batches] == [1, 1]


def test_provenance_prints_what_repeats_a_run(sweep, tmp_path, invoke):
    out = tmp_path / "out"
    assert invoke("run", sweep, "--out", out, "--set", "widths=[64]")[0] == 0
    code, text, err = invoke("show", out)
    assert code == 0, err
    lines = text.splitlines()
    assert ".venv/bin/spmark run tiny.yaml --set 'widths=[64]'" in lines
    start, end = lines.index("cat > tiny.yaml <<'END'"), lines.index("END")
    again = tmp_path / "again.yaml"
    again.write_text("\n".join(lines[start + 1 : end]))
    assert Sweep.load(again) == Sweep.load(again, ["widths=[64]"]) == Sweep.load(sweep, ["widths=[64]"])
    (answer,) = json.loads(invoke("show", out, "--json")[1])
    assert answer["commands"][-1] == ".venv/bin/spmark run tiny.yaml --set 'widths=[64]'"


def test_the_script_is_one_that_a_shell_takes(sweep, tmp_path, invoke):
    out = tmp_path / "out"
    assert invoke("run", sweep, "--out", out, "--only", "matrix=a*")[0] == 0
    text = invoke("show", out)[1]
    checked = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True)
    assert checked.returncode == 0, checked.stderr
    assert "--only 'matrix=a*'" in text


def test_uncommitted_changes_are_told_with_their_digest(fakes, tmp_path, monkeypatch):
    facts = fakes.environment().model_copy(update={"commit": "ab" * 20 + "+"})
    monkeypatch.setattr(execute, "changes_digest", lambda: "0123456789abcdef")
    fakes.run_cases([fakes.case()], tmp_path, facts)
    ((batch,),) = read_batches(tmp_path).values()
    made = recipe(batch)
    assert f"git checkout {'ab' * 20}" in made.commands
    assert made.commands[-1] == ".venv/bin/spmark run fake.yaml", "Python asked for it: the sweep is what repeats it"
    assert any("not committed (digest 0123456789abcdef)" in limit for limit in made.limits)


def test_the_digest_of_changes(tmp_path):
    def git(*arguments):
        subprocess.run(["git", "-C", tmp_path, *arguments], check=True, capture_output=True)

    assert environment._changes(tmp_path) == ""
    git("init")
    (tmp_path / "a").write_text("one")
    git("add", "a")
    git("-c", "user.name=n", "-c", "user.email=e@x", "commit", "-m", "m")
    assert environment._changes(tmp_path) == ""
    (tmp_path / "a").write_text("two")
    two = environment._changes(tmp_path)
    (tmp_path / "a").write_text("three")
    assert len(two) == 16
    assert environment._changes(tmp_path) not in ("", two)


def test_records_go_to_the_last_run_of_their_machine_that_began_before(fakes, tmp_path):
    facts = fakes.environment()
    summary = fakes.run_cases([fakes.case()], tmp_path, facts)
    (row,) = summary.rows
    (run,) = read_rows(tmp_path / RUNS, RunRow)
    with RecordFile(tmp_path / RUNS) as file:
        file.append(run.model_copy(update={"started_at": row.started_at + timedelta(seconds=5), "command": ("late",)}))
        file.append(run.model_copy(update={"environment": "other", "command": ("elsewhere",)}))
    with RecordFile(tmp_path / "records.jsonl") as file:
        file.append(row.model_copy(update={"started_at": row.started_at + timedelta(seconds=9)}))
        file.append(row.model_copy(update={"started_at": run.started_at - timedelta(days=1)}))
    (batches,) = read_batches(tmp_path).values()
    assert [batch.run and batch.run.command for batch in batches] == [None, (), ("late",)]


@pytest.mark.parametrize("name", ["smoke", "graphs_spmm", "dnn_layers"])
def test_a_sweep_survives_as_data(name):
    sweep = Sweep.load(name)
    row = RunRow.of(sweep, "e", 3, "")
    assert Sweep.model_validate(yaml.safe_load(yaml.safe_dump(row.sweep))) == sweep
    assert RunRow.model_validate_json(row.model_dump_json()) == row


def test_no_records_say_so(tmp_path):
    with pytest.raises(RecordError, match="expected records, found none"):
        read_batches(tmp_path)
