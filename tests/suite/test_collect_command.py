"""``spmark study collect`` from the command to its file: the same data after a stop, halves apart, reasons kept."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from spmark.datasets.cache import Cache
from spmark.datasets.load import load_matrix
from spmark.datasets.sweep.model import MatrixSpec
from spmark.impls.core.errors import DatasetError
from spmark.impls.core.problem import Csr, Op
from spmark.impls.spade_sim.platform import SpadePlatform
from spmark.impls.table import find_platform
from spmark.records.rowfile import read_rows
from spmark.studies.collected import CollectedRow, SampledConfig, read_collected
from spmark.suite.cli import main as cli
from spmark.suite.study import collect

SWEEP = """
schema: 1
name: tiny
ops: [spmm, sddmm]
matrices:
  - {source: rmat, name: small, args: {scale: 6, edge_factor: 4}}
  - {source: patterns, name: logsparse_64}
  - {source: patterns, name: strided_x}
widths: [8]
implementations: [scipy_cpu]
"""


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    file = tmp_path / "tiny.yaml"
    file.write_text(SWEEP)
    return file


def spmark(*arguments: object, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["spmark", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


def collected(sweep: Path, out: Path, monkeypatch: pytest.MonkeyPatch, *more: object) -> Path:
    arguments = ("study", "collect", "--platform", "spade_sim", "--sweep", sweep, "--configs", 6, "--out", out, *more)
    assert spmark(*arguments, monkeypatch=monkeypatch) == 0
    return next((out / "spade_sim").glob("*.jsonl"))


def test_a_stopped_collection_goes_on_to_the_same_data(
    sweep: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = collected(sweep, tmp_path / "whole", monkeypatch, "--json")
    assert whole.name == "tiny-01-of-01.jsonl"
    answer = json.loads(capsys.readouterr().out)
    assert (answer["made"], answer["left"]) == (6, 0)
    lines = whole.read_bytes().splitlines(keepends=True)
    torn = tmp_path / "torn" / "spade_sim" / whole.name
    torn.parent.mkdir(parents=True)
    torn.write_bytes(b"".join(lines[:2]) + lines[2][:50])
    assert collected(sweep, tmp_path / "torn", monkeypatch) == torn
    assert list(read_rows(torn, CollectedRow)) == list(read_rows(whole, CollectedRow))
    before = torn.read_bytes()
    collected(sweep, tmp_path / "torn", monkeypatch)
    assert torn.read_bytes() == before


def test_a_row_says_what_was_measured_where(sweep: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = read_collected([collected(sweep, tmp_path, monkeypatch)])
    assert [(row.matrix, row.op) for row in rows] == [
        (matrix, op) for matrix in ("rmat/small", "patterns/logsparse_64") for op in Op
    ]
    first = rows[0]
    assert first.spec == {"source": "rmat", "name": "small", "args": {"scale": 6, "edge_factor": 4}}
    assert (first.machine, first.cores, first.wanted) == ("simulated", (), 6)
    assert first.note == "SPADE-like, simulated; not the published simulator"
    assert first.space_digest == SpadePlatform().digest(Op.SPMM)
    assert len(first.configs) == 7
    assert all(one.chosen_by_us == one.valued_by_us and one.chosen_by_us[0] > 0 for one in first.configs)
    assert len(read_collected([tmp_path / "spade_sim" / "tiny-01-of-01.jsonl"], Op.SPMM)) == 2


def test_shards_are_parts_of_the_whole(sweep: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = list(read_rows(collected(sweep, tmp_path / "whole", monkeypatch), CollectedRow))
    parts: list[CollectedRow] = []
    for number in range(1, 5):  # one shard more than there are matrices
        file = collected(sweep, tmp_path / str(number), monkeypatch, "--shard", f"{number}/4")
        parts += read_rows(file, CollectedRow)
    assert sorted(row.model_dump_json() for row in parts) == sorted(row.model_dump_json() for row in whole)


@pytest.mark.full
def test_the_host_is_measured_with_its_cores(sweep: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spmark.impls.tuning.timer._HOST_S", 60.0)
    arguments = ("study", "collect", "--platform", "cpu", "--sweep", sweep, "--configs", 2, "--out", tmp_path)
    only = ("--set", "matrices=[patterns/logsparse_64]", "--set", "ops=[spmm]")
    assert spmark(*arguments, *only, monkeypatch=monkeypatch) == 0
    (row,) = read_collected([tmp_path / "cpu" / "tiny-01-of-01.jsonl"])
    assert row.cores
    default = row.configs[0]
    assert default.config == find_platform("cpu").default(row.problem(matrix()))
    assert (len(default.chosen_by_us), len(default.valued_by_us)) == (5, 5)
    monkeypatch.setattr(collect, "allowed_cores", lambda: [core + 100 for core in row.cores])
    assert spmark(*arguments, *only, monkeypatch=monkeypatch) == 0, "another worker of the machine goes on"
    assert len(read_collected([tmp_path / "cpu" / "tiny-01-of-01.jsonl"])) == 1
    monkeypatch.setattr(collect, "allowed_cores", lambda: [*row.cores, 100])
    assert spmark(*arguments, *only, monkeypatch=monkeypatch) == 4, "times on more cores are others"


def matrix(name: str = "logsparse_64") -> Csr:
    return load_matrix(MatrixSpec(source="patterns", name=name), Cache.default(), 0).csr


def test_samples_of_several_platforms_or_machines_are_refused(
    sweep: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = collected(sweep, tmp_path, monkeypatch)
    with file.open("a") as grows:
        row = next(read_rows(file, CollectedRow)).model_copy(update={"machine": "other"})
        grows.write(row.model_dump_json() + "\n")
    with pytest.raises(DatasetError, match=r"of one platform and machine, of one space .*'other'"):
        read_collected([file])
    with pytest.raises(DatasetError, match=r"patterns/logsparse_64: expected the pattern .*the matrix has changed"):
        read_rows_of(file, "patterns/logsparse_64").problem(matrix("logsparse_65"))


def read_rows_of(file: Path, name: str) -> CollectedRow:
    return next(row for row in read_rows(file, CollectedRow) if row.matrix == name)


def test_halves_alternate() -> None:
    assert SampledConfig.of({}, (1.0, 2.0, 3.0)).chosen_by_us == (1.0, 3.0)
    assert SampledConfig.of({}, (1.0, 2.0, 3.0)).valued_by_us == (2.0,)
    assert SampledConfig.of({}, (), "why").chosen_by_us == SampledConfig.of({}, (), "why").valued_by_us == ()
