"""A user's own files: how a sweep names them, where their paths begin, and what is said of one that is not there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from spmark.datasets.cache import Cache
from spmark.datasets.load import load_matrix
from spmark.datasets.sources.table import own_file
from spmark.datasets.sweep.model import Sweep, expand
from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.errors import DatasetError, SweepError
from spmark.suite.cli.matrix import matrix_spec
from spmark.suite.run.provenance import RunRow

REST = "schema: 1\nname: own\nops: [spmm]\nwidths: [8]\nimplementations: [scipy_cpu]\n"


@pytest.fixture
def write(tmp_path):
    """Write a matrix and a sweep of its own into a folder; gives the sweep's path."""

    def write(matrices: str, folder: str = "mine", files: tuple[str, ...] = ("a.npz",)) -> Path:
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        for name in files:
            matrix = sparse.csr_array(np.diag(np.arange(1, 9, dtype=np.float32)))
            (tmp_path / folder / name).parent.mkdir(exist_ok=True)
            sparse.save_npz(tmp_path / folder / name, matrix)
        path = tmp_path / folder / "own.yaml"
        path.write_text(REST + matrices)
        return path

    return write


def case_of(path: Path, *overrides: str):
    (case,) = expand(Sweep.load(path, overrides), DeviceKind.CPU)
    return case


@pytest.mark.parametrize(
    "matrices",
    ["matrices: [a.npz]", "matrices: [{source: npz, name: a.npz}]", "matrices: [{source: npz, names: [a.npz]}]"],
)
def test_a_path_begins_at_the_sweeps_folder_and_ids_do_not_name_it(write, monkeypatch, tmp_path, matrices):
    monkeypatch.chdir(tmp_path)
    case = case_of(write(matrices))
    assert own_file(case.matrix) == tmp_path / "mine" / "a.npz"
    assert case.case_id == "spmm/npz/a.npz/J8/float32/scipy_cpu/seed0"
    elsewhere = case_of(write(matrices, "elsewhere/b"))
    assert elsewhere.case_id == case.case_id
    first, second = (Sweep.load(path) for path in (write(matrices), write(matrices, "elsewhere/b")))
    runs = [RunRow.of(sweep, "", 1, "").sweep for sweep in (first, second)]
    assert runs[0] == runs[1]
    assert runs[0]["matrices"] == [{"source": "npz", "name": "a.npz"}]


def test_a_label_beside_a_path_and_paths_of_an_include(write, tmp_path):
    case = case_of(write("matrices: [{source: npz, name: nice, args: {path: a.npz}}]"))
    assert own_file(case.matrix) == tmp_path / "mine" / "a.npz"
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "all.yaml").write_text("[b.npz]")
    assert own_file(case_of(write("matrices: [{include: ../lists/all.yaml}]")).matrix) == tmp_path / "lists" / "b.npz"
    absolute = tmp_path / "x.npz"
    assert own_file(case_of(write(f"matrices: [{absolute}]")).matrix) == absolute


def test_a_path_of_the_command_line_begins_where_the_command_is_given(write, monkeypatch, tmp_path):
    path = write("matrices: [a.npz]")
    monkeypatch.chdir(tmp_path)
    assert own_file(case_of(path, "matrices=[here.npz]").matrix) == tmp_path / "here.npz"


@pytest.mark.parametrize(
    ("matrices", "words"),
    [
        ("matrices: [cora]", r"matrices\.0: expected a matrix as source/name, or a file .* found 'cora'.*in full, a"),
        ("matrices: [planetoit/cora]", "did you mean planetoid"),
        ("matrices: [3]", r"matrices\.0: expected \{source: planetoid, name: cora\}, or in a word .*, found 3"),
        ("matrices: a.npz", "matrices: expected a list of matrices, each .* found 'a.npz'"),
        ("matrices: [{source: npz, name: a.npz, folder: /tmp}]", "folder: unknown key"),
    ],
)
def test_what_is_no_matrix_is_explained_in_our_words(write, matrices, words):
    with pytest.raises(SweepError, match=words):
        Sweep.load(write(matrices))


def test_a_file_that_is_not_there_stops_a_run_and_a_dry_run(invoke, write, tmp_path):
    path = write("matrices: [a.npz, gone.npz, sub/gone.mtx]")
    for options in (["--dry-run"], []):
        code, _, err = invoke("run", path, "--device", "cpu", *options)
        assert code == 2
        said = err.replace("\n", "")
        assert f"found none at {tmp_path}/mine/gone.npz, {tmp_path}/mine/sub/gone.mtx" in said
        assert "a.npz," not in said
    assert not list((tmp_path / "results").rglob("records.jsonl"))
    assert invoke("run", path, "--device", "cpu", "--dry-run", "--only", "matrix=a.npz")[0] == 0
    (tmp_path / "mine" / "gone.npz").mkdir()
    said = invoke("run", path, "--device", "cpu")[2].replace("\n", "")
    assert f"found a folder at {tmp_path}/mine/gone.npz and none at {tmp_path}/mine/sub/gone.mtx" in said


