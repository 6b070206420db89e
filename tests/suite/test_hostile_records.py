"""Records that somebody else made: nothing in them leaves a folder, reaches git or a shell, or controls a terminal."""

from __future__ import annotations

import json
import logging
import shlex
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.markup import escape
from test_asv_import import environment, record, write
from typer.testing import CliRunner

from spmark.impls.core.errors import RecordError
from spmark.records.rowfile import RUNS, RecordFile
from spmark.records.schema import Status
from spmark.report.records import load_records
from spmark.report.site.site import write_report
from spmark.suite.asv.importer import import_records
from spmark.suite.cli import main as cli
from spmark.suite.cli.console import console, say, table, working
from spmark.suite.cli.main import Printable
from spmark.suite.cli.options import ExitCode
from spmark.suite.cli.progress import Bar
from spmark.suite.cli.report import Stages
from spmark.suite.plan.plan import record_folder
from spmark.suite.run.provenance import RunRow, read_batches, recipe

OUT = ("../../../evil", "/tmp/spmark-evil/x", "..", "a/../../evil", "evil\nname", "\x1b[2Jevil")
ESCAPES = "\x1b]0;title\x07\x1b[2J\r\u202e"


def invoke(*arguments):
    return CliRunner().invoke(cli.app, [*map(str, arguments)])


def everything(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for path in folder.rglob("*") if ".git" not in path.parts}


def hostile_environment(commit: str, **changes):
    of = environment(commit)
    name = changes.pop("device_name", of.device.name)
    return of.model_copy(update={"device": of.device.model_copy(update={"name": name}), **changes})


@pytest.mark.parametrize("name", OUT)
@pytest.mark.parametrize("field", ["device", "cuda", "python"])
def test_an_import_writes_into_its_results_alone(tmp_path, repository, commit, name, field):
    changes = {"device": {"device_name": name}, "cuda": {"cuda": name}, "python": {"packages": {"python": name}}}[field]
    of = hostile_environment(commit, **changes)
    folder = write(tmp_path / "deep" / "in", of, [record(of, device=of.device.name)])
    before = everything(tmp_path)
    (done,) = import_records([folder], tmp_path / "deep" / "asv" / "results", repository)
    made = everything(tmp_path) - before
    assert made
    assert all(path.parts[:2] == ("deep", "asv") for path in made), made
    assert done.file.resolve().parent.parent == (tmp_path / "deep" / "asv" / "results").resolve()
    assert not Path("/tmp/spmark-evil").exists()


@pytest.mark.full
@pytest.mark.parametrize("name", OUT)
def test_a_report_writes_into_its_folder_alone(tmp_path, name):
    of = hostile_environment("0" * 40, device_name=name)
    folder = write(tmp_path / "deep" / "in", of, [record(of, device=name, label=name, implementation=name)])
    before = everything(tmp_path)
    write_report([folder], tmp_path / "deep" / "site")
    made = everything(tmp_path) - before
    assert any(path.suffix == ".csv" for path in made)
    assert all(path.parts[:2] == ("deep", "site") for path in made), made


@pytest.mark.parametrize("name", OUT)
def test_records_of_a_run_go_below_its_folder(tmp_path, name):
    assert record_folder(tmp_path, "sweep", name).parent == tmp_path / "sweep"
    assert record_folder(tmp_path, name, "device").parent.parent == tmp_path
    assert record_folder(tmp_path, "graphs_spmm", "nvidia-h200") == tmp_path / "graphs_spmm" / "nvidia-h200"


COMMITS = ("--output=evil", "HEAD", "HEAD; touch evil", "main", "-p", "abc", "$(touch evil)", "a" * 65, "\x1b[2J")


@pytest.mark.parametrize("name", COMMITS)
def test_what_is_no_hash_never_reaches_git(tmp_path, repository, monkeypatch, name):
    of = environment(name)
    folder = write(tmp_path / "in", of, [record(of)])
    monkeypatch.setattr(subprocess, "run", lambda *words, **options: pytest.fail(f"ran {words}"))
    with pytest.raises(RecordError, match="expected records of a commit, found '") as refused:
        import_records([folder], tmp_path / "results", repository)
    assert str(refused.value).isprintable()


def test_what_the_user_calls_a_commit_is_never_an_option(tmp_path, repository, commit, monkeypatch):
    monkeypatch.chdir(tmp_path)
    of = environment("")
    folder = write(tmp_path / "in", of, [record(of)])
    with pytest.raises(RecordError, match="has the commit '--output=evil'"):
        import_records([folder], tmp_path / "results", repository, commit="--output=evil")
    assert not list(tmp_path.rglob("evil*"))
    (done,) = import_records([folder], tmp_path / "results", repository, commit="HEAD")
    assert done.commit == commit


