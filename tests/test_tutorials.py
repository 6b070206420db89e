"""The tutorials, command after command, as a person without a GPU follows them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from numpy.random import default_rng
from scipy.io import mmwrite
from scipy.sparse import random_array

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[1]
TUTORIALS = sorted((ROOT / "docs/tutorial").glob("*.md"))
BLOCK = re.compile(r"^```(sh|yaml|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"`([\w-]+\.yaml)`")
ELSEWHERE = ("make ", "ncu ")
"""What `.ci/run` runs, and what needs a GPU."""
MAY_DIFFER = "spmark compare "
"""Exits with 1 where times differ by more than noise: on a busy machine two runs of one code may do so."""
SWEEP = """
schema: 1
name: gated
ops: [spmm]
matrices: [{source: patterns, name: logsparse_256}]
widths: [8, 16, 32, 64]
implementations: [scipy_cpu, numba_cpu]
baseline: scipy_cpu
"""
"""What a page means by a sweep of the reader's own."""
FEWER = {"1 2 3 4 5": "1 2", "--budget 30s": "--budget 5s"}
"""What repeats a command that runs here, or only waits longer: two runs of one code make a spread, too."""


def steps(page: Path) -> Iterator[tuple[str, str]]:
    """Give what a reader does, in order: ``run`` a command, run ``python``, or write a file of this name."""
    text = page.read_text()
    for more, fewer in FEWER.items():
        text = text.replace(more, fewer)
    for found in BLOCK.finditer(text):
        language, block = found.groups()
        if language == "sh":
            lines = block.replace("\\\n", " ").splitlines()
            yield from (("run", line) for line in lines if line.strip() and not line.startswith(("#", *ELSEWHERE)))
        elif language == "yaml" and block.startswith("schema:"):
            yield FILE.findall(text[: found.start()])[-1], block
        elif re.search(r"^(import|from) ", block, re.MULTILINE):
            yield "python", block


@pytest.fixture
def checkout(tmp_path: Path, mirror: Path) -> Path:
    """Give a folder that looks like a checkout, with a matrix and a sweep of the reader's own."""
    folder = tmp_path / "spmark"
    folder.mkdir()
    for name in ("examples", "report", "scripts"):
        (folder / name).symlink_to(ROOT / name)
    (folder / ".venv").mkdir()
    (folder / ".venv/bin").symlink_to(Path(sys.executable).parent)
    mmwrite(folder / "mine.mtx", random_array((300, 200), density=0.05, rng=default_rng(1)))
    (folder / "gate.yaml").write_text(SWEEP)
    return folder


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_every_command_of_a_tutorial_runs(page: Path, checkout: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "HOME": str(checkout)}
    ran = 0
    for what, text in steps(page):
        if what not in ("run", "python"):
            (checkout / what).write_text(text)
            continue
        command = ["bash", "-ec", text] if what == "run" else [sys.executable, "-c", text]
        done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True)
        expected = (0, 1) if MAY_DIFFER in text else (0,)
        assert done.returncode in expected, f"{text}\n{done.stdout}\n{done.stderr}"
        ran += 1
    assert ran > 2, "the page's commands are found"
