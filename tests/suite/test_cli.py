from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import suite_fakes
from machine_speed import usual_seconds
from suite_fakes import SWEEP
from typer.testing import CliRunner

import spmark
from spmark.impls.core import files
from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.errors import DeviceError
from spmark.impls.core.problem import DType, Op
from spmark.impls.runtime import device
from spmark.impls.stile.calibration import calibration_for, published_a100
from spmark.records.rowfile import lock_folder, read_rows
from spmark.records.schema import Measurement
from spmark.report import records as load
from spmark.studies.contracts import Constants
from spmark.studies.stile.fitting import Agreement
from spmark.suite.cli import asv, study
from spmark.suite.cli import main as cli
from spmark.suite.cli import run as run_command
from spmark.suite.cluster.schedule import FLOPS, learned
from spmark.suite.study import constants

COMMANDS = [
    *(command.name for command in cli.app.registered_commands),
    *(f"asv {one.name}" for one in asv.app.registered_commands),
    *(f"study {one.name}" for one in study.app.registered_commands),
]


def test_the_package_is_the_program() -> None:
    command = [sys.executable, "-m", "spmark", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False)
    assert (done.returncode, done.stdout) == (0, f"{spmark.__version__}\n"), done.stderr


@pytest.mark.full
def test_run_writes_records_and_the_next_run_goes_on(invoke, sweep, tmp_path):
    code, out, err = invoke("run", sweep)
    assert code == 0, err
    assert "2 ok" in out
    assert "2 run_error" in out
    assert "2 unsupported" in out
    assert "kernel.cu: spmm<float> does not compile" in out
    assert "2 cases need a GPU: fake_gpu\n" in out
    assert "runs on cuda" not in out, "one line for all that need a GPU"
    rows = list(read_rows(tmp_path / "results" / "tiny" / "fake-cpu" / "records.jsonl", Measurement))
    assert len(rows) == 6
    code, out, err = invoke("run", sweep, "--strict")
    assert code == 1, err
    assert "2 run_error" in out
    assert "2 ok" not in out
    code, out, err = invoke("run", sweep, "--strict")
    assert code == 0, err
    assert "nothing to run" in out
    assert "2 of 6 cases skipped: failed 2 times (run_error); --retry run_error tries it again" in out
    assert "Speed-up over the baseline" in out, "a run that has nothing to do still shows what is there"


def test_json_stands_alone_on_standard_output(invoke, sweep, tmp_path):
    code, out, err = invoke("run", sweep, "--json", "--only", "matrix=a", "--out", tmp_path / "here")
    answer = json.loads(out)
    assert code == 0, err
    assert answer["statuses"] == {"ok": 1, "run_error": 1, "unsupported": 1}
    assert [case["status"] for case in answer["cases"]] == ["ok", "run_error", "unsupported"]
    assert Path(answer["records"]).is_file()
    assert str(tmp_path / "here" / "tiny" / "fake-cpu") == answer["folder"]
    assert "Two cases" in err


def test_dry_run_lists_and_writes_nothing(invoke, sweep, tmp_path):
    code, out, err = invoke("run", sweep, "--dry-run", "--json")
    assert code == 0, err
    answer = json.loads(out)
    assert (answer["run"], answer["skip"], answer["refuse"]) == (4, 0, 2)
    assert answer["cases"][2]["why"] == "runs on cuda, found a cpu device"
    assert not (tmp_path / "results").exists()
    invoke("run", sweep)
    answer = json.loads(invoke("run", sweep, "--dry-run", "--json", "--limit", "1")[1])
    assert [case["action"] for case in answer["cases"]] == ["skip", "run", "skip", "skip", "skip", "skip"]
    assert answer["cases"][0]["why"] == "done (ok)"
    assert answer["cases"][4]["why"] == "over --limit 1"
    assert answer["cases"][0]["memory_bytes"] == 4 * 5 + 8 * 8 + 4 * 8 * 32
    assert "to run" in invoke("run", sweep, "--dry-run")[1]