@pytest.mark.full
def test_a_sweep_of_files_runs_from_any_folder(write, tmp_path):
    path = write("matrices: [a.npz]")
    cache = tmp_path / "cache"
    from spmark.impls.runtime.device import find

    cpu = find("cpu")
    (cache / "devices").mkdir(parents=True)
    cpu.save(cache / "devices" / f"{cpu.name}.json")  # as after a calibration, which takes seconds
    (tmp_path / "other").mkdir()
    command = [
        sys.executable,
        "-c",
        "from spmark.suite.cli.main import main; main()",
        "run",
        path,
        "--device",
        "cpu",
        "--json",
    ]
    environment = {**os.environ, "SPMARK_CACHE": str(cache)}
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path / "other", env=environment)
    assert ended.returncode == 0, ended.stderr
    (case,) = json.loads(ended.stdout)["cases"]
    assert case["status"] == "ok", case["reason"]
    assert case["case"] == "spmm/npz/a.npz/J8/float32/scipy_cpu/seed0"


def test_show_says_that_a_file_is_not_there(invoke, tmp_path):
    code, _, err = invoke("show", "missing.mtx")
    assert code == 2
    assert f"expected a file at {tmp_path}/missing.mtx, found none" in err.replace("\n", "")
    assert matrix_spec("data/missing.mtx", ()).source == "matrix_market"
    with pytest.raises(DatasetError, match="or a file that ends in"):
        matrix_spec("missing.txt", ())


@pytest.mark.parametrize("name", ["UPPER.MTX", "m.Npz", "m.tgz", "m.zip", "m.tar", "../m.MTX.GZ"])
def test_a_files_ending_in_capitals_or_of_an_archive(name):
    assert own_file(matrix_spec(name, ())) == Path(name)


@pytest.mark.parametrize("name", ["data/a.npy", "./gone.npy", "../noext", "~/a.txt"])
def test_a_file_with_another_ending_is_no_source(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.npy").touch()
    with pytest.raises(DatasetError, match=rf"expected a matrix as source/name, or a file that ends in .*{name}"):
        matrix_spec(name, ())


@pytest.mark.parametrize("name", ["e.txt", "e.CSV", "e.el", "data/e.tsv", "e.npy", "e.pt"])
def test_the_lines_that_convert_a_file_do_so(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    edges, path = np.array([(4, 0), (1, 2), (2, 1)]), tmp_path / name
    dense = np.zeros((5, 5), np.float32)
    dense[tuple(edges.T)] = 1
    path.parent.mkdir(exist_ok=True)
    if path.suffix == ".npy":
        np.save(path, dense)
    elif path.suffix == ".pt":
        torch = pytest.importorskip("torch", reason="PyTorch is not installed")
        torch.save(torch.from_numpy(dense), path)
    else:
        np.savetxt(path, edges, "%d", delimiter="," if path.suffix == ".CSV" else " ", header="i k")
    with pytest.raises(DatasetError, match=r"found .*; in Python, these lines write one") as refused:
        matrix_spec(name, ())
    exec("\n".join(str(refused.value).splitlines()[1:3]))
    found = load_matrix(matrix_spec(str(Path(name).with_suffix(".npz")), ()), Cache.default(), 0).csr
    np.testing.assert_array_equal(np.column_stack((found.rows_of_entries(), found.indices)), sorted(edges.tolist()))
    assert found.shape == (5, 5)


def test_a_report_of_no_records_says_what_to_do(invoke, tmp_path):
    (tmp_path / "empty").mkdir()
    code, _, err = invoke("report", tmp_path / "empty", "--out", tmp_path / "out")
    assert code == 4
    assert "expected records, found none; run a sweep first (spmark run quickstart)" in err.replace("\n", " ")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", [["label", "typo"], ["train", "typo"], ["label", "lo_smm"]])
def test_a_method_that_does_not_exist_is_told_those_that_do(invoke, command):
    code, _, err = invoke("study", *command)
    assert code == 2
    what = {"label": "labels", "train": "predictors"}[command[0]]
    assert f"expected a method with {what} out of liteform, lo_spmm, found '{command[1]}'" in err
    assert ("did you mean lo_spmm" in err) is (command[1] == "lo_smm")


@pytest.mark.parametrize(("command", "expected"), [("run", 2), ("show", 2), ("report", 4), ("compare", 4)])
def test_a_name_that_no_file_can_have_is_one_message(invoke, command, expected):
    name = "x" * 5000 + ".mtx"
    code, _, err = invoke(command, *[name] * (1 + (command == "compare")))
    assert code == expected, "as where the file is missing"
    assert "spmark: " in err
    assert "Traceback" not in err
