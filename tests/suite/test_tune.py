"""``spmark tune``: what is foreseen and measured for one matrix, and what cannot be."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from problems import random_csr
from scipy import io, sparse
from test_noise import BUSY
from typer.testing import CliRunner

from spmark.datasets.sweep.model import MatrixSpec, expand
from spmark.impls.core import machine
from spmark.impls.core.errors import DatasetError, DeviceError, SpmarkError, SweepError, UnsupportedError
from spmark.impls.core.interfaces import PHASES
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.runtime import device as devices
from spmark.impls.runtime.device import shipped
from spmark.impls.table import forecasters
from spmark.records.schema import MatrixKind, Measurement, Outcome, ProblemFacts, Status
from spmark.suite import tuned
from spmark.suite.cli import main as cli
from spmark.suite.cli import matrix as command
from spmark.suite.run import execute
from spmark.suite.tuned import NOT_MEASURED, foresee, label_of, measured, ranked, recorded_stores, sweep_of

H200 = shipped("nvidia-h200")
FACTS = ProblemFacts(num_rows=4, num_cols=4, nnz=100, longest_row=3, flops=512, compulsory_bytes=100)


@pytest.fixture
def files(tmp_path):
    """Give one matrix in every format of files."""
    matrix = sparse.random_array((60, 40), density=0.2, format="csr", rng=np.random.default_rng(0), dtype=np.float32)
    matrix.sort_indices()
    sparse.save_npz(tmp_path / "mine.npz", matrix)
    io.mmwrite(tmp_path / "mine.mtx", matrix)
    (tmp_path / "mine.mtx.gz").write_bytes(gzip.compress((tmp_path / "mine.mtx").read_bytes()))
    lines = [f"60, 40, {matrix.nnz}", *(" ".join(map(str, a.tolist())) for a in (matrix.indptr, matrix.indices))]
    (tmp_path / "mine.smtx").write_text("\n".join(lines))
    return tmp_path


@pytest.fixture
def invoke(monkeypatch, tmp_path):
    """Run the command on a machine without a GPU; errors are raised."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(devices, "cuda_missing", lambda: "no NVIDIA driver is loaded")
    return lambda *words: CliRunner().invoke(cli.app, ["tune", *map(str, words)], catch_exceptions=False)


@pytest.mark.parametrize("name", ["mine.npz", "mine.mtx", "mine.mtx.gz", "mine.smtx"])
def test_a_file_of_each_format_has_a_ranking_and_a_page(files, invoke, name):
    ended = invoke(files / name, "--width", 64, "--out", "page.html", "--json", "--budget", "60s")
    assert ended.exit_code == 0
    answer = json.loads(ended.stdout)
    assert (answer["device"], answer["measured"], answer["left_out"]) == ("nvidia-h200", False, {})
    assert {row["implementation"] for row in answer["ranking"]} == set(forecasters())
    for row in answer["ranking"]:
        assert row["how"].startswith(NOT_MEASURED)
        assert sum(store["nnz"] for store in row["stores"]) == 480
        assert row["padding"] == pytest.approx(sum(store["stored"] for store in row["stores"]) / 480 - 1)
        assert row["break_even_runs"] is None
        if row["implementation"] in {"lo_spmm", "stile"}:
            assert row["time_us"] == H200.launch_s * 1e6, "a matrix so small takes no less than an empty kernel"
            assert "µs" not in row["how"], "no time below a launch is told"
            assert "less than any run takes" in row["how"]
    text = Path("page.html").read_text()
    assert "Nothing was measured" in text
    assert "By estimates of different models" in text
    assert "The best first" not in text
    assert text.count("<figure ") == len(answer["ranking"])
    [beside] = answer["beside"]
    assert (beside["implementation"], beside["time_us"]) == ("cusparse_best", H200.launch_s * 1e6)
    assert beside["how"].startswith(NOT_MEASURED)


def test_the_screen_says_that_nothing_was_measured(files, invoke):
    ended = invoke(files / "mine.mtx", "--width", 32, "--op", "sddmm", "--for", "nvidia-h200")
    first = ended.output.splitlines()[0]
    assert first.startswith("Take stile: about 4.02 µs a run, an estimate that was not measured, and ")
    assert first.endswith(
        "cusparse_best, the baseline, takes 4.02 µs or more by the roof, and only measuring tells which is faster."
    )
    assert "foreseen for nvidia-h200" in ended.output
    assert "Nothing was measured" in ended.output
    assert "expected spmm, for which the paper has a rule, found sddmm" in ended.output
    page = ended.output.strip().splitlines()[-1]
    assert page.startswith("out/tune/matrix_market-")
    assert page.endswith("-sddmm-J32-float32-nvidia-h200.html")
    assert Path(page).is_file()


