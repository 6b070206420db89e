"""scripts/call_times.py: each part compares results that are right, and what fails says why."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
from scripts_by_name import load_script

pytestmark = pytest.mark.full
SCRIPT: Any = load_script("call_times")
PATTERN = "patterns/logsparse_512"


def told(capsys: Any, monkeypatch: Any, *arguments: str) -> list[dict[str, Any]]:
    monkeypatch.setattr(sys, "argv", ["call_times.py", "--device", "cpu", *arguments])
    measured = SCRIPT.by_turns
    monkeypatch.setattr(SCRIPT, "by_turns", lambda runs, device, **_: measured(runs, device, calls=1, turns=1))
    SCRIPT.main()
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_every_comparison_has_both_sides(capsys: Any, monkeypatch: Any) -> None:
    lines = told(capsys, monkeypatch, "--parts", "host", "eager", "--graphs", PATTERN)
    assert not [line for line in lines if "failed" in line]
    pairs = {(line["what"], line["over"]) for line in lines if "what" in line and line.get("speedup", 0) > 0}
    wanted = {("forward", "A @ b"), ("forward and backward", "A^T kept"), ("GCN step", "torch.sparse")}
    assert wanted | {("sddmm", "torch.sparse.sampled_addmm")} <= pairs
    assert {(line["summary"], line["over"]) for line in lines if "summary" in line} == pairs


def test_a_part_that_fails_says_why(capsys: Any, monkeypatch: Any) -> None:
    lines = told(capsys, monkeypatch, "--parts", "eager", "host", "--graphs", "patterns/nothing")
    assert [line["failed"].splitlines()[0] for line in lines if "failed" in line] == [
        "Traceback (most recent call last):"
    ]
    assert any(line.get("what") == "forward" for line in lines)


def test_planning_begins_with_nothing(capsys: Any, monkeypatch: Any) -> None:
    lines = told(capsys, monkeypatch, "--parts", "planning", "--graphs", PATTERN)
    whole = next(line["seconds"] for line in lines if line.get("what") == "the whole process")
    assert 0 < next(line["seconds"] for line in lines if line.get("what") == "planning") < whole
    assert len([line for line in lines if line.get("what") == "plan"]) == 3
