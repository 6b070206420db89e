"""What an implementation's version covers: in small trees, in a copy of this one, and held against what runs load."""

from __future__ import annotations

import ast
import logging
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from spmark.impls.core.digest import SOURCES, Sources
from spmark.impls.core.enums import DeviceKind, DType
from spmark.impls.runtime.device import find
from spmark.impls.runtime.toolchain import included_headers
from spmark.impls.table import IMPLEMENTATIONS, module_of, reach_of
from spmark.suite.conformance import dense_operands, problems

ROOT = Path(__file__).parents[2]
IMPLS = ROOT / "impls"
MINE = "spmark.impls.mine.plan"
CODE = {
    "__init__.py": "",
    "mine/__init__.py": "",
    "mine/plan.py": "from spmark.impls.core.files import (\n    Stamp,  # one\n    stamp as of,\n)\n"
    "from spmark.impls.mine import gpu\nMODELS = {'a': 'spmark.impls.other.plan:Other'}\n"
    "if TYPE_CHECKING:\n    from spmark.impls.core import record\n"
    "def f():\n    import spmark.impls.mine.late as late\n",
    "mine/gpu.py": "SOURCE = Path(__file__).parent / 'kernels' / 'mine.cu'\n",
    "mine/late.py": "RUN = ('-m', 'spmark.impls.mine.child')\n",
    "mine/child.py": "",
    "mine/stores.py": "",
    "mine/model.json": "{}",
    "mine/tables/cards.yaml": "{}",
    "mine/kernels/mine.cu": '#include "step.cuh"\n#include <cuda_fp16.h>\n',
    "mine/kernels/other.cu": "",
    "mine/kernels/step.cuh": "#include <spmark/vec.cuh>\n",
    "mine/kernels/sub/vec.cuh": "",
    "runtime/__init__.py": "",
    "runtime/include/spmark/vec.cuh": "",
    "runtime/include/spmark/mma.cuh": "",
    "core/__init__.py": "",
    "core/files.py": "class Stamp: ...\n",
    "core/record.py": "",
    "other/__init__.py": "",
    "other/plan.py": "",
    "other/model.json": "{}",
    "table.py": "NAMES = {'mine': 'spmark.impls.mine.plan:Mine', 'other': 'spmark.impls.other.plan:Other'}\n",
}
USED = {
    "__init__.py", "mine/__init__.py", "mine/plan.py", "mine/gpu.py", "mine/late.py", "mine/child.py",
    "mine/model.json", "mine/tables/cards.yaml", "mine/kernels/mine.cu", "mine/kernels/step.cuh",
    "runtime/include/spmark/vec.cuh", "core/__init__.py", "core/files.py",
}  # fmt: skip


def write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in CODE.items():
        write(tmp_path / "impls", name, text)
    return tmp_path / "impls"


def made_of(tree: Path, module: str = MINE) -> set[str]:
    return {Path(path).relative_to(tree).as_posix() for path in Sources(tree).closure(module)}


def version(tree: Path) -> str:
    """Ask as a new process would."""
    return Sources(tree).version(MINE)


def edited(tree: Path, name: str, text: str) -> str:
    write(tree, name, text)
    return version(tree)


def test_an_implementation_is_made_of_what_its_code_names(tree: Path) -> None:
    assert made_of(tree) == USED


@pytest.mark.parametrize("name", CODE)
def test_the_version_changes_with_these_files_alone(tree: Path, name: str) -> None:
    before = version(tree)
    assert len(before) == 16
    assert int(before, 16) >= 0
    assert (edited(tree, name, f"{CODE[name]}changed\n") != before) == (name in USED)
    assert edited(tree, name, CODE[name]) == before