@pytest.mark.parametrize(
    ("words", "kind", "message"),
    [
        (["absent.mtx"], DatasetError, r"expected a file at .*/absent.mtx, found none"),
        (["patterns/bandd"], DatasetError, "patterns/bandd: expected a formula out of logsparse"),
        (["nowhere/cora"], DatasetError, "expected a source out of .*, found 'nowhere'"),
        (["cora"], DatasetError, "expected a matrix as source/name, or a file that ends in"),
        (["mine.npz", "--for", "nvidia-h20"], DeviceError, "expected a device whose rates ship out of nvidia-h200, "),
        (["mine.npz", "--for", "nvidia-h200", "--device", "cpu"], SweepError, "expected --for or --device, found both"),
        (["mine.npz", "--device", "host-simt"], DeviceError, "whose times mean something, cuda or cpu, found host"),
        (["mine.npz", "--device", "cuda"], DeviceError, "expected a usable NVIDIA GPU, found none"),
        (["mine.npz", "--budget", "0.5s"], SweepError, "--budget: expected at least 1s, found 0.5s"),
        (["mine.npz", "--budget", "soon"], SweepError, "--budget: expected a time such as 90s, 30m"),
        (["mine.npz", "--use", "stiel"], SweepError, r"expected an implementation out of .* \(did you mean stile\?\)"),
        (["mine.npz", "--use", "cublas"], SweepError, "expected an implementation that gives a plan, found none"),
        (["mine.npz", "--out", "mine.npz/page.html"], SpmarkError, "the report cannot be written"),
    ],
)
def test_what_cannot_be_used_is_explained(files, invoke, words, kind, message):
    with pytest.raises(kind, match=message):
        invoke(*words, "--width", 32)


def test_who_cannot_be_foreseen_is_left_out_with_the_reason(files, invoke):
    words = ("--use", "cublas", "--use", "lo_spmm", "--use", "stile", "--dtype", "float16", "--json")
    answer = json.loads(invoke("mine.npz", "--width", 32, *words).stdout)
    assert [row["implementation"] for row in answer["ranking"]] == ["stile"]
    assert answer["left_out"]["cublas"].endswith(" where nothing is measured, found cublas")
    assert answer["left_out"]["lo_spmm"] == "expected float32, found float16"


def test_no_search_begins_after_the_budget(monkeypatch):
    now = iter([0.0, *[1.0] * 2, *[9.0] * 9])
    monkeypatch.setattr(tuned, "perf_counter", lambda: next(now))
    found = list(foresee(["sparsetir", "liteform"], Problem(Op.SPMM, random_csr(4, 6, [2] * 4), 32), H200, 5))
    assert [one.name for one in ranked(found)] == ["sparsetir"]
    assert found[1].reason == "not begun: the budget of 5 s is spent"


def record(label: str, samples_us: Sequence[float], phases_s: Mapping[str, float], reason: str = "") -> Measurement:
    """Give the record of a case of `sweep_of`: timed, or with the reason why not."""
    spec = MatrixSpec(source="patterns", name="band_64")
    cases = expand(sweep_of(spec, "spmm", 32, DType.FLOAT32, ["stile"], H200.kind, 60.0), H200.kind)
    (case,) = [case for case in cases if case.label == label]
    facts = {"matrix_kind": MatrixKind.PATTERN, "problem": FACTS}
    if reason:
        outcome = Outcome(status=Status.TIMEOUT, reason=reason, **facts)
    else:
        planned = {"config": {"a": 1}, "phases_s": phases_s, "stored": 150}
        outcome = Outcome(status=Status.OK, samples_us=samples_us, **planned, **facts)
    return Measurement(**dict(outcome), spec=case, device=H200.name, device_kind=H200.kind)


def test_break_even_is_against_preprocessed_cusparse():
    assert label_of(H200.kind) == "cusparse preprocess"
    rows = [
        record("cusparse_best", [], {}, "too slow\nlog"),
        record("cusparse preprocess", [20.0, 20.0], {"select": 0.001, "compile": 9.0}),
        record("stile", [10.0] * 5 + [9.0, 12.0] * 2, dict.fromkeys(PHASES, 0.25)),
    ]
    best, plain, none = measured(rows, H200)[::-1]
    assert (best.time_us, best.padding, best.search_s, best.config) == (10.0, 0.5, 1.0, {"a": 1})
    assert (best.low_us, best.high_us) == (9.0, 12.0)
    assert command._cells(best)["time (µs)"] == "10 [9, 12]"
    assert best.break_even_runs == math.ceil((1.0 - 0.001) / 10e-6)
    assert plain.break_even_runs == 0
    assert none.reason == "too slow\nlog"
    assert [one.name for one in ranked([none, plain, best])] == ["stile", "cusparse preprocess"]
    alone = measured(rows[2:], H200)[0]
    assert math.isnan(alone.break_even_runs)