def test_the_time_of_a_long_list_is_told_before_it_runs(invoke, monkeypatch, tmp_path):
    lines = [f"G,m{n},{n + 2000},{n + 2000},{9000 + n},1,0,0,1,1,1,graph,9000" for n in range(700)]
    place = tmp_path / "mirror" / "suitesparse" / "ssstats.csv"
    place.parent.mkdir(parents=True)
    place.write_text("\n".join(["700", "31-Oct-2023 18:12:37", *lines]) + "\n")
    (place.parents[1] / "MANIFEST.tsv").write_text("name\tcategory\tsource\tlicence\trows\tcols\tnnz\tnote\n")
    monkeypatch.setenv("SPMARK_MIRROR", str(place.parents[1]))
    gpu = suite_fakes.CPU.model_copy(update={"name": "fake-gpu", "kind": DeviceKind.CUDA})
    monkeypatch.setattr("spmark.impls.runtime.device.find", lambda device: gpu)
    monkeypatch.setattr("spmark.suite.cli.run.collect", lambda *_: suite_fakes.environment(device=gpu))
    path = tmp_path / "list.yaml"
    path.write_text(
        "schema: 1\nname: list\nops: [spmm]\nwidths: [32, 64]\nimplementations: [sparsetir, cusparse_best]\n"
        "matrices: [{source: suitesparse, where: rows < 2600}]"
    )
    code, out, err = invoke("run", path, "--dry-run", "--json")
    assert code == 0, err
    answer = json.loads(out)
    assert answer["run"] == 2400
    exponent, table = learned()
    least = 1200 * (table["sparsetir"] + table["cusparse_best"])
    assert least < answer["estimated_s"] < least * (1 + 2 * 64 * 9700 / FLOPS) ** exponent
    assert answer["cases"][0]["memory_bytes"]
    text = invoke("run", path, "--dry-run")[1]
    assert f"about {answer['estimated_s'] / 60:.2g} minutes on one GPU, by what such cases took on an H200" in text


@pytest.mark.full
def test_retry_and_set_reach_the_run(invoke, sweep):
    invoke("run", sweep, "--only", "label=fake")
    code, out, err = invoke("run", sweep, "--only", "label=fake", "--retry", "ok", "--set", "widths=[32,64]", "--json")
    assert code == 0, err
    assert json.loads(out)["statuses"] == {"ok": 4}
    assert [case["case"].split("/")[3] for case in json.loads(out)["cases"]] == ["J32", "J64", "J32", "J64"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--set", "implementations=[nope]"], "found 'nope'"),
        (["--set", "colour=red"], "unknown key"),
        (["--only", "width=7"], "found none among 6"),
        (["--only", "widht=32"], "did you mean width"),
        (["--retry", "sometimes"], "sometimes"),
        (["--limit", "-1"], "equal to 0"),
        (["--device", "tpu"], "tpu"),
        (["--frobnicate"], "frobnicate"),
    ],
)
def test_wrong_usage_is_one_message_and_code_2(invoke, sweep, arguments, words):
    code, _, err = invoke("run", sweep, *arguments)
    assert code == 2
    assert words in err
    assert "Traceback" not in err


def test_a_missing_device_is_code_3(invoke, sweep, monkeypatch):
    def find(name):
        raise DeviceError("expected a usable NVIDIA GPU, found none: no driver")

    monkeypatch.setattr(device, "find", find)
    code, _, err = invoke("run", sweep, "--device", "cuda")
    assert code == 3
    assert err.strip() == "spmark: expected a usable NVIDIA GPU, found none: no driver"


def test_a_locked_folder_is_code_4(invoke, sweep, tmp_path):
    with lock_folder(tmp_path / "results" / "tiny" / "fake-cpu"):
        code, _, err = invoke("run", sweep)
    assert code == 4
    assert "only run that writes here" in err


