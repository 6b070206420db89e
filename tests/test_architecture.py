"""The rules that hold the tree together: who imports whom, where CUDA and PTX may stand, what every folder has.

Imports are read from the syntax tree, wherever they stand in a file; a failure names the file, the line and the rule.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from spmark.datasets.sources.table import SOURCES
from spmark.impls.table import COMPOSITIONS, CONTRACTS, IMPLEMENTATIONS, PLATFORMS

ROOT = Path(__file__).parents[1]
PACKAGES = ("impls", "datasets", "suite", "report")
LAYERS = ("core", "formats", "runtime", "kernels", "tuning", "study", "operator")
IMPLEMENTATION_FOLDERS = sorted(
    path.name for path in (ROOT / "impls").iterdir() if path.is_dir() and path.name not in (*LAYERS, "__pycache__")
)

CORE, TABLE, OUTSIDE = "spmark.impls.core", "spmark.impls.table", "spmark.impls.outside"
# What a part may import of spmark, itself aside. An implementation sees the layers, and no other implementation.
KERNELS_MAY = (CORE, "spmark.impls.formats", "spmark.impls.runtime")
TUNING_MAY = (*KERNELS_MAY, "spmark.impls.kernels")
IMPL_MAY = (*TUNING_MAY, "spmark.impls.tuning", "spmark.impls.study")
# What a folder of the report may import of the others.
LOAD = ("records", "asvfile", "candidates", "transfers", "asset", "parallel", "searching", "texts")
REPORT = {
    **{one: LOAD for one in LOAD},
    "analysis": LOAD,
    "tables": (*LOAD, "analysis"),
    "figures": ("analysis", "tables"),
    "claims": (*LOAD, "analysis", "tables"),
    "site": (*LOAD, "analysis", "tables", "figures", "claims"),
}
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    CORE: (),
    TABLE: (CORE, OUTSIDE),
    OUTSIDE: (CORE,),
    "spmark.impls.formats": (CORE,),
    "spmark.impls.runtime": (CORE,),
    "spmark.impls.kernels": KERNELS_MAY,
    "spmark.impls.tuning": TUNING_MAY,
    "spmark.impls.study": (CORE,),
    **{f"spmark.impls.{name}": IMPL_MAY for name in IMPLEMENTATION_FOLDERS},
    "spmark.impls.auto": (*IMPL_MAY, TABLE),
    "spmark.impls.dash": (*IMPL_MAY, TABLE),
    "spmark.impls.operator": (*TUNING_MAY, "spmark.impls.tuning", TABLE),
    "spmark.torch": (CORE, "spmark.impls.operator"),
    "spmark.__main__": ("spmark.suite",),
    "spmark.datasets": (CORE,),
    "spmark.report": (),
    **{
        f"spmark.report.{name}": (CORE, *(f"spmark.report.{below}" for below in belows))
        for name, belows in REPORT.items()
    },
    "spmark.suite": ("spmark.impls", "spmark.datasets", "spmark.report"),
}
GPU_MODULES = ("cupy", "cupyx")
LAZY_MODULES = ("torch", "dgl")
OF_TORCH = ("spmark.torch", "spmark.impls.operator.pytorch", "spmark.impls.operator.torchops")
"""Modules that a person imports who has PyTorch; no other module imports them."""
CODE = (".py", ".cu", ".cuh", ".h", ".hpp", ".cpp")
ASSEMBLY = re.compile(r"\b(asm|__asm__)\b\s*(volatile\b|__volatile__\b)?\s*\(")
INTRINSIC = re.compile(
    r"__(ldg|ldcs|ldcg|stcs|stcg|shfl\w*|ballot\w*|any_sync|all_sync|match_\w+|reduce_\w+_sync|cvta\w*)\s*\("
)
# Letters in brackets, so that this file does not say what it forbids.
FORBIDDEN = {
    "a path of one machine": re.compile(r"(?<![A-Za-z0-9_.])/(?:wor[k]|far[m]|roo[t])/"),
    "a file outside the project": re.compile(
        r"\.\./share[d]|seed-system[s]|h200-peer[s]|anchors fil[e]|specs/(?:harnes[s]|styl[e])"
    ),
    "spmark as a package of a registry, which has none (how_to_install)": re.compile(r"\bspmark\[\w+\]"),
    "an issue's number": re.compile(r"\b[Ii]ssue #?[0-9]|\bPR #?[0-9]"),
}


@dataclass(frozen=True)
class Import:
    """One imported module, as it stands in a file."""

    path: Path
    line: int
    module: str
    relative: bool
    at_import: bool
    """Runs when the file is imported: not inside a function."""

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line} imports {self.module}"

    def within(self, packages: tuple[str, ...]) -> bool:
        return any(self.module == name or self.module.startswith(name + ".") for name in packages)


def sources(*suffixes: str, folders: tuple[str, ...] = ("spmark", *PACKAGES)) -> list[Path]:
    found = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    return sorted(p for p in found if p.suffix in suffixes and p.is_file() and "__pycache__" not in p.parts)


def module_of(path: Path) -> str:
    """Give the name that a file is imported by."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts if parts[0] == "spmark" else ("spmark", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def part_of(path: Path) -> str:
    """Give the entry of `MAY_IMPORT` that a file belongs to: the longest that its module lies in."""
    module = module_of(path)
    return max((part for part in MAY_IMPORT if module == part or module.startswith(part + ".")), key=len, default="")


