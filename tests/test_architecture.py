"""The rules of the tree that linters cannot hold: what an import brings in, where PTX may stand, what folders have.

In pyproject.toml, import-linter's contracts say who imports whom, and ruff's settings which imports stand in functions.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from spmark.datasets.sources.table import SOURCES
from spmark.impls.table import IMPLEMENTATIONS, OTHERS, PLATFORMS
from spmark.studies.table import CONTRACTS

ROOT = Path(__file__).parents[1]
PACKAGES = ("impls", "records", "studies", "datasets", "suite", "report")
SHARED = ("core", "formats", "runtime", "kernels", "tuning", "operator")
IMPLEMENTATION_FOLDERS = sorted(
    path.name for path in (ROOT / "impls").iterdir() if path.is_dir() and path.name not in (*SHARED, "__pycache__")
)
CODE = (".py", ".cu", ".cuh", ".h", ".hpp", ".cpp")
ASSEMBLY = re.compile(r"\b(asm|__asm__)\b\s*(volatile\b|__volatile__\b)?\s*\(")
INTRINSIC = re.compile(r"__(ldg|ldcs|ldcg|stcs|stcg|cvta\w*)\s*\(")
# Letters in brackets, so that this file does not say what it forbids.
FORBIDDEN = {
    "a path of one machine": re.compile(r"(?<![A-Za-z0-9_.])/(?:wor[k]|far[m]|roo[t])/"),
    "a file outside the project": re.compile(
        r"\.\./share[d]|seed-system[s]|h200-peer[s]|anchors fil[e]|specs/(?:harnes[s]|styl[e])"
    ),
    "spmark as a package of a registry, which has none (how_to_install)": re.compile(r"\bspmark\[\w+\]"),
    "an issue's number": re.compile(r"\b[Ii]ssue #?[0-9]|\bPR #?[0-9]"),
}


def sources(*suffixes: str, folders: tuple[str, ...] = ("spmark", *PACKAGES)) -> list[Path]:
    found = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    return sorted(p for p in found if p.suffix in suffixes and p.is_file() and "__pycache__" not in p.parts)


def agreed(broken: list[str], rule: str) -> None:
    """Fail with the rule and every place that breaks it."""
    assert not broken, f"{rule}:\n  " + "\n  ".join(broken)


def test_the_host_side_imports_no_gpu_library() -> None:
    """Planning, reading records and help must work, and be quick, where CuPy, PyTorch and DGL are missing."""
    paths = [path.relative_to(ROOT).with_suffix("") for path in sources(".py", folders=PACKAGES)]
    operators = ("borrowed", "convolution", "launches", "native", "pytorch", "relations", "torchops")
    for_gpus = ("runtime", "kernels", "models", "gpu", *operators)
    names = [
        ".".join(("spmark", *path.parts)).removesuffix(".__init__") for path in paths if not {*path.parts} & {*for_gpus}
    ]
    assert {"spmark.suite.measure", "spmark.report.records", "spmark.impls.table"} <= {*names}
    program = (
        "import importlib, sys\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        "print(*(name for name in sys.modules if name in ('cupy', 'cupyx', 'torch', 'dgl') or name.endswith('.gpu')))\n"
    )
    child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert child.returncode == 0, child.stderr
    assert not child.stdout.strip(), f"modules that no function has asked for were imported: {child.stdout}"


def test_assembly_and_uncached_loads_stand_in_the_runtime() -> None:
    broken = []
    for path in sources(".py", ".cu", ".cuh", ".h", ".hpp", ".cpp"):
        if path.relative_to(ROOT).as_posix().startswith(("impls/runtime/include/", "impls/runtime/host/")):
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if ASSEMBLY.search(line) or INTRINSIC.search(line):
                broken.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    agreed(broken, "PTX and loads past a cache stand in impls/runtime/include, each with a host twin")


@pytest.mark.parametrize("name", IMPLEMENTATION_FOLDERS)
def test_an_implementation_is_described_and_listed(name: str) -> None:
    folder = ROOT / "impls" / name
    assert (folder / "__init__.py").is_file(), f"impls/{name} is a package: it has an __init__.py"
    assert (folder / "README.md").is_file(), (
        f"impls/{name}/README.md says what the implementation is and how it deviates"
    )
    if not (folder / "plan.py").is_file():
        return  # a search that has no kernels yet: nothing in it can be asked to run
    entries = (*IMPLEMENTATIONS.values(), *OTHERS.values())
    listed = [entry for entry in entries if entry.startswith(f"spmark.impls.{name}.")]
    assert listed, f"impls/table.py has a line for impls/{name}"


@pytest.mark.parametrize(
    "entry",
    [
        *IMPLEMENTATIONS.values(),
        *OTHERS.values(),
        *SOURCES.values(),
        *PLATFORMS.values(),
        *(one for by in CONTRACTS.values() for one in by.values()),
    ],
)
def test_a_line_of_a_table_names_a_class(entry: str) -> None:
    module, _, label = entry.partition(":")
    path = ROOT.joinpath(*module.split(".")[1:]).with_suffix(".py")
    assert path.is_file(), f"a table says {entry}"
    tree = ast.parse(path.read_text(encoding="utf-8"))
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    assert label in classes, f"a table says {entry}, and {path.relative_to(ROOT)} has {', '.join(classes)}"


def test_impls_itself_is_empty() -> None:
    assert not (ROOT / "impls" / "__init__.py").read_text(), (
        "impls/__init__.py is empty: importing one part costs no other"
    )


def test_the_project_speaks_of_itself_only() -> None:
    texts = (*CODE, ".md", ".toml", ".yaml", ".yml", ".json", ".html", ".css", ".cfg", ".ini", ".cff", "")
    files = sources(*texts, folders=("spmark", *PACKAGES, "tests", ".github"))
    assert ROOT / ".github" / "workflows" / "ci.yml" in files
    files += [path for path in ROOT.iterdir() if path.is_file() and (path.suffix in texts or path.name.startswith("."))]
    # In a worktree, git's own file names the path of the repository.
    files = [path for path in files if path.name != ".git"]
    broken = []
    for path in files:
        # .ci/run alone knows where a mirror lies beside a checkout.
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            for what, pattern in FORBIDDEN.items():
                if pattern.search(line):
                    broken.append(f"{path.relative_to(ROOT)}:{number} names {what}: {line.strip()[:100]}")
    agreed(broken, "the project stands alone")
