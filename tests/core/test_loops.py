"""Compiled loops are never older than the code that this process loaded."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree, ignore_patterns

import pytest

ROOT = Path(__file__).parents[2]
TINY = {
    "state.py": """
from spmark.impls.core.loops import part

FACTOR = 2

@part
def stretched(x):
    return FACTOR * x
""",
    "middle.py": """
from spmark.impls.core.loops import part
from spmark.impls.tiny.state import stretched

@part
def twice(x):
    return stretched(x) + stretched(x)
""",
    "tiny_loops.py": """
from numba import types
from spmark.impls.core.loops import compiled
from spmark.impls.tiny.middle import twice

@compiled(types.int64, types.int64)
def answer(x):
    return twice(x) + 1
""",
    "__init__.py": "",
}
ASK = "from spmark.impls.tiny.tiny_loops import answer; print(answer(10), *answer.stats.cache_hits.values())"


class Tree:
    """A copy of core with a package of loops that call each other over three files."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.cache = folder, folder / "cache"
        copytree(ROOT / "impls" / "core", folder / "spmark/impls/core", ignore=ignore_patterns("__pycache__"))
        for name in ("spmark", "spmark/impls"):
            (folder / name / "__init__.py").touch()
        self.tiny = folder / "spmark/impls/tiny"
        self.tiny.mkdir()
        for name, text in TINY.items():
            (self.tiny / name).write_text(text)

    def run(self, program: str = ASK, **variables: str) -> str:
        child = subprocess.run(self.command(program), env=self.environment(variables), capture_output=True, text=True)
        assert child.returncode == 0, child.stderr
        return child.stdout.strip()

    def failure(self) -> str:
        child = subprocess.run(self.command(ASK), env=self.environment({}), capture_output=True, text=True)
        assert child.returncode == 1
        return child.stderr

    def command(self, program: str) -> list[str]:
        return [sys.executable, "-P", "-c", program]

    def environment(self, variables: dict[str, str]) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
        own = {"PYTHONPATH": str(self.folder), "SPMARK_CACHE": str(self.cache), "PYTHONDONTWRITEBYTECODE": "1"}
        return kept | own | variables

    def kept(self, ending: str = "nbc") -> list[Path]:
        return sorted(self.cache.glob(f"loops/*.{ending}"))

    def edit(self, name: str, old: str, new: str) -> None:
        path = self.tiny / name
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Give a tree whose processes compile for themselves."""
    return from_cores(Tree(tmp_path), 10_000)


def from_cores(tree: Tree, count: int) -> Tree:
    """Let processes of their own compile loops from so many cores on."""
    loops = tree.folder / "spmark/impls/core/loops.py"
    text = loops.read_text()
    assert text.count("\n_CORES = 4\n") == 1
    loops.write_text(text.replace("\n_CORES = 4\n", f"\n_CORES = {count}\n"))
    return tree


@pytest.mark.full
def test_another_process_compiles_where_there_are_cores(tmp_path: Path) -> None:
    tree = from_cores(Tree(tmp_path), 1)
    assert tree.run() == "41 1"
    (kept,) = tree.kept()
    edit = (
        "from pathlib import Path\n"
        "import spmark.impls.tiny.state\n"
        f"path = Path({str(tree.tiny / 'state.py')!r})\n"
        "path.write_text(path.read_text().replace('= 2', '= 3'))\n"
    )
    assert tree.run(edit + ASK).split()[0] == "41", "the other process has loaded another state than this one"
    assert tree.run() == "61 1"
    tree.edit("state.py", "FACTOR * x", "missing * x")
    assert "missing" in tree.failure(), "what the other process could not compile is this one's to tell"
    tree.edit("state.py", "missing * x", "FACTOR * x")
    assert tree.run(SPMARK_CACHE="/dev/null/nowhere") == "61"
    assert kept.exists()


@pytest.mark.full
def test_an_edit_of_a_callee_is_seen_and_so_is_its_end(tree: Tree) -> None:
    assert tree.run() == "41"
    tree.edit("state.py", "FACTOR * x", "FACTOR * x + 1")
    assert tree.run() == "43"
    tree.edit("state.py", "FACTOR * x + 1", "FACTOR * x")
    assert tree.run() == "41 1"  # what the first run kept
    tree.edit("state.py", "FACTOR = 2", "FACTOR = 3")
    assert tree.run() == "61"


@pytest.mark.full
def test_an_edit_under_way_is_not_kept_for_others(tree: Tree) -> None:
    """The process has the digest of the old code, loads the new one, and leaves nothing for who has the old one."""
    edit = (
        "import spmark.impls.core.loops\n"
        "from pathlib import Path\n"
        f"path = Path({str(tree.tiny / 'state.py')!r})\n"
        "old = path.read_text()\n"
        "path.write_text(old.replace('= 2', '= 3'))\n"
    )
    assert tree.run(edit + ASK) == "61"
    tree.edit("state.py", "= 3", "= 2")
    assert tree.run(edit + "import spmark.impls.tiny.state\npath.write_text(old)\n" + ASK) == "61"
    assert tree.run() == "41"


@pytest.mark.full
def test_loops_are_kept_in_the_projects_cache_and_the_users_where_they_were(tree: Tree) -> None:
    (tree.folder / "mine.py").write_text("import numba\n@numba.njit(cache=True)\ndef mine(x):\n    return x\n")
    tree.run(f"{ASK}; import mine; mine.mine(1); import numba; assert not numba.config.CACHE_DIR")
    assert [path.name.split("-")[0] for path in (tree.folder / "__pycache__").glob("*.nbi")] == ["mine.mine"]
    (kept,) = tree.kept()
    assert kept.name.startswith("tiny_loops.answer-spmark.impls.tiny.tiny_loops-6-")
    assert not list((tree.folder / "spmark").rglob("*.nb*"))
    assert tree.run(NUMBA_CACHE_DIR=str(tree.folder / "numbas")) == "41"
    assert list(tree.folder.glob("numbas/spmark/loops/*.nbc"))


@pytest.mark.full
def test_a_damaged_file_is_compiled_again(tree: Tree) -> None:
    tree.run()
    for ending in ("nbc", "nbi"):
        (path,) = tree.kept(ending)
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        assert tree.run() == "41"
    assert tree.run() == "41 1"


@pytest.mark.full
def test_a_cache_that_cannot_be_written_costs_time_alone(tree: Tree) -> None:
    assert tree.run(SPMARK_CACHE="/dev/null/nowhere") == "41"
    assert not list(tree.folder.rglob("*.nb*"))
    assert tree.run(NUMBA_DISABLE_JIT="1", program=ASK.partition(", *")[0] + ")") == "41"


@pytest.mark.full
def test_loops_of_versions_long_ago_go(tree: Tree) -> None:
    tree.run()
    old = tree.cache / "loops/old.nbc"
    old.write_bytes(bytes(65 << 20))
    os.utime(old, (1, 1))
    tree.edit("state.py", "FACTOR = 2", "FACTOR = 3")
    assert tree.run() == "61"
    assert len(tree.kept()) == 2
    assert not old.exists()


def modules_with_numba() -> Iterator[tuple[Path, ast.Module]]:
    for folder in ("impls", "records", "studies", "datasets", "suite", "report"):
        for path in (ROOT / folder).rglob("*.py"):
            if "numba" in (text := path.read_text()):
                yield path, ast.parse(text)


def test_loops_are_kept_by_one_module_alone() -> None:
    broken = []
    for path, tree in modules_with_numba():
        for node in ast.walk(tree):
            keyword = isinstance(node, ast.keyword) and node.arg == "cache"
            kept = keyword and not (isinstance(node.value, ast.Constant) and node.value.value is False)
            if kept or (isinstance(node, ast.Attribute) and node.attr in {"enable_caching", "CACHE_DIR"}):
                broken.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    broken = [place for place in broken if not place.startswith("impls/core/loops.py")]
    assert not broken, f"machine code is kept by the decorators of impls/core/loops.py alone: {broken}"