def test_an_interrupted_run_is_code_130(invoke, sweep, monkeypatch):
    def interrupted(*arguments, **named):
        return run_command.Summary(Path("r"), (), skipped=2, left=3, interrupted=True, seconds=0.1, cores=2)

    monkeypatch.setattr(run_command, "execute", interrupted)
    monkeypatch.setattr(load, "load_records", lambda folders: pytest.fail("means take seconds that nobody asked for"))
    code, out, _ = invoke("run", sweep)
    assert code == 130
    assert "3 cases to go: the same command goes on" in " ".join(out.split())


def test_a_reason_is_shown_with_the_line_that_locates_a_fault():
    reason = "spmm<64> on the host: exit code 3\nspmark: block 0\nspmark: fault: race on out, mine.cu:32\n#0 in main"
    assert run_command._shortened(reason) == "spmm<64> on the host: exit code 3\nspmark: fault: race on out, mine.cu:32"
    assert run_command._shortened("expected this,\nfound that") == "expected this,"


def test_a_bug_keeps_its_traceback(monkeypatch, sweep):
    def broken(*arguments, **named):
        raise KeyError("bug")

    monkeypatch.setattr(run_command, "execute", broken)
    monkeypatch.setattr(sys, "argv", ["spmark", "run", str(sweep)])
    with pytest.raises(KeyError, match="bug"):
        cli.main()


def test_debug_shows_where_an_error_came_from(sweep):
    script = "import logging, sys; from spmark.suite.cli.main import main; main()"
    command = [sys.executable, "-c", script, "--debug", "run", "nosuch"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert "Traceback" in ended.stderr
    assert "SweepError" in ended.stderr


@pytest.mark.one_in(4)
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command):
    result = CliRunner().invoke(cli.app, [*command.split(), "--help"])
    assert result.exit_code == 0
    assert len(result.output) > 300


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_what_cannot_run_is_told(invoke, sweep, more):
    code, out, _ = invoke("run", sweep, *more)
    assert code == 0
    assert ("runs on cuda, found a cpu device" if more else "need a GPU: fake_gpu") in out


@pytest.mark.parametrize(
    ("words", "now"),
    [
        (["asv-run", "--help"], "asv run"),
        (["asv-import", "--help"], "asv import"),
        (["train", "--help"], "study train"),
        (["study", "dash", "--help"], "study transfer"),
        (["calibrate", "--stile", "--help"], "study calibrate"),
        (["calibrate", "--of", "stile", "--help"], "study calibrate"),
    ],
)
def test_a_command_is_known_by_its_old_name(words, now):
    result = CliRunner().invoke(cli.app, words)
    assert result.exit_code == 0
    assert result.stderr == f"spmark: this command is called spmark {now} now\n"
    assert result.stdout.split()[: 2 + len(now.split())] == ["Usage:", "spmark", *now.split()]


def test_help_answers_at_once_and_imports_nothing_heavy():
    script = (
        "import sys\nfrom spmark.suite.cli.main import main\ntry:\n    main()\nexcept SystemExit as ended:\n"
        "    heavy = {'numpy', 'pandas', 'matplotlib', 'numba', 'scipy', 'cupy', 'torch'} & set(sys.modules)\n"
        "    sys.exit(f'imported {heavy}' if heavy else ended.code)\n"
    )
    seconds = []
    for _ in range(3):
        computed, ended = usual_seconds([sys.executable, "-c", script, "--help"])
        seconds.append(computed)
        assert ended.returncode == 0, ended.stderr
        assert "doctor" in ended.stdout
    assert min(seconds) < 0.7


