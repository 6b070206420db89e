"""The frozen entry of regression tracking: JSON in, JSON out, and an answer to everything."""

from __future__ import annotations

import json

import pytest

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.errors import (
    BuildError,
    CompileError,
    DatasetError,
    DeviceError,
    KernelFault,
    ProblemError,
    UnsupportedError,
)
from spmark.impls.scipy_cpu.plan import ScipyCpu
from spmark.records.schema import PROTOCOL_VERSION
from spmark.suite import measure
from spmark.suite.asv import track as tracking

RUN = {
    "what": "run", "op": "spmm", "source": "patterns", "matrix": "logsparse_64", "width": 8, "dtype": "float32",
    "implementation": "scipy_cpu",
}  # fmt: skip
CONVERT = {"what": "convert", "source": "patterns", "matrix": "logsparse_64", "format": "hyb"}


@pytest.fixture(autouse=True)
def host(monkeypatch, tmp_path):
    """A CPU without known rates, so that nothing is calibrated and nothing implausible."""
    spec = DeviceSpec(
        name="test-cpu", kind=DeviceKind.CPU, arch="x86_64", num_sms=1, l2_bytes=1 << 20, memory_bytes=1 << 30,
        copy_bytes_per_s=0, read_bytes_per_s=0, fma_flops_per_s=0,
    )  # fmt: skip
    monkeypatch.setattr(tracking, "find", lambda name: spec)
    monkeypatch.setattr(tracking, "calibrated", lambda found: found)
    monkeypatch.setenv("SPMARK_CACHE", str(tmp_path))


def ask(*cases):
    """Ask as an asking process does: through JSON both ways."""
    answers = json.loads(json.dumps(measure.track(json.loads(json.dumps(cases)))))
    assert len(answers) == len(cases)
    assert {answer["protocol"] for answer in answers} == {PROTOCOL_VERSION}
    return answers


def test_a_run_has_times_phases_and_storage():
    (answer,) = ask({**RUN, "builds": 4})
    assert answer["status"] == "ok"
    assert len(answer["samples_s"]) >= 7
    assert 0 < min(answer["samples_s"]) < max(answer["samples_s"]) < 1
    assert len(answer["phases_s"]["convert"]) == 4
    assert answer["stored"] > 64
    assert answer["device_bytes"] > answer["stored"] * 4


@pytest.mark.parametrize("op", ["spmm", "sddmm"])
def test_a_search_for_an_absent_gpu_has_times_and_a_prediction(op):
    case = {
        "what": "search", "search": "stile_a100", "op": op, "source": "patterns", "matrix": "logsparse_64",
        "width": 32, "dtype": "float16", "samples": 3,
    }  # fmt: skip
    found, unknown, single = ask(case, {**case, "search": "stile_z80"}, {**case, "dtype": "float32"})
    assert found["status"] == "ok"
    assert len(found["samples_s"]) == len(found["cpu_s"]) == len(found["baseline_cpu_s"]) == 3
    assert min(found["baseline_cpu_s"]) > 0
    assert 0 < found["predicted_s"] < 1e-3
    assert (unknown["status"], single["status"]) == ("unsupported", "ok")
    assert "liteform_h200, found 'stile_z80'" in unknown["reason"]


def test_a_build_for_a_gpu_that_is_not_there_chooses_what_the_implementation_chooses(monkeypatch):
    from spmark.impls.liteform.plan import LiteForm

    case = {
        "what": "search", "search": "liteform_build_h200", "op": "spmm", "source": "patterns", "matrix": "logsparse_64",
        "width": 32, "dtype": "float32", "samples": 2,
    }  # fmt: skip
    asked, real = [], LiteForm.forecast
    monkeypatch.setattr(LiteForm, "forecast", lambda how, *given: asked.append(how) or real(how, *given))
    found, buckets = ask(case, {**case, "search": "liteform_h200"})
    assert {*asked} == {LiteForm(), LiteForm(format="cell")}
    assert len(found["samples_s"]) == 2
    assert found["predicted_s"] in (None, buckets["predicted_s"])
    assert buckets["predicted_s"] > 0


