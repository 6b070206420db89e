"""``spmark explain``: a recorded case is found, and its composition is made again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from spmark.datasets.cache import Cache
from spmark.datasets.load import load_matrix
from spmark.datasets.sweep.model import MatrixSpec, expand
from spmark.impls.core.errors import BuildError, RecordError
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.formats.stores import stores_of
from spmark.impls.runtime.device import shipped
from spmark.impls.table import create
from spmark.records.rowfile import RUNS, RecordFile
from spmark.records.schema import Environment, EnvironmentRow, MatrixKind, Measurement, Outcome, ProblemFacts, Status
from spmark.suite.cli import main as cli
from spmark.suite.run.provenance import RunRow
from spmark.suite.tuned import sweep_of

H200 = shipped("nvidia-h200")
ENVIRONMENT = Environment(device=H200, packages={}, cpu="c", cores=2, memory_bytes=1, system="s")
SPEC = MatrixSpec(source="rmat", name="mine", args={"scale": 7})
NAMES = ["liteform", "stile", "lo_spmm", "sparsetir"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Record what is foreseen of a matrix whose source takes an argument, as if it had been measured."""
    monkeypatch.chdir(tmp_path)
    matrix = load_matrix(SPEC, Cache.default(), 0).csr
    sweep = sweep_of(SPEC, "spmm", 32, DType.FLOAT32, NAMES, H200.kind, 60.0)
    cases = expand(sweep, H200.kind)
    facts = ProblemFacts(num_rows=128, num_cols=128, nnz=matrix.nnz, longest_row=9, flops=512, compulsory_bytes=100)
    rows = []
    for case in cases:
        if case.implementation in NAMES:
            problem = Problem(Op.SPMM, matrix, 32)
            how: Any = create(case.implementation)
            found = how.forecast(problem, H200)
            stored = stores_of(how, problem, H200, found.config).stored
            outcome = Outcome(
                status=Status.OK, matrix_kind=MatrixKind.SYNTHETIC, matrix_hash=matrix.hash, problem=facts,
                config=dict(found.config), stored=stored, samples_us=[9.0],
            )  # fmt: skip
            rows.append(Measurement.of(case, outcome, ENVIRONMENT))
    with RecordFile(tmp_path / "results" / "environments.jsonl") as file:
        file.append(EnvironmentRow(digest=ENVIRONMENT.digest, environment=ENVIRONMENT))
    with RecordFile(tmp_path / "results" / RUNS) as file:
        run = RunRow.of(sweep, ENVIRONMENT.digest, len(cases), "")
        file.append(run.model_copy(update={"started_at": min(row.started_at for row in rows)}))
    with RecordFile(tmp_path / "results" / "records.jsonl") as file:
        file.append_all(rows)
    return tmp_path / "results"


def change(folder: Path, **changes) -> None:
    """Change all records of a folder."""
    path = folder / "records.jsonl"
    path.write_text("".join(json.dumps(json.loads(line) | changes) + "\n" for line in path.read_text().splitlines()))


def invoke(*words: str):
    return CliRunner().invoke(cli.app, ["explain", *words], catch_exceptions=False)


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_case_has_the_stores_of_its_plan(folder, name):
    ended = invoke(f"/{name}/", "--json")
    answer = json.loads(ended.stdout)
    nnz = load_matrix(SPEC, Cache.default(), 0).csr.nnz
    assert sum(store["nnz"] for store in answer["stores"]) == nnz
    assert answer["notices"] == []
    page = Path(answer["page"])
    assert page.parent == Path("out/explain")
    assert "measured on nvidia-h200" in page.read_text()


def test_the_screen_lists_the_stores(folder):
    ended = invoke("sparsetir", "--results", str(folder))
    assert "bucket of 2" in ended.output
    assert ended.output.strip().endswith(".html")


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("seed0", "with 'seed0' in its id, found 4, such as spmm/rmat/mine/J32.*, in results: write more of the id"),
        ("dgl", "ended well with 'dgl' in its id, found none, in results: run the case first, .* with --results"),
    ],
)
def test_a_word_names_one_case(folder, word, message):
    with pytest.raises(RecordError, match=message):
        invoke(word)


@pytest.mark.full
def test_a_label_names_a_variant(folder):
    path = folder / "records.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    (own,) = (row for row in rows if row["spec"]["implementation"] == "stile")
    variants = [
        own | {"spec": own["spec"] | {"case_id": f"{own['spec']['case_id']}#{digits}", "label": label}}
        for digits, label in (("0123abcd", "stile_mixture"), ("4567abcd", "stile_mixture_levels_1"))
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, *variants]))
    for word, case in (("J32/float32/stile", own), ("stile_mixture", variants[0]), ("_levels_1", variants[1])):
        assert json.loads(invoke(word, "--json").stdout)["case"] == case["spec"]["case_id"]
    with pytest.raises(RecordError, match=r"found 2, such as .*/stile_mixture/seed0, .*/stile_mixture_levels_1/seed0"):
        invoke("_mixture")


def test_another_pattern_is_refused(folder):
    change(folder, matrix_hash="0" * 64)
    with pytest.raises(RecordError, match=r"with the pattern 000000000000 of the record, found .* another"):
        invoke("stile")


@pytest.mark.parametrize("config", [{"c": "many", "max_width": 4}, {"c": 1, "max_width": 3}, {"c": -1, "max_width": 4}])
def test_a_config_that_no_plan_has_is_refused(folder, config):
    change(folder, config=config)
    with pytest.raises(BuildError, match="expected"):
        invoke("/sparsetir/")
