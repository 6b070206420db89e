"""What a run leaves of itself in ``runs.jsonl``, and the commands that are made of it."""

from __future__ import annotations

import json
import subprocess
from datetime import timedelta
from functools import partial
from math import inf, nan
from pathlib import Path
from shutil import copytree, ignore_patterns

import pytest
import typer
import yaml
from pydantic import ValidationError
from typer.testing import CliRunner

from spmark.datasets.sweep.model import Sweep, expand
from spmark.impls.core.errors import RecordError
from spmark.impls.core.record import EnvironmentRow, Measurement
from spmark.impls.core.recordfile import RecordFile, read_rows
from spmark.impls.runtime import device
from spmark.report.records import load_every_run
from spmark.suite import environment
from spmark.suite.cli import main as cli
from spmark.suite.cli import run as run_command
from spmark.suite.plan.options import Options
from spmark.suite.run.provenance import RUNS, RunRow, command_line, is_run, read_batches, sweep_data, sweep_digest
from spmark.suite.run.recipe import recipe

REFERENCE = Path(__file__).parents[2] / "report" / "reference" / "h200"
REPEATED = REFERENCE.parent / "aa" / "nvidia-h200-protocol-1"
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
    monkeypatch.setattr(device, "calibrated", lambda spec: spec)
    monkeypatch.setattr(run_command, "run_cases", partial(run_command.run_cases, factory=fakes.FACTORY))
    path = tmp_path / "deep" / "folder" / "tiny.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(SWEEP)
    return path


def invoke(*arguments):
    return CliRunner().invoke(cli.app, [*map(str, arguments)])


def test_a_run_leaves_its_command_without_paths_and_its_whole_sweep(sweep, tmp_path):
    out = tmp_path / "out"
    arguments = ("--out", out, "--device", "cpu", "--set", "widths=[64]", "--only", "matrix=a")
    assert invoke("run", sweep, *arguments).exit_code == 0
    folder = out / "tiny" / "fake-cpu"
    (row,) = read_rows(folder / RUNS, RunRow)
    assert row.command == (
        "spmark",
        "run",
        "tiny.yaml",
        "--device",
        "cpu",
        "--only",
        "matrix=a",
        "--set",
        "widths=[64]",
    )
    assert str(tmp_path) not in row.model_dump_json()
    assert row.cases == 2
    assert row.environment == next(read_rows(folder / "environments.jsonl", EnvironmentRow)).digest
    assert Sweep.model_validate(row.sweep) == Sweep.load(sweep, ["widths=[64]"])
    assert row.sweep_digest == sweep_digest(Sweep.load(sweep, ["widths=[64]"])) != sweep_digest(Sweep.load(sweep))
    assert len(load_every_run([out])) == 2, "the side file is no record file"


@pytest.mark.full
def test_a_run_with_nothing_to_do_leaves_no_row_and_a_resumed_one_is_one_batch(sweep, tmp_path):
    out = tmp_path / "out"
    arguments = ("run", sweep, "--out", out, "--only", "matrix=a")
    assert invoke(*arguments, "--limit", 1).exit_code == 0
    assert invoke(*arguments).exit_code == 0
    assert invoke(*arguments).exit_code == 0
    rows = list(read_rows(out / "tiny" / "fake-cpu" / RUNS, RunRow))
    assert ["--limit" in row.command for row in rows] == [True, False]
    (batches,) = read_batches(out).values()
    assert [len(batch.records) for batch in batches] == [1, 1]


def test_provenance_prints_what_repeats_a_run(sweep, tmp_path):
    out = tmp_path / "out"
    assert invoke("run", sweep, "--out", out, "--set", "widths=[64]").exit_code == 0
    ended = invoke("provenance", out)
    assert ended.exit_code == 0, ended.output
    lines = ended.output.splitlines()
    assert ".venv/bin/spmark run tiny.yaml" in lines, "overrides are in the sweep that is written out"
    start, end = lines.index("cat > tiny.yaml <<'END'"), lines.index("END")
    again = tmp_path / "again.yaml"
    again.write_text("\n".join(lines[start + 1 : end]))
    assert Sweep.load(again) == Sweep.load(sweep, ["widths=[64]"])
    (answer,) = json.loads(invoke("provenance", out, "--json").stdout)
    assert answer["commands"][-1] == ".venv/bin/spmark run tiny.yaml"


def test_the_script_is_one_that_a_shell_takes(sweep, tmp_path):
    out = tmp_path / "out"
    assert invoke("run", sweep, "--out", out, "--only", "matrix=a*").exit_code == 0
    text = invoke("provenance", out).output
    checked = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True)
    assert checked.returncode == 0, checked.stderr
    assert "--only 'matrix=a*'" in text