@cache
def imports() -> list[Import]:
    return [found for path in sources(".py") for found in _imports_of(path)]


def _imports_of(path: Path) -> Iterator[Import]:
    def visit(node: ast.AST, at_import: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield Import(path, child.lineno, alias.name, False, at_import)
            elif isinstance(child, ast.ImportFrom):
                # `from spmark.impls import table` imports the module spmark.impls.table.
                for alias in child.names:
                    module = ".".join(filter(None, (child.module, alias.name)))
                    yield Import(path, child.lineno, module, child.level > 0, at_import)
            else:
                inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
                yield from visit(child, at_import and not inside)

    yield from visit(ast.parse(path.read_text(encoding="utf-8"), str(path)), True)


def agreed(broken: list[str], rule: str) -> None:
    """Fail with the rule and every place that breaks it."""
    assert not broken, f"{rule}:\n  " + "\n  ".join(broken)


def test_a_part_imports_only_what_it_may() -> None:
    broken = []
    for found in imports():
        part = part_of(found.path)
        if part and found.within(("spmark",)) and not found.within((part, *MAY_IMPORT[part], "spmark.__version__")):
            broken.append(f"{found}; {part} imports {', '.join(MAY_IMPORT[part]) or 'itself alone'}")
    agreed(broken, "a part imports only what it may (MAY_IMPORT in this file)")


def test_every_file_belongs_to_a_part() -> None:
    outside = ("spmark", "spmark.impls")
    lost = [module_of(p) for p in sources(".py") if not part_of(p) and module_of(p) not in outside]
    agreed(lost, "every module lies in a part that has import rules (MAY_IMPORT in this file)")


def test_imports_are_absolute() -> None:
    agreed([str(i) for i in imports() if i.relative], "imports are absolute")


def test_cupy_is_imported_only_by_what_runs_on_a_gpu() -> None:
    def may(path: Path) -> bool:
        inside = path.relative_to(ROOT).as_posix()
        return (
            inside.startswith(("impls/runtime/", "impls/kernels/"))
            or path.name in ("plan.py", "gpu.py")
            or inside == "suite/measure.py"
        )

    broken = [str(i) for i in imports() if i.within(GPU_MODULES) and not may(i.path)]
    agreed(broken, "only runtime, kernels, plan.py, gpu.py and suite/measure.py import CuPy")


def test_torch_and_dgl_are_imported_where_they_are_used() -> None:
    others = [i for i in imports() if module_of(i.path) not in OF_TORCH]
    broken = [str(i) for i in others if i.within((*LAZY_MODULES, *OF_TORCH)) and i.at_import]
    agreed(broken, "torch and dgl are imported inside functions, or by spmark.torch")


def test_gpu_modules_are_imported_where_they_are_used() -> None:
    broken = [
        str(i)
        for i in imports()
        if i.at_import and i.path.name != "gpu.py" and re.search(r"^spmark\..*\.gpu(\.|$)", i.module)
    ]
    agreed(broken, "files called gpu.py are imported inside functions, or by each other")


@pytest.mark.full
def test_importing_the_host_side_leaves_gpu_libraries_out() -> None:
    parts = (CORE, "spmark.impls.formats", "spmark.datasets", "spmark.report", "spmark.suite.benchmarks")
    modules = [
        module_of(path)
        for path in sources(".py")
        if path.name != "gpu.py" and module_of(path).startswith((TABLE, *parts))
    ]
    assert len(modules) > len(parts)
    program = (
        "import importlib, sys\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        f"print(*sorted(set(sys.modules) & {set(GPU_MODULES + LAZY_MODULES)!r}))\n"
    )
    child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert child.returncode == 0, child.stderr
    assert not child.stdout.strip(), f"importing {', '.join(parts)} brings in: {child.stdout}"


def test_only_the_command_line_prints() -> None:
    broken = []
    for path in sources(".py"):
        if path.relative_to(ROOT).as_posix().startswith("suite/cli"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
                broken.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    agreed(broken, "nothing prints but the command line: use logging")


def test_assembly_and_intrinsics_stand_in_the_runtime() -> None:
    broken = []
    for path in sources(".py", ".cu", ".cuh", ".h", ".hpp", ".cpp"):
        if path.relative_to(ROOT).as_posix().startswith(("impls/runtime/include/", "impls/runtime/host/")):
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if ASSEMBLY.search(line) or INTRINSIC.search(line):
                broken.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    agreed(broken, "PTX and warp intrinsics stand in impls/runtime/include, each with a host twin")


@pytest.mark.parametrize("name", IMPLEMENTATION_FOLDERS)
def test_an_implementation_is_described_and_listed(name: str) -> None:
    folder = ROOT / "impls" / name
    assert (folder / "__init__.py").is_file(), f"impls/{name} is a package: it has an __init__.py"
    assert (folder / "README.md").is_file(), (
        f"impls/{name}/README.md says what the implementation is and how it deviates"
    )
    if not (folder / "plan.py").is_file():
        return  # a search that has no kernels yet: nothing in it can be asked to run
    listed = [entry for entry in IMPLEMENTATIONS.values() if entry.startswith(f"spmark.impls.{name}.")]
    assert listed, f"impls/table.py has a line for impls/{name}"


@pytest.mark.parametrize(
    "entry",
    [
        *IMPLEMENTATIONS.values(),
        *SOURCES.values(),
        *PLATFORMS.values(),
        *COMPOSITIONS.values(),
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
