"""scripts/operator_overhead.py: every way computes the same product, and the fastest loop of each counts."""

from __future__ import annotations

import json
import sys
from types import ModuleType

import numpy as np
import pytest
from scripts_by_name import load_script

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("operator_overhead")


def test_every_way_gives_the_same_product(script: ModuleType) -> None:
    calls = script.ways("cpu", "scipy_cpu")
    assert next(iter(calls)) == script.BASE
    results = [
        torch.as_tensor(made).detach().numpy() for made in (call() for call in calls.values()) if made is not None
    ]
    assert len(results) == len(calls) - 1, "a plan gives nothing back"
    for result in results:
        np.testing.assert_array_equal(result, results[0])


def test_the_fastest_loop_counts(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([0.0, 4e-6, 10.0, 10.5, 11.0, 11.5, 20.0, 20.000002])
    monkeypatch.setattr(script, "perf_counter", lambda: next(ticks))
    called: list[str] = []
    ways = {"one": lambda: called.append("one"), "two": lambda: called.append("two")}
    found = script.fastest_us(ways, rounds=2, loop=2, wait=lambda: called.append("wait"))
    assert found == {"one": pytest.approx(2), "two": pytest.approx(1)}
    assert called == ["one", "one", "wait", "two", "two", "wait"] * 2


def test_a_line_of_json_for_each_way(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["operator_overhead.py", "--device", "cpu", "--rounds", "2", "--loop", "3"])
    script.main()
    lines = capsys.readouterr().out.splitlines()
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--json"])
    script.main()
    told = json.loads(capsys.readouterr().out)
    assert [line.split("  ")[0] for line in lines] == list(told["us"])
    assert all(us > 0 for us in told["us"].values())