def test_listings_have_a_row_for_everything(invoke):
    from spmark.datasets.sources.table import SOURCES
    from spmark.datasets.sweep.reading import packaged_sweeps
    from spmark.impls.table import IMPLEMENTATIONS

    def names(what, key):
        code, out, err = invoke("list", what, "--json")
        assert code == 0, err
        return [row[key] for row in json.loads(out)]

    assert names("implementations", "name") == list(IMPLEMENTATIONS)
    assert names("datasets", "source") == list(SOURCES)
    assert names("sweeps", "name") == list(packaged_sweeps())
    assert names("devices", "device") == list(device.NAMES)
    code, out, _ = invoke("list", "datasets")
    assert code == 0
    assert "Planetoid" in out


@pytest.mark.full
def test_doctor_tells_what_is_missing(invoke, monkeypatch, tmp_path):
    monkeypatch.setenv("SPMARK_CACHE", str(tmp_path / "cache"))
    code, out, err = invoke("doctor", "--json")
    answer = json.loads(out)
    checks = {check["what"]: check for check in answer["checks"]}
    assert (code, answer["cpu_runs"]) == (0, True), err
    assert checks["implementation scipy_cpu"]["found"] == "for cpu"
    assert checks["cache"]["found"] == str(tmp_path / "cache")
    (tmp_path / "file").touch()
    monkeypatch.setenv("SPMARK_CACHE", str(tmp_path / "file" / "cache"))
    code, out, _ = invoke("doctor")
    assert code == 1
    assert "SPMARK_CACHE" in out


def test_fetch_has_every_matrix_at_hand_and_names_what_it_cannot_get(invoke, monkeypatch, tmp_path):
    monkeypatch.setenv("SPMARK_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SPMARK_MIRROR", raising=False)
    path = tmp_path / "some.yaml"
    absent = tmp_path / "absent.npz"
    text = SWEEP.replace("{source: patterns, name: a}", "{source: rmat, name: small, args: {scale: 6, edge_factor: 4}}")
    path.write_text(text.replace("{source: patterns, name: b}", f"{{source: npz, name: {absent}}}"))
    code, out, err = invoke("fetch", path, "--json")
    rows = json.loads(out)
    assert code == 2
    assert str(absent) in err.replace("\n", "")
    assert (rows[0]["rows"], rows[0]["kind"]) == (64, "synthetic")
    assert rows[1]["kind"] == "failed"


def test_calibrate_writes_the_file(invoke, fakes, monkeypatch, tmp_path):
    monkeypatch.setattr(device, "find", lambda name: fakes.CPU)
    monkeypatch.setattr(device, "calibrate", lambda spec: spec.model_copy(update={"copy_bytes_per_s": 2e10}))
    code, out, err = invoke("calibrate", "--device", "cpu", "--out", tmp_path / "x" / "cpu.json")
    assert code == 0, err
    assert "20 GB/s" in out
    assert device.DeviceSpec.load(tmp_path / "x" / "cpu.json").copy_bytes_per_s == 2e10
    (tmp_path / "file").touch()
    code, _, err = invoke("calibrate", "--out", tmp_path / "file" / "cpu.json")
    assert code == 4
    assert "cannot be written" in err


def test_calibrate_tiles(invoke, fakes, monkeypatch, tmp_path):
    def calibrate(spec):
        constants = calibration_for("", Op.SPMM, DType.FLOAT16)[0]
        fitted = SimpleNamespace(calibration=constants, agreement=Agreement(0.97, 2e-5), held_out_us=[(1.5, 1.25)])
        return spec.model_copy(update={"tables": constants.tables()}), [fitted]

    monkeypatch.setitem(sys.modules, "spmark.studies.stile.gpu", SimpleNamespace(calibrate=calibrate))
    monkeypatch.setattr(device, "find", lambda name: fakes.CPU)
    code, _, err = invoke("study", "calibrate", "stile")
    assert code == 3
    assert "expected a GPU to measure tiles on" in err
    monkeypatch.setattr(device, "find", lambda name: published_a100())
    monkeypatch.setattr(device, "calibrated", lambda spec: spec)
    path = tmp_path / "x" / "stile.json"
    code, out, err = invoke("study", "calibrate", "stile", "--out", path)
    assert code == 0, err
    assert "0.97" in out
    assert "1.25" not in out
    assert calibration_for("nvidia-a100-sxm4-80gb", Op.SPMM, DType.FLOAT16, str(path))[0].blocks
    code, out, _ = invoke("study", "calibrate", "stile", "--out", path, "--json", "--force")
    row = json.loads(out)["agreement"][0]
    assert (row["tiles held out"], row["predicted and measured, us"]) == (1, [[1.5, 1.25]])
    code, _, err = invoke("study", "calibrate", "stil")
    assert code == 2
    assert "expected a method with calibration out of stile, liteform, found 'stil' (did you mean stile?)" in err