@pytest.mark.parametrize(
    ("code", "added"),
    [
        ("def f(name):\n    return Path(f'{name}.cu')\n", {"mine/kernels/other.cu", "mine/kernels/sub/vec.cuh"}),
        ("ENDS = ('.cu', '.cuh')\n", {"mine/kernels/other.cu", "mine/kernels/sub/vec.cuh"}),
        ("def f(name):\n    import_module(f'spmark.impls.core.{name}')\n", {"core/record.py"}),
        ("HEAD = '#include <spmark/mma.cuh>\\n'\n", {"runtime/include/spmark/mma.cuh"}),
        ("from spmark.impls.table import create\n",
         {"table.py", "other/__init__.py", "other/plan.py", "other/model.json"}),
        ("'''Writes other.cu, as spmark.impls.other does.'''\n", set()),
    ],
)  # fmt: skip
def test_a_name_that_is_known_late_stands_for_all_that_it_may_be(tree: Path, code: str, added: set[str]) -> None:
    write(tree, "mine/late.py", CODE["mine/late.py"] + code)
    assert made_of(tree) == USED | added


def test_a_package_stands_for_all_its_modules(tree: Path) -> None:
    assert made_of(tree, "spmark.impls.mine") == USED | {"mine/stores.py"}
    with pytest.raises(ValueError, match=r"expected a module of spmark.impls, found 'spmark.impls.none'"):
        made_of(tree, "spmark.impls.none")


@pytest.mark.parametrize(
    "name",
    ["mine/README.md", "mine/__pycache__/plan.cpython-311.pyc", "mine/.plan.py.swp", "mine/models/net.safetensors"],
)
def test_notes_and_leavings_do_not_count(tree: Path, name: str) -> None:
    before = version(tree)
    assert edited(tree, name, "changed") == before


def test_version_leaves_prose_out_and_sees_code(tree: Path) -> None:
    write(tree, "mine/late.py", 'def f():\n    """Say."""\n    return "# one"  # why\n')
    write(tree, "mine/kernels/mine.cu", "// why\n__global__ void f() { g(); }\n")
    before = version(tree)
    assert (
        edited(tree, "mine/late.py", 'def f():\n\n    """Other words."""\n    # more\n    return "# one"\n') == before
    )
    assert edited(tree, "mine/kernels/mine.cu", "__global__ void f() {\n  g();  /* because */\n}\n") == before
    assert edited(tree, "mine/kernels/mine.cu", "__global__ void f() { h(); }\n") != before
    write(tree, "mine/kernels/mine.cu", "__global__ void f() { g(); }\n")
    assert edited(tree, "mine/late.py", 'def f():\n    return "# two"\n') != before
    write(tree, "mine/late.py", 'def f():\n    return "# one"\n')
    assert version(tree) == before
    assert edited(tree, "mine/model.json", "{ }") != before  # data count by their bytes


