"""Records into result files of airspeed velocity, and back into frames."""

from __future__ import annotations

import json
from math import isnan
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.errors import RecordError
from spmark.impls.core.problem import DType, Op
from spmark.records.rowfile import RecordFile
from spmark.records.schema import CandidateRow, Environment, EnvironmentRow, Measurement, Status
from spmark.suite.asv import machine
from spmark.suite.asv.importer import import_records
from spmark.suite.asv.series import SweptSpmm
from spmark.suite.cli import main as cli

GPU = DeviceSpec(
    name="test-gpu", kind=DeviceKind.CUDA, arch="sm_90", num_sms=4, l2_bytes=1 << 20, memory_bytes=1 << 30,
    copy_bytes_per_s=1e12, read_bytes_per_s=1e12, fma_flops_per_s=1e13,
)  # fmt: skip


def environment(commit: str, cuda: str = "13.2") -> Environment:
    return Environment(
        device=GPU, driver="580.1", cuda=cuda, packages={"python": "3.12.3"}, cpu="Some CPU", cores=4,
        memory_bytes=1 << 34, system="Linux", commit=commit,
    )  # fmt: skip


def record(of: Environment, **changes) -> Measurement:
    rng = np.random.default_rng(len(json.dumps(changes, default=str)))
    fields = {
        "op": Op.SPMM, "matrix": "cora", "source": "planetoid", "seed": 0, "width": 128, "dtype": DType.FLOAT32,
        "device": GPU.name, "device_kind": GPU.kind, "implementation": "gespmm", "implementation_version": "v1",
        "status": Status.OK, "environment": of.digest, "started_at": "2026-03-01T12:00:00Z", "stored": 10_556,
        "device_bytes": 97_047, "phases_s": {"select": 0.001, "compile": 0.5},
        "samples_us": list(rng.lognormal(3, 0.02, 40)),
    } | changes  # fmt: skip
    if fields["status"] is not Status.OK:
        fields |= {"samples_us": [], "reason": "off by 3"}
    name = fields["implementation"]
    fields.setdefault("label", name)
    fields.setdefault(
        "case_id",
        f"{fields['op']}/{fields['source']}/{fields['matrix']}/J{fields['width']}/{fields['dtype']}/{name}/seed0",
    )
    return Measurement(**fields)


def write(folder: Path, of: Environment, rows, candidates=()) -> Path:
    for name, lines in (
        ("environments", [EnvironmentRow(digest=of.digest, environment=of)]),
        ("records", rows),
        ("candidates", candidates),
    ):
        with RecordFile(folder / f"{name}.jsonl") as file:
            file.append_all(lines)
    return folder


@pytest.fixture
def rows(commit):
    of = environment(commit)
    return of, [
        record(of),
        record(of, width=32),
        record(of, op=Op.SDDMM),
        record(of, dtype=DType.FLOAT16),
        record(of, implementation="cusparse_best"),
        record(of, matrix="citeseer", status=Status.WRONG_RESULT),
        record(of, matrix="pubmed", status=Status.UNSUPPORTED),
        record(of, width=48),  # a width that is not followed
        record(of, matrix="of_mine"),
        record(of, requested={"tile": 4}, case_id="pinned"),
    ]


def values(file: Path, name: str) -> dict[tuple[str, ...], dict]:
    """Give the cells of a benchmark by parameters, as airspeed velocity reads them."""
    from itertools import product

    held = json.loads(file.read_text())
    row = dict(zip(held["result_columns"], held["results"][name], strict=False))
    columns = {key: values for key, values in row.items() if isinstance(values, list) and key != "params"}
    return {
        params: {key: column[at] for key, column in columns.items()}
        for at, params in enumerate(product(*row["params"]))
    }