def recipe_of(tmp_path, of, run: RunRow | None, **changes):
    folder = write(tmp_path / "in", of, [record(of, **changes)])
    if run is not None:
        with RecordFile(folder / RUNS) as file:
            file.append(run)
    (batches,) = read_batches(folder).values()
    return recipe(batches[0])


def run_of(of, *command, sweep=None) -> RunRow:
    return RunRow(
        environment=of.digest, command=command, sweep=sweep, cases=1, started_at="2026-02-28T12:00:00Z"
    )  # fmt: skip


@pytest.mark.parametrize("name", COMMITS)
def test_provenance_checks_out_hashes_alone(tmp_path, name):
    made = recipe_of(tmp_path, environment(name), None)
    assert not any("checkout" in command for command in made.commands)
    assert any("expected a commit on record, found" in limit for limit in made.limits)


def test_provenance_pins_packages_alone(tmp_path):
    packages = {
        "numpy": "2.4.1",
        "--index-url=http://evil": "1",
        "x; touch evil": "1",
        "cupy": "1 --pre",
        "python": "3; sh",
    }
    made = recipe_of(tmp_path, hostile_environment("0" * 40, packages=packages), None)
    assert "python3 -m venv .venv" in made.commands
    assert ".venv/bin/pip install --editable . numpy==2.4.1" in made.commands
    assert any("--index-url=http://evil==1" in limit for limit in made.limits)


@pytest.mark.parametrize("command", [("rm", "-rf", "x"), ("spmark", "run", "x\x1b[2J.yaml"), ("spmark; touch evil",)])
def test_provenance_repeats_commands_of_spmark_alone(tmp_path, command):
    of = environment("0" * 40)
    made = recipe_of(tmp_path, of, run_of(of, *command, sweep={"name": "graphs_spmm"}))
    assert any("the command on record is not repeated here" in limit for limit in made.limits)
    assert all(limit.isprintable() for limit in made.limits)
    assert made.commands[-1] == ".venv/bin/spmark run graphs_spmm.yaml"


@pytest.mark.parametrize(
    "name", ["x; touch evil", "../evil", "$(touch evil)", "a b", "--evil", 3, None, "x\ntouch evil"]
)
def test_a_sweep_that_is_written_out_stays_a_file_of_this_folder(tmp_path, name):
    of = environment("0" * 40)
    sweep = {"name": name, "title": "END\nEND\ntouch evil\nEND", "END": "END"}
    made = recipe_of(tmp_path, of, run_of(of, sweep=sweep))
    script = "\n".join(command for command in made.commands if command.startswith("cat "))
    work = tmp_path / "deep" / "work"
    work.mkdir(parents=True)
    ended = subprocess.run(["bash", "-c", script], cwd=work, capture_output=True, text=True, check=True)
    assert ended.stdout + ended.stderr == ""
    (file,) = work.iterdir()
    assert file.name.endswith(".yaml")
    assert made.commands[-1] == f".venv/bin/spmark run {shlex.quote(file.name)}"


