"""Sweeps that name classes in files: what is imported when, and what becomes of wrong code."""

from __future__ import annotations

import json
import sys

import pytest
from outside_code import HALVED, MINE, nothing_loaded, write_distribution

from spmark.datasets.sweep.model import Sweep
from spmark.impls import table
from spmark.impls.core.errors import SweepError
from spmark.records.rowfile import RUNS, read_rows
from spmark.records.schema import Measurement
from spmark.suite.plan.plan import with_files
from spmark.suite.run.provenance import RunRow

pytestmark = pytest.mark.usefixtures(nothing_loaded.__name__)
SWEEP = """
schema: 1
name: own
ops: [spmm]
matrices: [patterns/logsparse_64]
widths: [8]
implementations: [scipy_cpu, ./mine.py:Mine]
baseline: scipy_cpu
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Give a sweep that names a file beside it, read from another folder."""
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "own.yaml").write_text(SWEEP)
    (folder / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    return folder / "own.yaml"


def records(folder):
    (path,) = folder.rglob("records.jsonl")
    return list(read_rows(path, Measurement))


def test_reading_listing_and_fetching_import_nothing(own, invoke):
    own.with_name("mine.py").write_text("raise SystemExit('imported')")
    sweep = Sweep.load(own)
    assert sweep.implementations[1].name == "./mine.py:Mine"
    assert invoke("fetch", own)[0] == 0
    assert invoke("list", "implementations")[0] == 0
    assert not table.LOADED
    code, _, err = invoke("run", own, "--device", "cpu")
    assert code == 2
    assert "mine.py:1: expected a file that Python imports, found SystemExit: imported; mend the file" in err
    assert not (own.parents[1] / "results").exists()


@pytest.mark.full
def test_a_class_in_a_file_is_measured_under_its_name(own, invoke, tmp_path):
    code, out, err = invoke("run", own, "--device", "cpu", "--json")
    assert code == 0, err
    assert json.loads(out)["statuses"] == {"ok": 2}
    base, mine = records(tmp_path / "results")
    assert (mine.spec.implementation, mine.spec.label) == ("mine", "mine")
    assert mine.case_id == "spmm/patterns/logsparse_64/J8/float32/mine/seed0"
    assert mine.baseline.implementation == "scipy_cpu"
    assert mine.spec.implementation_version != base.spec.implementation_version
    (told,) = read_rows(next((tmp_path / "results").rglob(RUNS)), RunRow)
    assert told.sweep["implementations"][1] == {"name": "./mine.py:Mine", "label": "./mine.py:Mine"}
    assert str(tmp_path) not in told.model_dump_json()
    out = invoke("run", own, "--device", "cpu", "--json")[1]
    assert json.loads(out)["skipped"] == 2
    own.with_name("mine.py").write_text(MINE + "ONE = 1\n")
    table.LOADED.clear()
    del sys.modules[table.private_name(own.with_name("mine.py"))]
    code, out, _ = invoke(
        "run", own, "--device", "cpu", "--dry-run", "--json", "--only", "implementation=scipy_cpu,mine"
    )
    assert [case["action"] for case in json.loads(out)["cases"]] == ["skip", "run"], "changed code is measured again"


@pytest.mark.full
def test_a_recipe_says_what_has_to_be_brought_along(own, invoke, tmp_path):
    invoke("run", own, "--device", "cpu", "--only", "implementation=./own/mine.py:Mine")
    code, out, err = invoke("show", tmp_path / "results")
    assert code == 0, err
    assert "code that is not part of the project, to be brought along: implementation=./own/mine.py:Mine" in out
    assert "cat > own.yaml" in out


@pytest.mark.full
def test_a_file_can_be_the_baseline_and_a_filter(own, invoke, tmp_path):
    own.write_text(SWEEP.replace("baseline: scipy_cpu", "baseline: ./mine.py:Mine"))
    code, out, err = invoke("run", own, "--device", "cpu", "--json", "--only", "implementation=own/mine.py:Mine,num*")
    assert code == 0, err
    assert json.loads(out)["statuses"] == {"ok": 1}
    assert invoke("run", own, "--device", "cpu")[0] == 0
    base = next(row for row in records(tmp_path / "results") if row.spec.implementation == "scipy_cpu")
    assert base.baseline.implementation == "mine"


def test_a_wrong_result_has_no_time(own, invoke, tmp_path):
    own.with_name("mine.py").write_text(HALVED)
    code, out, _ = invoke("run", own, "--device", "cpu", "--json", "--strict")
    assert code == 1
    assert json.loads(out)["statuses"] == {"ok": 1, "wrong_result": 1}
    assert not records(tmp_path / "results")[1].samples_us


def test_a_kernel_that_kills_its_process_has_a_record(own, invoke):
    own.with_name("mine.py").write_text(
        MINE + "    def build(self, problem, device):\n        import os\n        os._exit(9)\n"
    )
    out = invoke("run", own, "--device", "cpu", "--json")[1]
    assert json.loads(out)["statuses"] == {"ok": 1, "run_error": 1}, "the runner lives"


def test_one_file_twice_is_refused(own):
    own.write_text(SWEEP.replace("[scipy_cpu, ./mine.py:Mine]", "[scipy_cpu, ./mine.py:Mine, mine.py:Mine]"))
    with pytest.raises(SweepError, match="own: implementations: labels: expected each once, found mine more than once"):
        with_files(Sweep.load(own))


def test_a_path_on_the_command_line_begins_at_the_current_folder(own):
    given = Sweep.load(own, ["implementations=[scipy_cpu, own/mine.py:Mine]"])
    assert with_files(given).implementations[1].name == "mine"
    own.write_text(SWEEP.replace("./mine.py:Mine", "{name: ./mine.py:Mine, folder: /}"))
    with pytest.raises(SweepError, match=r"implementations.1: folder: unknown key; a relative path begins at"):
        Sweep.load(own)


@pytest.mark.full
def test_an_installed_distribution_is_listed_and_measured(own, invoke, monkeypatch, tmp_path):
    groups = {"spmark.implementations": "mine = demo_kernels:Mine"}
    write_distribution(tmp_path / "site", "demo", groups, demo_kernels=MINE)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"), prepend=":")
    listed = json.loads(invoke("list", "implementations", "--json")[1])
    assert listed[-1] == {
        "name": "mine", "ops": [], "devices": [], "about": "offered by demo 1.0 (demo_kernels:Mine)",
    }  # fmt: skip
    assert "demo_kernels" not in sys.modules
    own.write_text(SWEEP.replace("./mine.py:Mine", "mine"))
    code, out, err = invoke("run", own, "--device", "cpu", "--json")
    assert code == 0, err
    assert json.loads(out)["statuses"] == {"ok": 2}