def test_a_case_has_its_samples_and_intervals(tmp_path, repository, commit, rows):
    (done,) = import_records([write(tmp_path / "in", *rows)], tmp_path / "results", repository)
    assert (done.machine, done.commit, done.cases, done.left_out) == ("test-gpu-cuda13", commit, 7, 3)
    assert done.file.name == f"{commit[:8]}-imported-py3.12.json"
    held = json.loads(done.file.read_text())
    assert held["params"] == {"machine": "test-gpu-cuda13", "gpu": "test-gpu", "cuda": "13", "python": "3.12"}
    cells = values(done.file, "tracked.SweptSpmm.track_time")
    cell = cells["'gespmm'", "'planetoid/cora'", "128", "'float32'"]
    expected = sorted(us * 1e-6 for us in rows[1][0].samples_us)
    assert sorted(cell["samples"]) == pytest.approx(expected, rel=1e-12)
    assert cell["result"] == pytest.approx(np.median(expected))
    # Order statistics of 40 samples: Binomial(40, 1/2) puts 99 % between the 12th and 29th.
    assert (cell["stats_ci_99_a"], cell["stats_ci_99_b"]) == pytest.approx((expected[11], expected[28]), rel=1e-4)
    assert (cell["stats_repeat"], cell["stats_number"]) == (40, 1)


def test_failures_and_na_are_told_apart(tmp_path, repository, rows):
    (done,) = import_records([write(tmp_path / "in", *rows)], tmp_path / "results", repository)
    cells = values(done.file, "tracked.SweptSpmm.track_time")
    assert cells["'gespmm'", "'planetoid/citeseer'", "128", "'float32'"]["result"] is None
    assert isnan(cells["'gespmm'", "'planetoid/pubmed'", "128", "'float32'"]["result"])
    assert isnan(cells["'cublas'", "'planetoid/cora'", "128", "'float32'"]["result"])


def test_importing_again_adds_and_keeps(tmp_path, repository, commit, rows):
    of = rows[0]
    first = write(tmp_path / "first", of, [record(of)])
    second = write(tmp_path / "second", of, [record(of, width=32, samples_us=[5.0, 6.0, 7.0])])
    for folder in (first, second):
        (done,) = import_records([folder], tmp_path / "results", repository)
    cells = values(done.file, "tracked.SweptSpmm.track_time")
    assert len(cells["'gespmm'", "'planetoid/cora'", "128", "'float32'"]["samples"]) == 40
    few = cells["'gespmm'", "'planetoid/cora'", "32", "'float32'"]
    assert few["samples"] == pytest.approx([5e-6, 6e-6, 7e-6])


@pytest.mark.parametrize("name", ["IMPLEMENTATIONS", "MATRICES", "WIDTHS"])
def test_a_list_that_grows_takes_nothing_away(tmp_path, repository, monkeypatch, name):
    """Of values, of failures and of n/a alike, wherever in its list a value comes in."""
    of, seen = environment("a" * 40), {}
    rows = [record(of), record(of, width=32, status=Status.WRONG_RESULT)]
    parameters = list(SweptSpmm.params)
    for folder, measured in (("first", rows), ("second", [record(of, matrix="citeseer")])):
        written = write(tmp_path / folder, of, measured)
        (done,) = import_records([written], tmp_path / "results", repository, commit="HEAD")
        seen[folder] = values(done.file, "tracked.SweptSpmm.track_time")
        at = ("IMPLEMENTATIONS", "MATRICES", "WIDTHS").index(name)
        parameters[at] = (17 if at == 2 else "new/one", *parameters[at])
        monkeypatch.setattr(SweptSpmm, "params", tuple(parameters))
    known = {params: cell for params, cell in seen["first"].items() if cell["result"] is None or cell["samples"]}
    assert len(known) == 2
    assert {params: seen["second"][params] for params in known} == known
    assert len(seen["second"]) > len(seen["first"])
    assert sum(cell["result"] is None for cell in seen["second"].values()) == 1, "what is new is n/a and did not fail"
    assert seen["second"]["'gespmm'", "'planetoid/citeseer'", "128", "'float32'"]["samples"]


def test_regret_comes_from_the_candidates(tmp_path, repository, rows):
    of = rows[0]
    best = record(of, implementation="cusparse_best")
    seen = [
        CandidateRow(
            case_id=best.case_id, implementation_version="v1", environment=of.digest, config={"algorithm": name},
            samples_us=[us],
        )
        for name, us in (("default", 9.0), ("alg2", 6.0), ("alg3", 12.0))
    ]  # fmt: skip
    (done,) = import_records([write(tmp_path / "in", of, [best], seen)], tmp_path / "results", repository)
    cells = values(done.file, "tracked.SweptPlans.track_regret")
    assert cells["'spmm'", "'cusparse'", "'planetoid/cora'"]["result"] == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("name", "message"), [("", "found none"), ("a" * 40, "has the commit"), ("{}+", "with changes")]
)
def test_records_without_a_commit_are_refused(tmp_path, repository, commit, name, message):
    of = environment(name.format(commit))
    folder = write(tmp_path / "in", of, [record(of)])
    with pytest.raises(RecordError, match=message):
        import_records([folder], tmp_path / "results", repository)
    assert not (tmp_path / "results").exists()
    (done,) = import_records([folder], tmp_path / "results", repository, commit="HEAD")
    assert done.commit == commit