def test_provenance_prints_a_script_whose_comments_end_where_they_should(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = f"x\ntouch {tmp_path}/evil\n# {ESCAPES}"
    of = hostile_environment("0" * 40, device_name=text, cpu=text, system=text, driver=text, cuda=text)
    write(tmp_path / "in", of, [record(of, device=text, matrix=text, label=text)])
    ended = invoke("show", tmp_path / "in")
    assert ended.exit_code == 0
    assert all(line.isprintable() for line in ended.stdout.split("\n"))
    assert f"touch {tmp_path}/evil" in ended.stdout
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("touch", "cat"):  # nothing else that the script names can run
        (tools / name).symlink_to(shutil.which(name))
    subprocess.run([shutil.which("bash")], input=ended.stdout, text=True, env={"PATH": str(tools)}, capture_output=True)
    assert not (tmp_path / "evil").exists()


def test_no_command_that_shows_records_hands_escapes_to_the_terminal(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    bad = f"gespmm{ESCAPES}"
    of = hostile_environment("0" * 40, device_name=f"gpu{ESCAPES}", cpu=ESCAPES)
    changes = {"device": of.device.name, "implementation": bad, "label": bad, "matrix": f"m{ESCAPES}"}
    rows = [record(of, **changes), record(of, **changes, width=32, status=Status.WRONG_RESULT)]
    folders = [write(tmp_path / name, of, rows) for name in ("one", "two")]
    for words in (
        ("report", folders[0]),
        ("compare", *folders, "--all"),
        ("study", "spread", *folders),
        ("study", "spread", *folders, "--fit", tmp_path / "fit.json"),
        ("show", folders[0]),
        ("asv", "import", folders[0]),
    ):
        ended = invoke(*words)
        shown = ended.output.replace("\n", "").replace("\t", "")
        assert shown.isprintable(), (words, ended.output)
    assert load_records([folders[0]])["matrix"].iloc[0].endswith(f"m{ESCAPES}"), (
        "the records themselves are as they were"
    )


def test_messages_and_warnings_are_printable(capfd):
    screen = console(False)
    say(screen, f"a{ESCAPES}\nb")
    screen.print(table(f"t{ESCAPES}", [{f"k{ESCAPES}": f"v{ESCAPES}"}], plain=True))
    line = Printable("%(message)s").format(logging.makeLogRecord({"msg": "x %s", "args": (ESCAPES,)}))
    assert line.isprintable()
    shown = capfd.readouterr().out
    assert "\\x1b" in shown
    assert all(part.isprintable() for part in shown.split("\n"))


def test_a_name_is_shown_letter_by_letter(capfd, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    name, screen = ":smile:[red]x", console(False)
    say(screen, escape(name))
    screen.print(table(name, [{"matrix": name}], plain=True))
    with working(screen, name):
        pass
    with Stages(screen, "shown") as stages:
        logging.getLogger("shown").info(name)
        screen.print(stages._status.renderable)
    with Bar(screen) as bar:
        bar.entered(SimpleNamespace(case_id=name), "timing")
        screen.print(bar._progress)
    shown = capfd.readouterr().out
    assert shown.count(name) >= 5
    assert "\N{SMILING FACE WITH OPEN MOUTH AND SMILING EYES}" not in shown


def test_an_error_that_quotes_a_record_is_printable(tmp_path, monkeypatch, capfd):
    of = hostile_environment("0" * 40)
    folder = write(tmp_path / "in", of, [record(of)])
    monkeypatch.setattr("sys.argv", ["spmark", "report", str(folder), "--baseline", f"b{ESCAPES}"])
    monkeypatch.setattr(cli, "app", lambda **options: (_ for _ in ()).throw(RecordError(f"bad {ESCAPES}\n\tmore")))
    assert cli._guarded() == ExitCode.RECORDS
    said = capfd.readouterr().err
    assert "\\x1b" in said
    assert all(part.replace("\t", "").isprintable() for part in said.split("\n"))


def test_json_answers_hold_no_raw_escape(tmp_path):
    of = hostile_environment("0" * 40, cpu=ESCAPES)
    ended = invoke("show", write(tmp_path / "in", of, [record(of)]), "--json")
    assert ended.stdout.replace("\n", "").isprintable()
    assert json.loads(ended.stdout)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"results": [1]}', '{"results": {"%s": 3}}', "\xff", "nul"])
def test_an_import_over_an_odd_result_file_says_so(tmp_path, repository, commit, text):
    of = environment(commit)
    folder = write(tmp_path / "in", of, [record(of)])
    (done,) = import_records([folder], tmp_path / "results", repository)
    written = done.file.read_text()
    done.file.write_text(text.replace("%s", "tracked.SweptSpmm.track_time"))
    before = done.file.read_bytes()
    with pytest.raises(RecordError, match="delete the file"):
        import_records([folder], tmp_path / "results", repository)
    assert done.file.read_bytes() == before
    done.file.unlink()
    import_records([folder], tmp_path / "results", repository)
    assert done.file.read_text() == written


@pytest.mark.full
def test_a_report_takes_kinds_and_operators_that_no_sweep_gives(tmp_path):
    of = environment("0" * 40)
    rows = []
    for name, change in (
        ("gespmm", {}),
        ("cusparse", {}),
        ("sparsetir", {"matrix_kind": "twin"}),
        ("cublas", {"scaled": True, "matrix_kind": "real"}),
    ):
        base = {"implementation": "cusparse", "config": {}, "samples_us": [20.0, 21.0, 22.0]}
        beside = {} if name == "cusparse" else {"baseline": base}
        times = {"samples_us": [10.0, 11.0, 12.0], "matrix_kind": "pattern", "implementation": name} | beside | change
        rows += [record(of, width=width, case_id=f"{name} {width}", **times) for width in (32, 128)]
    index = write_report([write(tmp_path / "in", of, rows)], tmp_path / "site").index
    assert any("spmm-scaled" in page.read_text() for page in index.parent.rglob("*.html"))


def test_a_baseline_without_a_sample_for_each_of_the_case_is_no_pair(tmp_path, repository, commit):
    of = environment(commit)
    base = {"implementation": "cusparse", "config": {}, "samples_us": [20.0, 21.0]}
    folder = write(tmp_path / "in", of, [record(of, samples_us=[10.0, 11.0, 12.0], baseline=base)])
    (done,) = import_records([folder], tmp_path / "results", repository)
    assert done.cases == 1