@pytest.mark.parametrize("undone", [False, True])
@pytest.mark.parametrize("name", ["mine/late.py", "mine/kernels/step.cuh"])
def test_code_that_changed_under_way_has_no_version_of_whole_code(
    tree: Path, name: str, undone: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """What was loaded may be the old code or the new, also where the edit was taken back in the meantime."""
    sources = Sources(tree)
    before, other = sources.version(MINE), sources.version("spmark.impls.other.plan")
    with caplog.at_level(logging.WARNING):
        changed = edited(tree, name, "changed")
        if undone:
            write(tree, name, CODE[name])
        mixed = sources.version(MINE)
    assert mixed not in {before, changed}
    assert "has changed since this process began" in caplog.text
    assert sources.version("spmark.impls.other.plan") == other
    assert (version(tree) == before) == undone


def test_a_file_that_goes_under_way_is_a_change(tree: Path) -> None:
    sources = Sources(tree)
    (tree / "mine/late.py").unlink()
    assert sources.version(MINE) != version(tree)


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shutil.copytree(
        IMPLS, tmp_path_factory.mktemp("copy") / "impls", ignore=shutil.ignore_patterns("__pycache__")
    )


def versions(folder: Path, names: tuple[str, ...]) -> list[str]:
    sources = Sources(folder)
    return [sources.version(module_of(name)) for name in names]


NAMES = ("cusparse", "sparsetir", "lo_spmm", "scipy_cpu")


@pytest.mark.parametrize(
    ("name", "concerned"),
    [
        ("core/problem.py", NAMES),
        ("core/plainyaml.py", ()),
        ("cusparse/gpu.py", ("cusparse",)),  # imported inside a function
        ("runtime/compile.py", NAMES[:3]),  # options of the compiler
        ("runtime/include/spmark/half.cuh", NAMES[:3]),
        ("kernels/sddmm.cu", ("sparsetir",)),
        ("kernels/row_target.cuh", ("sparsetir",)),  # two levels below ell_buckets.cu
        ("lo_spmm/models/h200.json", ("lo_spmm",)),
    ],
)
def test_an_edit_concerns_the_implementations_that_are_made_of_the_file(
    copied: Path, name: str, concerned: tuple[str, ...]
) -> None:
    before, content = versions(copied, NAMES), (copied / name).read_text()
    assert before == versions(IMPLS, NAMES), "a checkout and an installed copy agree"
    (copied / name).write_text(f"{content}\nint changed = 1\n")
    after = versions(copied, NAMES)
    (copied / name).write_text(content)
    assert tuple(n for n, old, new in zip(NAMES, before, after, strict=True) if old != new) == concerned


@cache
def closure(name: str) -> frozenset[Path]:
    return frozenset(Path(path).resolve() for path in SOURCES.closure(module_of(name)))


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_the_closure_has_the_class_and_every_source_of_its_kernels(name: str) -> None:
    module, _, label = IMPLEMENTATIONS[name].partition(":")
    kernels = [template.source for template in getattr(getattr(import_module(module), label), "kernels", ())]
    headers = {header for kernel in kernels for header in included_headers(kernel)[0]}
    own = IMPLS.joinpath(*module.split(".")[2:]).with_suffix(".py")
    assert {path.resolve() for path in (own, *kernels, *headers)} <= closure(name)


def test_who_imports_the_table_is_made_of_all_implementations() -> None:
    assert all(closure(name) <= closure("dash") for name in IMPLEMENTATIONS)


WITHOUT_GPU = [name for name in IMPLEMENTATIONS if reach_of(name).unmet([DeviceKind.CPU, DeviceKind.HOST_SIMT]) == ""]
BUILD_AND_RUN = """
import pickle, sys
from importlib import import_module
module, label, cases = pickle.loads(sys.stdin.buffer.read())
how = getattr(import_module(module), label)()
for problem, device, operands, out in cases:
    if how.unsupported(problem, device) is None:
        how.build(problem, device).run(operands, out)
print(*(one.__file__ for name, one in sys.modules.items() if name.startswith("spmark.impls")), sep="\\n")
"""


@pytest.mark.one_in(6)
@pytest.mark.parametrize("name", WITHOUT_GPU)
def test_what_a_build_and_a_run_load_is_in_the_closure(name: str) -> None:
    module, _, label = IMPLEMENTATIONS[name].partition(":")
    kind = DeviceKind.HOST_SIMT if DeviceKind.HOST_SIMT in reach_of(name).devices else DeviceKind.CPU
    cases = []
    for problem in (problems()[f"{op}-empty_rows-J32-{dtype}"] for op in reach_of(name).ops for dtype in DType):
        out = np.zeros(problem.out_shape, problem.dtype.numpy)
        cases.append((problem, find(str(kind)), tuple(dense_operands(problem)), out))
    child = subprocess.run(
        [sys.executable, "-c", BUILD_AND_RUN], input=pickle.dumps((module, label, cases)), capture_output=True
    )
    assert child.returncode == 0, child.stderr.decode()
    loaded = {Path(line).resolve() for line in child.stdout.decode().splitlines()}
    assert len(loaded) > 5
    assert loaded <= closure(name)


@pytest.mark.full
def test_every_import_of_every_module_is_read() -> None:
    """The names come by regular expressions, since a syntax tree takes too long: here both agree."""
    for path in IMPLS.rglob("*.py"):
        found = {Path(used).resolve() for used in SOURCES.used(str(path))}
        for node in imports(ast.parse(path.read_text(encoding="utf-8"))):
            names = [f"{node.module}.{one.name}" for one in node.names] if isinstance(node, ast.ImportFrom) else []
            for name in names or [one.name for one in node.names]:
                file = ROOT.joinpath(*name.split(".")[1:]).with_suffix(".py")
                assert not file.is_file() or not name.startswith("spmark.impls") or file in found, (path, name)


def imports(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            yield from imports(node)
