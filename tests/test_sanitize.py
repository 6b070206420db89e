"""scripts/sanitize.py tells clean runs, findings, failures and refused tools apart, and its problems are awkward."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from scripts_by_name import load_script

from spmark.impls.core.problem import DType, Op


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("sanitize")


@pytest.mark.parametrize(
    ("said", "code", "status", "findings", "plans"),
    [
        ("36 plans were run and are right\n========= ERROR SUMMARY: 0 errors", 0, "clean", 0, 36),
        (
            "========= Invalid read\n36 plans were run and are right\n========= ERROR SUMMARY: 3 errors",
            86,
            "findings",
            3,
            36,
        ),
        ("36 plans were run and are right\n========= RACECHECK SUMMARY: 2 hazards", 86, "findings", 2, 36),
        ("Traceback (most recent call last):\nImportError\n========= ERROR SUMMARY: 0 errors", 1, "failed", 0, 0),
        ("========= Error: Device not supported", 255, "not run", 0, 0),
        ("36 plans were run and are right", 0, "not run", 0, 36),
        ("0 plans were run and are right\n========= ERROR SUMMARY: 0 errors", 0, "no plan", 0, 0),
    ],
)
def test_what_a_tool_says(
    script: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    said: str,
    code: int,
    status: str,
    findings: int,
    plans: int,
) -> None:
    tool = tmp_path / "compute-sanitizer"
    tool.write_text(f"#!/bin/sh\ncat <<'END'\n{said}\nEND\nexit {code}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    outcome = script.sanitize("memcheck", "gespmm", 60)
    assert (outcome.status, outcome.findings, outcome.plans) == (status, findings, plans)
    assert bool(outcome.said) == (status != "clean")


def test_parts_share_problems_and_gpus(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tool = tmp_path / "compute-sanitizer"
    tool.write_text(
        '#!/bin/bash\nwhile [ "$1" != --part ]; do shift; done\n'
        'test "$CUDA_VISIBLE_DEVICES" = $(($2 % 2)) || exit 3\n'
        "echo '3 plans were run and are right'; echo '========= ERROR SUMMARY: 0 errors'\n"
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setattr(script.sys, "argv", ["sanitize", "--only", "gespmm", "--tools", "memcheck", "--parts", "4"])
    with pytest.raises(SystemExit) as ended:
        script.main()
    assert ended.value.code == 0
    assert "clean  12 plans" in capsys.readouterr().out
    parts = [script.Outcome("memcheck", "gespmm", status, 0, 1, "") for status in ("clean", "not run", "no plan")]
    assert script.joined(parts).status == "not run"


def test_a_machine_without_the_tool_ran_nothing(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script.shutil, "which", lambda name: "/nowhere/compute-sanitizer")
    outcome = script.sanitize("memcheck", "gespmm", 60)
    assert (outcome.status, outcome.plans) == ("not run", 0)
    assert "nowhere" in outcome.said


def test_the_problems_have_empty_full_and_blocked_rows(script: ModuleType) -> None:
    problems = script.tiny_problems()
    assert {(problem.op, problem.dtype) for problem in problems} == {(op, dtype) for op in Op for dtype in DType}
    lengths = problems[0].matrix.row_lengths
    assert lengths.min() == 0
    assert lengths.max() == problems[0].matrix.num_cols
    assert any(problem.width % 16 for problem in problems)
    blocked = problems[-1].matrix
    assert set(blocked.row_lengths % 16) == {0}
    assert blocked.nnz