def test_a_cpu_is_measured_where_it_is_asked_for(fakes, files, invoke, monkeypatch):
    monkeypatch.setattr(devices, "find", lambda name: fakes.CPU)
    for module in (devices, execute):
        monkeypatch.setattr(module, "calibrated", lambda spec: spec)
    words = ("--device", "cpu", "--use", "fake", "--use", "numba_cpu", "--use", "fake_gpu", "--json")
    answer = json.loads(invoke("mine.npz", "--width", 32, *words).stdout)
    assert answer["measured"]
    ranking = {row["implementation"]: row for row in answer["ranking"]}
    assert ranking.keys() == {"fake", "numba_cpu", "scipy_cpu"}
    assert ranking["numba_cpu"]["time_us"] == 10.5
    assert ranking["numba_cpu"]["how"] == "measured on fake-cpu"
    assert [store["nnz"] for store in ranking["numba_cpu"]["stores"]] == [480]
    assert [store["name"] for store in ranking["fake"]["stores"]] == ["rows of CSR"], "what does not pad is CSR"
    assert "runs on cuda, found a cpu device" in answer["left_out"]["fake_gpu"]


def test_padding_that_a_class_does_not_tell_is_not_drawn():
    padded = record("cusparse preprocess", [20.0], {})
    problem = Problem(Op.SPMM, random_csr(4, 40, [25] * 4), 32)
    with pytest.raises(UnsupportedError, match="cusparse: expected stored_as, since the plan pads"):
        recorded_stores(padded, problem, H200)


def test_a_ranking_that_a_busy_machine_made_says_so(fakes, files, invoke, monkeypatch):
    monkeypatch.setattr(devices, "find", lambda name: fakes.CPU)
    for module in (devices, execute):
        monkeypatch.setattr(module, "calibrated", lambda spec: spec)
    monkeypatch.setattr(machine, "Load", lambda cores, free: BUSY)
    lines = invoke("mine.npz", "--width", 32, "--device", "cpu", "--use", "scipy_cpu").output.splitlines()
    assert lines[0] == "Take scipy_cpu: 10.5 µs a run; 0 ms from the matrix to its plan."
    assert lines[1].startswith("The machine was busy in 1 of 1 cases (at the worst, other processes take 1.6 of 2 c")


def test_the_advice_says_what_it_costs_and_who_is_as_fast():
    rows = [
        record("cusparse_best", [30.0] * 9, {"convert": 0.001}),
        record("cusparse preprocess", [10.5] * 9, {"convert": 0.001}),
        record("stile", [10.0] * 5 + [9.0, 12.0] * 2, dict.fromkeys(PHASES, 0.25)),
    ]
    assert command._advice(ranked(measured(rows, H200)), H200.kind) == (
        "Take stile: 10 [9, 12] µs a run, 3 times as fast as cusparse_best (30 [30, 30] µs); 1 s from the matrix to "
        "its plan, which 1,998,000 runs pay back against cusparse preprocess. As fast within the intervals: "
        "cusparse preprocess."
    )


@pytest.mark.parametrize("done", [0, 1])
def test_an_interrupted_ranking_is_code_130_and_not_a_spent_budget(done, fakes, files, invoke, monkeypatch):
    def interrupted(*given, until, **named):
        summary = real(*given, **named, until=math.inf if done else 0.0)
        return replace(summary, left=2, interrupted=True)

    monkeypatch.setattr(devices, "find", lambda name: fakes.CPU)
    for module in (devices, execute):
        monkeypatch.setattr(module, "calibrated", lambda spec: spec)
    real = execute.execute
    monkeypatch.setattr(execute, "execute", interrupted)
    words = ("--device", "cpu", "--use", "fake", "--use", "numba_cpu")
    ended = invoke("mine.npz", "--width", 32, *words)
    assert ended.exit_code == 130
    assert (".html" in ended.output) == bool(done)
    assert "cases were not measured: the run was interrupted" in " ".join(ended.output.split())
