"""``spmark run --matrix``: a sweep of one matrix that no file holds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from outside_code import MINE, nothing_loaded
from scipy import sparse
from scipy.io import mmwrite

from spmark.datasets.sweep.model import expand
from spmark.impls.core.baseline import BASELINES
from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.table import AUTO
from spmark.records.rowfile import RUNS, read_rows
from spmark.records.schema import Measurement, Status
from spmark.suite.plan.onematrix import OneMatrix
from spmark.suite.run.provenance import RunRow

pytestmark = pytest.mark.usefixtures(nothing_loaded.__name__)


@pytest.fixture
def written(tmp_path):
    """Write one matrix as each kind of file."""
    matrix = sparse.random_array((30, 20), density=0.2, rng=np.random.default_rng(1), format="csr", dtype=np.float32)
    mmwrite(tmp_path / "mine.mtx", matrix)
    sparse.save_npz(tmp_path / "mine.npz", matrix)
    indptr, indices = (" ".join(map(str, numbers)) for numbers in (matrix.indptr, matrix.indices))
    (tmp_path / "mine.smtx").write_text(f"30, 20, {matrix.nnz}\n{indptr}\n{indices}\n")
    return matrix


def records(out):
    return list(read_rows(next(Path(out).rglob("records.jsonl")), Measurement))


@pytest.mark.full
@pytest.mark.parametrize("ending", ["mtx", "npz", "smtx"])
def test_a_file_is_run_without_a_sweep(invoke, written, tmp_path, ending):
    (tmp_path / "mine.py").write_text(MINE)
    words = ("--matrix", f"mine.{ending}", "--width", 8, "--width", 16, "--device", "cpu", "--json")
    code, out, err = invoke("run", *words, "--implementation", "./mine.py:Mine")
    assert code == 0, err
    assert json.loads(out)["statuses"] == {"ok": 4}
    rows = records(tmp_path / "results" / "mine")
    assert [(row.spec.implementation, row.spec.width) for row in rows] == [
        ("scipy_cpu", 8), ("mine", 8), ("scipy_cpu", 16), ("mine", 16),
    ]  # fmt: skip
    assert {row.problem.nnz for row in rows} == {written.nnz}
    assert rows[1].baseline.implementation == "scipy_cpu"
    assert json.loads(invoke("run", *words, "--implementation", "./mine.py:Mine")[1])["skipped"] == 4


def test_its_run_can_be_told_and_repeated(invoke, written, tmp_path):
    words = ("--matrix", "mine.mtx", "--width", 8, "--device", "cpu", "--set", "seed=3", "--op", "sddmm")
    assert invoke("run", *words, "--implementation", "scipy_cpu", "--json")[0] == 0
    (row,) = records(tmp_path / "results")
    assert row.case_id == "sddmm/matrix_market/mine.mtx/J8/float32/scipy_cpu/seed3"
    (told,) = read_rows(next((tmp_path / "results").rglob(RUNS)), RunRow)
    assert told.command == ("spmark", "run", *map(str, words), "--implementation", "scipy_cpu", "--json")
    (tmp_path / "mine.yaml").write_text(json.dumps(told.sweep))
    out = invoke("run", "mine.yaml", "--device", "cpu", "--json")[1]
    assert json.loads(out)["skipped"] == 1, "the sweep on record has the same case"


def test_a_sweep_in_bfloat16_is_checked_and_timed(invoke, written, tmp_path):
    words = ("--matrix", "mine.mtx", "--width", 8, "--device", "cpu", "--dtype", "bfloat16", "--op", "spmm")
    code, _, err = invoke("run", *words, "--implementation", "numba_cpu", "--op", "sddmm", "--json")
    assert code == 0, err
    rows = records(tmp_path / "results")
    assert {(str(row.spec.op), row.spec.implementation) for row in rows} == {
        (op, name) for op in ("spmm", "sddmm") for name in ("scipy_cpu", "numba_cpu")
    }
    for row in rows:
        assert row.spec.dtype == "bfloat16"
        assert row.status is Status.OK, row.reason
        assert row.samples_us


@pytest.mark.parametrize("kind", AUTO)
def test_what_competes_follows_from_the_device(kind):
    sweep = OneMatrix("planetoid/cora", (8,), ("spmm", "sddmm"), ("float32", "float16"), ()).sweep(DeviceKind(kind))
    assert sweep.name == "cora"
    assert {entry.name for entry in sweep.implementations} == {*AUTO[kind], *filter(None, [BASELINES.get(kind)])}
    cases = expand(sweep, DeviceKind(kind))
    assert len(cases) == 4 * len(sweep.implementations)
    assert {case.baseline for case in cases} == {BASELINES.get(kind)}


@pytest.mark.parametrize(
    ("matrix", "name"),
    [
        ("a b/x y.mtx", "x-y"),
        ("./folder/deep.tar.gz", "deep"),
        ("/abs/a.mtx.gz@AT", "a"),
        ("patterns/logsparse_64", "logsparse_64"),
        ("_+.npz", "matrix"),
    ],
)
def test_the_folder_of_the_records_is_called_as_the_matrix(matrix, name):
    assert OneMatrix(matrix, (8,), (), (), ()).sweep(DeviceKind.CPU).name == name


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "run: expected a sweep (spmark list sweeps), or --matrix with --width, found neither"),
        (("quickstart", "--matrix", "a.mtx"), "found both quickstart and a.mtx"),
        (("quickstart", "--width", 8, "--op", "spmm"), "expected --width, --op beside --matrix alone, found a sweep"),
        (("--matrix", "a.mtx"), "--matrix a.mtx: expected a width J, found none: add --width 64"),
        (("--matrix", "a.mtz", "--width", 8), "--matrix: expected a matrix as source/name, or a file that ends in"),
        (("--matrix", "a.mtx", "--width", 8), "--matrix: expected a file at "),
        (("--matrix", "a.mtx", "--width", 8, "--dry-run"), "--matrix: expected a file at "),
        (("--matrix", "a.mtx", "--width", 8, "--width", 8), "widths: expected each once, found 8 more than once"),
        (("--matrix", "a.mtx", "--width", 8, "--set", "x=1"), "--matrix: x: unknown key; expected keys out of"),
    ],
)
def test_a_wrong_line_says_what_is_expected(invoke, tmp_path, words, message):
    code, _, err = invoke("run", *words, "--device", "cpu")
    assert code == 2
    assert message in err
    assert not list((tmp_path / "results").rglob("records.jsonl"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("%%MatrixMarket matrix coordinate real general\n2 2 1\n1 1 nan\n", "expected finite values, found nan"),
        ("%%MatrixMarket matrix coordinate real general\n0 2 0\n", "expected at least one row"),
        ("%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 1.0\n", "bad.mtx"),
    ],
)
def test_a_matrix_that_cannot_be_read_ends_the_command(invoke, tmp_path, content, message):
    (tmp_path / "bad.mtx").write_text(content)
    code, _, err = invoke("run", "--matrix", "bad.mtx", "--width", 8, "--device", "cpu")
    assert code == 2
    assert message in err.replace("\n", " ")
    assert not list((tmp_path / "results").rglob("records.jsonl"))
    assert invoke("run", "--matrix", "bad.mtx", "--width", 8, "--device", "cpu", "--dry-run")[0] == 0
