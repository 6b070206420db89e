"""``asv continuous`` from end to end: two commits, their wheels, our benchmarks, and a tenth that one of them lost.

The commits are of a package that answers what `spmark.suite.measure.track` is asked with times drawn from a given
distribution: on a machine that others use, real ones differ by more than what is to be found.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from spmark.suite.benchmarks.tracked import PROTOCOL

pytest.importorskip("asv", reason="airspeed velocity is not installed (extra asv)")
pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[2]
PYPROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "spmark"
version = "0"

[tool.setuptools.packages.find]
where = ["src"]
"""
MEASURE = '''
import random

COMMIT, SLOWER = {commit}, {slower}
# Relative standard deviations of a median over runs and of samples and builds, on an H200 (DESIGN.md).
BETWEEN, WITHIN, BUILDS = 0.0085, 0.02, 0.02


def track(cases):
    """Answer as a CPU does that has two implementations, of which one searches."""
    return [answer(case) for case in cases]


def answer(case):
    name = case.get("implementation", "")
    if name not in ("scipy_cpu", "numba_cpu"):
        return {{"protocol": {protocol}, "status": "unsupported", "reason": "not here"}}
    key = [case["op"], name, case["matrix"], case["width"], case["dtype"]]
    rng = random.Random(f"{{COMMIT}} {{key}}")
    run = 20e-6 * (1.1 if key in SLOWER["kernel"] else 1) * rng.gauss(1, BETWEEN)
    search = 0.3 * (1.1 if key[:3] in SLOWER["search"] else 1) * rng.gauss(1, BETWEEN)
    builds = [search * rng.gauss(1, BUILDS) for _ in range(case["builds"])]
    return {{
        "protocol": {protocol}, "status": "ok", "reason": "",
        "samples_s": [run * rng.gauss(1, WITHIN) for _ in range(60)],
        "baseline_s": [20e-6 * rng.gauss(1, WITHIN) for _ in range(60)],
        "cpu_s": builds, "baseline_cpu_s": [0.1] * len(builds), "phases_s": {{"search": builds}},
        "stored": 1000, "device_bytes": 8000, "candidates": [],
    }}
'''
PLUGIN = """
from types import SimpleNamespace

from spmark.impls.core.machine import Load
from spmark.suite.asv import plugin

plugin.LoadMeter = lambda: SimpleNamespace(read=lambda seconds: Load(2, {free_cores}))
WheelEnvironment, setup = plugin.WheelEnvironment, plugin.setup
"""
KERNEL = ["spmm", "numba_cpu", "rmat_13", 128, "float32"]
SEARCH = ["sddmm", "numba_cpu", "logsparse_4096"]


@pytest.fixture
def continuous(tmp_path):
    """Give a function that runs the documented command over two commits; gives its code and the lines it flags."""
    root, home = tmp_path / "project", tmp_path / "home"
    (root / "src" / "spmark" / "suite").mkdir(parents=True)
    home.mkdir()
    for package in ("spmark", "spmark/suite"):
        (root / "src" / package / "__init__.py").touch()
    (root / "pyproject.toml").write_text(PYPROJECT)
    text = "\n".join(line for line in (ROOT / "asv.conf.json").read_text().splitlines() if "//" not in line)
    ours = json.loads(text) | {
        "benchmark_dir": str(ROOT / "suite" / "benchmarks"),
        "branches": ["main"],
        "plugins": [".with_load"],
    }
    (root / "asv.conf.json").write_text(json.dumps(ours))
    machine = {"machine": "quiet", "gpu": "", "cuda": ""}
    (home / ".asv-machine.json").write_text(json.dumps({"quiet": machine, "version": 1}))
    git = ["git", "-C", str(root), "-c", "user.name=t", "-c", "user.email=t@example.invalid"]
    subprocess.run(["git", "init", "--quiet", "--initial-branch=main", str(root)], check=True)

    def continuous(free_cores: float, **slower: list[list[object]]) -> tuple[int, list[str]]:
        (root / "with_load.py").write_text(PLUGIN.format(free_cores=free_cores))
        for commit, planted in enumerate(({}, slower)):
            given = {"kernel": [], "search": []} | planted
            path = root / "src" / "spmark" / "suite" / "measure.py"
            path.write_text(MEASURE.format(commit=commit, slower=given, protocol=PROTOCOL))
            subprocess.run([*git, "add", "pyproject.toml", "src"], check=True)
            subprocess.run([*git, "commit", "--quiet", "--message", f"core: step {commit}"], check=True)
        options = ["--machine", "quiet", "-b", "Live(Spmm|Plans)", "--factor", "1.05"]
        on_cpu = {**os.environ, "HOME": str(home), "CUDA_VISIBLE_DEVICES": ""}
        done = subprocess.run(
            [sys.executable, "-m", "asv", "continuous", *options, "HEAD~1", "HEAD"],
            cwd=root, env=on_cpu, capture_output=True, text=True, timeout=290,
        )  # fmt: skip
        lines = re.findall(r"^\| *[-+!x] *\|.*$", done.stdout, flags=re.MULTILINE)
        assert "Discovering benchmarks" in done.stdout, done.stdout + done.stderr
        assert "failed" not in done.stdout, done.stdout
        return done.returncode, lines

    return continuous


def test_a_tenth_in_a_kernel_and_in_a_search_fails_and_nothing_else_is_flagged(continuous):
    code, lines = continuous(2.0, kernel=[KERNEL], search=[SEARCH])
    assert code == 1
    assert all(line.startswith("| +") for line in lines), lines
    flagged = {line.rsplit("tracked.", 1)[1].rstrip(" |") for line in lines}
    kernel, search = "'numba_cpu', 'rmat/rmat_13', 128, 'float32'", "'sddmm', 'numba_cpu', 'patterns/logsparse_4096'"
    assert flagged == {
        f"LiveSpmm.track_ratio({kernel})",
        f"LivePlans.track_build_cpu_ratio({search})",
    }


def test_a_busy_host_flags_nothing_that_it_times(continuous):
    assert continuous(0.5, kernel=[KERNEL], search=[SEARCH]) == (0, [])
