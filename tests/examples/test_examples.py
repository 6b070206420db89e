"""Every example runs as its docstring says, on the records that come with the repository."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from matplotlib import image

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("plot_*.py"))


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_draws_the_reference_records(script, tmp_path):
    records = ROOT / "report/reference/h200/graphs_spmm"
    command = [sys.executable, script, records, "--out", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    (png,) = tmp_path.glob("*.png")
    (csv,) = tmp_path.glob("*.csv")
    assert image.imread(png).std() > 0.02
    assert "gespmm" in set(pd.read_csv(csv)["label"])


@pytest.mark.parametrize(("name", "device"), [("numba_cpu", "cpu"), ("rowsplit", "host-simt")])
def test_a_plan_is_run_for_a_profiler(name, device):
    script = ROOT / "examples/profile_plan.py"
    command = [sys.executable, script, name, "patterns/logsparse_64", "--width", "8", "--device", device, "--runs", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{name} on patterns/logsparse_64: 2 runs of ")


def test_there_are_examples():
    assert len(EXAMPLES) >= 2
