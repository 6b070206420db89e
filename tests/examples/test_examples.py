"""Every example runs as its docstring says, without a GPU and in any folder, and prints what the docstring promises."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib import image
from scipy import sparse
from scipy.io import mmwrite

from spmark.report.figures.plot import Plot

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted((ROOT / "examples").glob("*.py"))
NOTEBOOK = ROOT / "examples/records.ipynb"
FOR_A_GPU = {"profile_plan", "search_spread"}
ANYWHERE = [script for script in SCRIPTS if script.stem not in FOR_A_GPU]
LONGEST = 55
OWN = f"{ROOT}/examples/mykernel/mykernel.py:MyKernel"


def commands(script: Path) -> list[list[str]]:
    """Give the arguments of each command in a script's docstring."""
    told = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or ""
    lines = re.findall(r"^    python (examples/.*)$", told, re.MULTILINE)
    return [shlex.split(line) for line in lines]


def code_cells() -> list[dict[str, Any]]:
    """Give the notebook's cells of code."""
    return [cell for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]


def code_of(cell: dict[str, Any]) -> str:
    """Give the code of a cell."""
    return "".join(cell["source"])


def run(arguments: list[object], folder: Path) -> str:
    """Run a script of the checkout, and give what it prints."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder that looks like a checkout to the commands, with a matrix in it."""
    for name in ("examples", "report"):
        (tmp_path / name).symlink_to(ROOT / name)
    mmwrite(tmp_path / "mine.mtx", sparse.random_array((30, 20), density=0.2, rng=np.random.default_rng(1)))
    return tmp_path


PRINTED = {
    "choose_formats": [r"(?s)graph +stile .*blocks +stile +100% blocks of 16 rows +0\.00"],
    "compare_records": [
        r"140 same, 3 improved, 1 regressed\n(.*: improved, 0\.9.*\n){3}.*/cora/J128/.*: regressed, 1\.102 \[.*\n"
        r"half of the cases would show a change of 5\.8%\n$"
    ],
    "multiply": [
        r"(?s)spmark spmm of 2000 x 2000 .*J = 64: .*candidates, .*all products agree with SciPy's\n$",
        r"(?s)spmark spmm of 30 x 20 with 120 non-zeros.*J = 16: ",
    ],
    "own_kernel": [r"(?s) us.*mykernel: [\d,.]+ us.*the CUDA kernel agrees with SciPy's product\n$"],
    "plot_bandwidth": [r"out/examples/bandwidth\.png out/examples/bandwidth\.csv\n"],
    "plot_speedups": [r"speed-ups over cusparse_best, \d+ bars in out/examples\n"],
    "replay_models": [r"(?s)recorded +lo_spmm +all +81 .*random +lo_spmm +all +81 "],
    "run_sweep": [r"(?s)4 cases measured, 0 known, in out/examples/masks/.*numba_cpu .*scipy_cpu +baseline +2 +0"],
    "save_plan": [r"compiled and saved in .* s: <spmark spmm of 2000 x 1500", r"loaded in .* s: <spmark spmm of 2000 "],
    "segment_scan": [r"(\d+ voxels: spread 0\.0\d+, [\d.]+ ms\n){2}$"],
    "train_layer": [r"step   0: loss \d\d\.\d+\n(step .*\n)+step  99: loss 0\.0"],
}
"""What each command of a docstring prints, in the order of the commands."""


@pytest.mark.parametrize(
    "script", [one for one in ANYWHERE if not one.stem.startswith("plot_")], ids=lambda path: path.stem
)
def test_a_script_prints_what_it_promises(script: Path, folder: Path) -> None:
    if script.stem in {"segment_scan", "train_layer"}:
        pytest.importorskip("torch", reason="PyTorch is not installed")
    for command, pattern in zip(commands(script), PRINTED[script.stem], strict=True):
        assert re.search(pattern, run([*command], folder))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_is_short_and_says_how_to_run_it(script: Path) -> None:
    assert all(command[0] == f"examples/{script.name}" for command in commands(script))
    assert commands(script)
    assert len(script.read_text().splitlines()) <= LONGEST or script.stem in FOR_A_GPU


@pytest.mark.parametrize("file", [*ANYWHERE, NOTEBOOK], ids=lambda path: path.name)
def test_an_example_uses_public_names_alone(file: Path) -> None:
    text = file.read_text() if file != NOTEBOOK else "\n".join(code_of(cell) for cell in code_cells())
    tree = ast.parse(text)
    used = {
        f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("spmark")
        for alias in node.names
    }
    used |= {f"spmark.{name}" for name in re.findall(r"(?<!from )\bspmark\.([a-z]\w*)\(", text)}
    public = re.findall(r"^::: (\S+)$", (ROOT / "docs/reference/python.md").read_text(), re.MULTILINE)
    assert used and used <= set(public)


@pytest.mark.parametrize("name", ["bandwidth", "speedups"])
def test_a_plot_has_its_numbers_beside_it(name: str, folder: Path) -> None:
    test_a_script_prints_what_it_promises(ROOT / f"examples/plot_{name}.py", folder)
    assert image.imread(folder / f"out/examples/{name}.png").std() > 0.02
    assert "gespmm" in set(pd.read_csv(folder / f"out/examples/{name}.csv")["label"])


@pytest.mark.parametrize(("name", "device"), [("numba_cpu", "cpu"), ("rowsplit", "host-simt"), (OWN, "host-simt")])
def test_a_plan_is_run_for_a_profiler(name: str, device: str, tmp_path: Path) -> None:
    script = ROOT / "examples/profile_plan.py"
    arguments = [script, name, "patterns/logsparse_64", "--width", "8", "--device", device, "--runs", "2"]
    assert run(arguments, tmp_path).startswith(f"{name} on patterns/logsparse_64: 2 runs of ")


def test_an_own_product_of_a_named_implementation(folder: Path) -> None:
    printed = run(["examples/multiply.py", "mine.mtx", "--width", "8", "--use", "numba_cpu"], folder)
    assert "J = 8: numba_cpu" in printed
    assert printed.endswith("all products agree with SciPy's\n")


def test_the_cells_of_the_notebook_give_what_their_text_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "examples")  # where Jupyter starts
    shown, names = [], {}
    for cell in code_cells():
        assert not cell["outputs"], "outputs are not committed"
        body = ast.parse(code_of(cell)).body
        last = body.pop()
        assert isinstance(last, ast.Expr), "the last line of a cell is shown"
        exec(compile(ast.Module(body, []), NOTEBOOK.name, "exec"), names)
        shown.append(eval(compile(ast.Expression(last.value), NOTEBOOK.name, "eval"), names))
    sample, derived, winners, times, costs, plot = shown
    assert len(sample) == 5 and {"median_us", "speedup"} <= set(derived)
    assert winners.to_numpy().sum() == 70, "problems that all ten labels solved"
    assert times.shape == (14, 10) and (times > 0).all(axis=None)
    assert costs.loc["sparsetir_extended", "choosing_s"] > costs.loc["liteform_extended", "choosing_s"] > 0
    assert isinstance(plot, Plot) and set(plot.data["label"]) >= {"liteform", "sparsetir"}
