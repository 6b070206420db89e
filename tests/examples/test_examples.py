"""Every example runs as its docstring says, on the records that come with the repository."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib import image
from scipy import sparse
from scipy.io import mmwrite

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


OWN = f"{ROOT}/examples/mykernel/mykernel.py:MyKernel"


@pytest.mark.parametrize(("name", "device"), [("numba_cpu", "cpu"), ("rowsplit", "host-simt"), (OWN, "host-simt")])
def test_a_plan_is_run_for_a_profiler(name, device):
    script = ROOT / "examples/profile_plan.py"
    command = [sys.executable, script, name, "patterns/logsparse_64", "--width", "8", "--device", device, "--runs", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{name} on patterns/logsparse_64: 2 runs of ")


@pytest.mark.parametrize("file", [False, True])
def test_a_person_s_own_product(file, tmp_path):
    command = [sys.executable, ROOT / "examples/multiply.py", "--width", "8", "--use", "numba_cpu"]
    if file:
        mmwrite(tmp_path / "mine.mtx", sparse.random_array((30, 20), density=0.2, rng=np.random.default_rng(1)))
        command.append(tmp_path / "mine.mtx")
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert "J = 8: numba_cpu" in done.stdout
    assert done.stdout.endswith("all products agree with SciPy's\n")


def test_there_are_examples():
    assert len(EXAMPLES) >= 2
