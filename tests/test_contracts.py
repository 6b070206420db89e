"""What implementations offer beside plans: found by name alone, and apart from what builds a plan."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from dash_fakes import keep_model

from spmark.datasets.published import TABLES
from spmark.impls.core.errors import SweepError
from spmark.impls.core.problem import Op
from spmark.impls.table import IMPLEMENTATIONS
from spmark.studies.table import CONTRACTS, find_contract

ROOT = Path(__file__).parents[1]
STUDIES = sorted(path.parent.name for path in (ROOT / "studies").glob("*/__init__.py"))
ORDINARY = {"auto"}
"""Names that are also words of options: a device is ``auto`` where spmark finds one."""
NAMES = re.compile(
    rf"(?<![a-z0-9])({'|'.join(sorted(IMPLEMENTATIONS.keys() - ORDINARY, key=len, reverse=True))})(?![a-z0-9])", re.I
)
# A file of these may say a name, for the reason beside it.
MAY_NAME = {
    "suite/benchmarks/tracked.py": "asv's list of what it follows is only appended to",
    "suite/asv/track.py": "asv's names of searches for GPUs that are absent, which records hold",
    "report/site/run_metadata.py": "older records of systems that could choose its kernel",
    "suite/asv/series.py": "a source of matrices of the same name",
    "suite/plan/refusals.py": "Python packages of the same name, and the extras that bring them",
    "suite/environment.py": "Python packages of the same name, whose versions are recorded",
    "suite/cli/sweeps.py": "papers of the same name",
}


def said(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Give the line and text of every identifier, import and string of a module, docstrings aside."""
    prose = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node.lineno, node.value
        for field in ("id", "attr", "name", "asname", "arg", "module"):
            if isinstance(text := getattr(node, field, None), str):
                yield getattr(node, "lineno", 0), text


def test_suite_and_report_name_no_implementation() -> None:
    named: dict[str, list[str]] = {}
    for path in sorted(path for folder in ("suite", "report") for path in (ROOT / folder).rglob("*.py")):
        for line, text in said(ast.parse(path.read_text(encoding="utf-8"))):
            if NAMES.search(text):
                named.setdefault(path.relative_to(ROOT).as_posix(), []).append(f"{line}: {text}")
    broken = [f"{path}:{text}" for path, texts in named.items() if path not in MAY_NAME for text in texts]
    assert not broken, "implementations are found through the table by name:\n  " + "\n  ".join(broken)
    assert not MAY_NAME.keys() - named.keys(), "these name no implementation any more: take them out of MAY_NAME"


@pytest.mark.parametrize(("contract", "name"), [(contract, name) for contract, by in CONTRACTS.items() for name in by])
def test_a_contract_is_found_by_name(contract: str, name: str) -> None:
    assert name in IMPLEMENTATIONS or not (ROOT / "impls" / name / "plan.py").exists()
    offered = find_contract(contract, name)
    assert type(offered).__module__.startswith(f"spmark.studies.{name}.")
    tables = [*getattr(offered, "tables", ()), *filter(None, [getattr(offered, "published", "")])]
    assert set(tables) <= TABLES.keys()


def test_who_offers_nothing_is_refused_with_those_who_do() -> None:
    with pytest.raises(SweepError, match=r"a method with labels out of liteform, lo_spmm, found 'lo_spm' \(did you"):
        find_contract("labels", "lo_spm")


@pytest.mark.full
@pytest.mark.parametrize("name", STUDIES)
def test_a_plan_is_built_without_its_study(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name in CONTRACTS["transfer"]:
        pytest.importorskip("torch", reason="PyTorch is not installed (extra dash)")
        monkeypatch.setenv("SPMARK_CACHE", str(tmp_path))
        for op in Op:
            keep_model("cuda", op)
    program = f"""
import sys
import numpy as np
from spmark.impls.core.problem import Csr, DType, Op, Problem
from spmark.impls.runtime.device import find
from spmark.impls.table import create

device, made = find("host-simt"), create({name!r})
matrix = Csr.checked((3, 4), np.array([0, 2, 2, 3], np.int32), np.array([0, 3, 1], np.int32), np.ones(3, np.float32))
for op in sorted(made.ops):
    problem = Problem(op, matrix, 8, DType.FLOAT32)
    assert made.unsupported(problem, device) is None
    made.build(problem, device)
print(*[module for module in sys.modules if module.startswith("spmark.studies")])
"""
    child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=280)
    assert child.returncode == 0, child.stderr
    assert not child.stdout.strip(), f"building a plan of {name} imports {child.stdout}"