def of_protocol(row: Measurement, number: int) -> Measurement:
    return row.model_copy(update={"spec": row.spec.model_copy(update={"protocol_version": number})})


def test_records_of_another_protocol_are_refused(tmp_path, repository, commit, rows):
    of = rows[0]
    old = [of_protocol(row, 1) for row in rows[1]]
    folder = write(tmp_path / "in", of, old)
    with pytest.raises(RecordError, match=r"protocol 2, which .* found 10 cases of protocol 1; .*measure them again"):
        import_records([folder], tmp_path / "results", repository)
    assert not (tmp_path / "results").exists()
    ended = CliRunner().invoke(cli.app, ["asv", "import", str(folder), "--results", str(tmp_path / "results")])
    assert isinstance(ended.exception, RecordError)


def test_of_mixed_protocols_what_can_be_compared_is_imported(tmp_path, repository, commit, rows, monkeypatch):
    of, (first, *rest) = rows
    old = [of_protocol(row, 1) for row in rest]
    # A newer record of the other protocol does not hide the one that counts.
    hiding = of_protocol(first, 3)
    folder = write(tmp_path / "in" / "mixed", of, [first, *old, hiding])
    alone = environment("", "12.8")
    write(tmp_path / "in" / "other", alone, [record(alone, protocol_version=1)])
    done = import_records([folder, tmp_path / "in" / "other"], tmp_path / "results", repository)
    assert [(one.cases, one.left_out, one.other_protocol) for one in done] == [(1, 0, 9), (0, 0, 1)]
    assert done[1].file is None
    cells = values(done[0].file, "tracked.SweptSpmm.track_time")
    assert len(cells["'gespmm'", "'planetoid/cora'", "128", "'float32'"]["samples"]) == 40
    assert not (tmp_path / "results" / "test-gpu-cuda12").exists()
    monkeypatch.chdir(repository)
    ended = CliRunner().invoke(cli.app, ["asv", "import", str(tmp_path / "in"), "--results", str(tmp_path / "again")])
    assert ended.exit_code == 0, ended.output
    assert "1 cases imported; 10 cases not" in ended.stdout


@pytest.mark.parametrize(("kind", "counts"), [(DeviceKind.CUDA, [(0, 1), (2, 0)]), (DeviceKind.CPU, [(1, 0), (2, 0)])])
def test_a_history_follows_one_version_of_the_sparse_library(tmp_path, repository, commit, kind, counts):
    device = GPU.model_copy(update={"kind": kind})
    new, old = (
        environment(commit).model_copy(update={"packages": {"nvidia-cusparse": version}, "device": device})
        for version in ("12.9.4.2", "12.6.3.3")
    )
    write(tmp_path / "in" / "new", new, [record(new), record(new, width=32)])
    write(tmp_path / "in" / "old", old, [record(old, matrix="citeseer")])
    done = import_records([tmp_path / "in"], tmp_path / "results", repository)
    assert sorted((one.cases, one.other_protocol) for one in done) == counts


def test_machines_are_named_by_model_and_cuda_and_registered_beside_others(tmp_path):
    keys = machine.machine_keys(environment("", "12.8"))
    assert keys == {"machine": "test-gpu-cuda12", "gpu": "test-gpu", "cuda": "12"}
    path = tmp_path / ".asv-machine.json"
    path.write_text('{"other": {"machine": "other"}, "version": 1}')
    machine.register(keys, path)
    assert json.loads(path.read_text()) == {"other": {"machine": "other"}, "version": 1, "test-gpu-cuda12": keys}
    path.write_text("no JSON")
    with pytest.raises(RecordError, match="mend or delete"):
        machine.register(keys, path)