def test_a_conversion_has_times_and_storage():
    ell, bsr = ask(
        CONVERT, {**CONVERT, "format": "bsr", "format_args": {"block_rows": 2, "block_cols": 2}, "samples": 3}
    )
    assert (ell["status"], len(ell["samples_s"])) == ("ok", 25)
    assert (bsr["status"], len(bsr["samples_s"])) == ("ok", 3)
    assert ell["stored"] % 64 == 0
    assert bsr["stored"] % 4 == 0


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ({**RUN, "what": "dream"}, "does not understand"),
        ({**RUN, "colour": "red"}, "does not understand"),
        ({**RUN, "op": "spgemm"}, "does not understand"),
        ({**RUN, "implementation": "of_tomorrow"}, "of_tomorrow"),
        ({**RUN, "source": "of_tomorrow"}, "of_tomorrow"),
        ({**RUN, "config": {"of_tomorrow": 1}}, "of_tomorrow"),
        ({**RUN, "implementation": "cusparse"}, "cusparse runs on cuda"),
        ({**CONVERT, "format": "of_tomorrow"}, "expected a format out of bsr, hyb"),
    ],
)
def test_what_a_commit_does_not_know_is_unsupported_and_the_rest_is_answered(case, reason):
    unknown, known = ask(case, CONVERT)
    assert unknown["status"] == "unsupported"
    assert reason in unknown["reason"]
    assert not unknown["samples_s"]
    assert known["status"] == "ok"


def test_a_fault_of_the_commit_costs_one_answer(monkeypatch):
    def broken(*args, **kwargs):
        raise ZeroDivisionError("of all things")

    monkeypatch.setitem(tracking.FORMATS, "hyb", broken)
    failed, fine = ask(CONVERT, {**CONVERT, "format": "bsr"})
    assert (failed["status"], failed["reason"]) == ("run_error", "ZeroDivisionError: of all things")
    assert fine["status"] == "ok"


SEARCH = {
    "what": "search", "search": "liteform_h200", "op": "spmm", "source": "patterns", "matrix": "logsparse_64",
    "width": 32, "dtype": "float32", "samples": 1,
}  # fmt: skip


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (BuildError("no candidate builds"), "build_error"),
        (CompileError("a.cu", "f<1>", "no candidate builds"), "build_error"),
        (KernelFault("no candidate builds"), "run_error"),
        (UnsupportedError("no candidate builds"), "unsupported"),
        (DeviceError("no candidate builds"), "unsupported"),
        (DatasetError("no candidate builds"), "unsupported"),
        (ProblemError("no candidate builds"), "unsupported"),
        (MemoryError("no candidate builds"), "out_of_memory"),
    ],
)
def test_only_a_refusal_is_unsupported_and_a_failure_is_not(monkeypatch, error, status):
    def forecast(*_):
        raise error

    monkeypatch.setattr("spmark.impls.liteform.plan.LiteForm.forecast", forecast)
    failed, fine = ask(SEARCH, CONVERT)
    assert failed["status"] == status
    assert "no candidate builds" in failed["reason"]
    assert fine["status"] == "ok"


@pytest.mark.full
@pytest.mark.parametrize(
    ("error", "told"),
    [
        (MemoryError(), "memory ran out"),
        (BuildError("no compiler"), "no compiler"),
        (ZeroDivisionError("of all things"), "ZeroDivisionError: of all things"),
    ],
)
@pytest.mark.parametrize("builds", [1, 3])
def test_a_repeated_build_that_fails_leaves_what_was_measured(monkeypatch, caplog, error, told, builds):
    made, build = [], ScipyCpu.build

    def failing(how, problem, device):
        if len(made) == builds:
            raise error
        made.append(problem)
        return build(how, problem, device)

    monkeypatch.setattr(ScipyCpu, "build", failing)
    (answer,) = ask({**RUN, "builds": 9})
    assert (answer["status"], answer["reason"]) == ("ok", "")
    assert len(answer["samples_s"]) >= 7
    assert answer["stored"] > 64
    assert len(answer["cpu_s"]) == len(answer["baseline_cpu_s"]) == builds - 1
    assert len(answer["phases_s"]["convert"]) == max(builds - 1, 1)
    assert f"scipy_cpu: build {builds + 1} failed: {told}" in caplog.text