class Measures:
    """A contract of calibration that notes its jobs."""

    what = "tiles"
    patterns = ("patterns/logsparse_256",)

    def __init__(self, folder):
        self.folder, self.jobs = folder, []

    def shipped(self, name):
        return self.folder / f"{name}.json"

    def calibrate(self, job):
        matrices = dict(job.load(job.names))
        self.jobs.append((job.seconds, {name: matrix.csr.nnz > 0 for name, matrix in matrices.items()}))
        return Constants({".json": b"{}", ".ndjson.gz": b"rows"}, [{"rows": 1}])


def test_calibrate_keeps_what_does_not_ship_for_a_gpu(invoke, monkeypatch, tmp_path):
    gpu = published_a100()
    method = Measures(tmp_path / "shipped")
    monkeypatch.setenv("SPMARK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(device, "find", lambda name: gpu)
    monkeypatch.setattr(device, "calibrate", lambda spec: spec)
    monkeypatch.setattr(device, "shipped_calibration", lambda name: tmp_path / "rates" / f"{name}.json")
    monkeypatch.setattr(constants, "CONTRACTS", {"calibration": {"stile": "m:C"}})
    monkeypatch.setattr(constants, "find_contract", lambda contract, name: method)
    code, out, err = invoke("calibrate", "--json")
    assert code == 0, err
    own = files.constants_file("stile", gpu.name)
    assert json.loads(out)["constants"] == {"stile": str(own)}
    assert own.read_bytes() == b"{}"
    assert method.jobs[-1][1] == {"patterns/logsparse_256": True}
    code, out, err = invoke("calibrate", "--ship", "--force")
    assert code == 0, err
    assert (tmp_path / "rates" / f"{gpu.name}.json").is_file()
    assert (tmp_path / "shipped" / f"{gpu.name}.ndjson.gz").read_bytes() == b"rows"
    assert method.jobs[1][0] > method.jobs[0][0]
    assert invoke("calibrate", "--force")[0] == 0
    assert len(method.jobs) == 2, "what ships is not measured again"
    assert invoke("calibrate", "--ship", "--out", tmp_path / "x.json")[0] == 2


def test_a_real_sweep_from_the_shell(tmp_path):
    """One real process, the real bench, a real implementation."""
    path = tmp_path / "real.yaml"
    text = SWEEP.split("matrices:", maxsplit=1)[0] + (
        "matrices: [{source: rmat, name: small, args: {scale: 6, edge_factor: 4}}]\n"
        "widths: [32]\nimplementations: [scipy_cpu]\n"
    )
    path.write_text(text)
    environment = {**os.environ, "SPMARK_CACHE": str(tmp_path / "cache")}
    (tmp_path / "cache" / "devices").mkdir(parents=True)
    cpu = device.find("cpu")
    cpu.save(tmp_path / "cache" / "devices" / f"{cpu.name}.json")  # as after a calibration, which takes seconds
    command = [sys.executable, "-c", "from spmark.suite.cli.main import main; main()", "run", path, "--device", "cpu"]
    ended = subprocess.run([*command, "--json"], capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert ended.returncode == 0, ended.stderr
    (case,) = json.loads(ended.stdout)["cases"]
    assert case["status"] == "ok", case["reason"]