def test_uncommitted_changes_are_told_with_their_digest(fakes, tmp_path, monkeypatch):
    facts = fakes.environment().model_copy(update={"commit": "ab" * 20 + "+"})
    monkeypatch.setattr("spmark.suite.run.runner.changes_digest", lambda: "0123456789abcdef")
    fakes.run_cases([fakes.case()], tmp_path, facts)
    ((batch,),) = read_batches(tmp_path).values()
    made = recipe(batch, "tiny")
    assert f"git checkout {'ab' * 20}" in made.commands
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


def test_published_records_without_a_command_line_are_rebuilt_from_their_cases(tmp_path):
    copytree(REFERENCE / "graphs_sddmm", tmp_path / "graphs_sddmm", ignore=ignore_patterns(RUNS))
    for folder, name in ((tmp_path / "graphs_sddmm", "graphs_sddmm"), (REPEATED, "aa")):
        answer = json.loads(invoke("provenance", folder, "--json").stdout)[-1]
        assert any("on record" in limit for limit in answer["limits"])
        assert any(command.startswith("git checkout ") for command in answer["commands"])
        assert any("cupy-cuda13x==" in command for command in answer["commands"])
        assert answer["commands"][-1].startswith(f".venv/bin/spmark run {name}")
    assert any("up to 20 times" in limit for limit in answer["limits"])
    text = answer["commands"][-2].split("\n", 1)[1].removesuffix("END")
    made = Sweep.model_validate(yaml.safe_load(text))
    wanted = {row.case_id for row in read_rows(REPEATED / "aa.jsonl.gz", Measurement)}
    assert wanted <= {case.case_id for case in expand(made, "cuda")}


def test_every_option_of_a_run_is_on_record_but_what_changes_no_measurement():
    run = typer.main.get_command(cli.app).commands["run"]
    taken = {name for parameter in run.params for name in parameter.opts if name.startswith("--")}
    full = Options(
        sweep="s", device="cpu", only=("a",), retry=("ok",), overrides=("a=b",), limit=1, warm=True, flush="read"
    )
    in_the_sweep = {"--matrix", "--width", "--op", "--dtype", "--implementation"}  # tests/suite/test_onematrix.py
    assert in_the_sweep <= taken
    assert taken - {*command_line(full)} - in_the_sweep == {"--dry-run", "--out", "--strict", "--json"}
    assert is_run(command_line(full))
    assert command_line(full.model_copy(update={"sweep": ""})) == (), "Python called"


@pytest.mark.parametrize(
    "asked",
    [
        {"half_width": nan}, {"half_width": inf}, {"half_width": 0.0}, {"half_width": -0.1},
        {"max_seconds": -1.0}, {"max_seconds": 0.0}, {"max_seconds": nan}, {"max_seconds": inf},
        {"graph_below_us": nan}, {"graph_below_us": inf}, {"graph_below_us": -1.0},
    ],
)  # fmt: skip
def test_options_that_no_sampling_can_follow_are_refused(asked):
    (name,) = asked
    with pytest.raises(ValidationError, match=name):
        Options(**asked)


@pytest.mark.parametrize("name", ["smoke", "graphs_spmm", "dnn_layers"])
def test_a_sweep_survives_as_data(name):
    sweep = Sweep.load(name)
    assert Sweep.model_validate(yaml.safe_load(yaml.safe_dump(sweep_data(sweep)))) == sweep
    row = RunRow.of(Options(sweep=name), sweep, "e", 3, "")
    assert RunRow.model_validate_json(row.model_dump_json()) == row


def test_no_records_say_so(tmp_path):
    with pytest.raises(RecordError, match="expected records, found none"):
        read_batches(tmp_path)


def test_the_load_of_the_machine_is_told_where_records_have_it(fakes, tmp_path):
    folder = tmp_path / "r"
    summary = fakes.run_cases([fakes.case("a"), fakes.case("b")], folder, fakes.environment())
    assert not any("busy" in line for line in about(folder))
    with RecordFile(folder / "records.jsonl") as file:
        file.append(summary.rows[0].model_copy(update={"free_cores": 0.5}))
    assert "the machine was busy in 1 of 3 records: at the most, other processes take 1.5 of 2 cores" in about(folder)


def about(folder):
    """Give what the recipes of a folder say of its runs."""
    return [line for batches in read_batches(folder).values() for batch in batches for line in recipe(batch, "r").about]
