"""`make check`: lint the files that differ from a commit, then run the fast tests and those nearest to these files.

``tests/seconds.tsv`` lists the test functions that are not fast. All others are run each time. Of the listed ones, this
runs what a changed file can reach, the nearest first, until their recorded seconds fill what is left of two minutes.
`make test` runs the others.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SECONDS = ROOT / "tests/seconds.tsv"
BUDGET_S = 30.0
"""CPU seconds of tests that are chosen by the change: about a quarter of a minute on two cores."""
PACKAGES = ("datasets", "impls", "report", "suite")
CODE = (".cu", ".cuh", ".cpp", ".hpp", ".h")


class Graph:
    """Which tracked files use which: imports, includes, and files that a module's text names."""

    def __init__(self, root: Path) -> None:
        names = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
            cwd=root, capture_output=True, text=True, check=True,
        ).stdout.splitlines()  # fmt: skip
        self.root = root
        self.files = {name for name in names if name.startswith((*(f"{p}/" for p in PACKAGES), "tests/", "spmark/"))}
        self.users: dict[str, set[str]] = defaultdict(set)
        modules = [name for name in self.files if name.endswith(".py")]
        named: dict[str, set[str]] = defaultdict(set)
        for module in modules:
            tree = ast.parse((root / module).read_text(encoding="utf-8"))
            for target in {found for name in _imports(tree) for found in self._modules(name, module)}:
                self.users[target].add(module)
            for text in (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)):
                if isinstance(text, str):
                    for word in re.findall(r"[\w.-]+", text):
                        named[word].add(module)
        included: dict[str, set[str]] = defaultdict(set)
        for name in self.files:
            if name.endswith(CODE):
                for path in re.findall(r'#include [<"]([^>"]+)[>"]', (root / name).read_text(encoding="utf-8")):
                    included[path.rpartition("/")[2]].add(name)
        for name in self.files - set(modules):
            base = name.rpartition("/")[2]
            using = included[base] | named[base]
            if base.endswith(".yaml"):  # sweeps and claims go by their names
                using |= named[base.removesuffix(".yaml")]
            self.users[name] |= using or self._package(name)

    def _modules(self, name: str, user: str) -> Iterator[str]:
        """Give the files of a dotted name that a module imports: the module, and the packages above it."""
        path = name.removeprefix("spmark.").replace(".", "/")
        folders = ("",) if name.startswith("spmark") else (f"{user.rpartition('/')[0]}/", "tests/")
        for folder in folders:
            for file in (f"{folder}{path}.py", f"{folder}{path}/__init__.py"):
                if file in self.files:
                    yield file
                    return

    def _package(self, name: str) -> set[str]:
        """Give all modules of the package that a file lies in: nothing says which of them reads it."""
        folder = Path(name).parent
        while folder.parts and f"{folder}/__init__.py" not in self.files:
            folder = folder.parent
        return {one for one in self.files if one.endswith(".py") and one.startswith(f"{folder}/")}

    def tests(self, changed: list[str]) -> dict[str, int]:
        """Give the test files that changed files reach, each with the number of steps to it."""
        steps = dict.fromkeys((name for name in changed if name in self.files), 0)
        edge = list(steps)
        while edge:
            edge = list(dict.fromkeys(user for name in edge for user in self._reached(name) if user not in steps))
            steps |= dict.fromkeys(edge, max(steps.values()) + 1)
        return {name: at for name, at in steps.items() if re.search(r"(^|/)test_\w+\.py$", name)}

    def _reached(self, name: str) -> set[str]:
        if name.endswith("conftest.py"):
            folder = name.rpartition("/")[0]
            return {one for one in self.files if one.startswith(f"{folder}/") and one.endswith(".py")}
        return self.users[name]


def _imports(tree: ast.Module) -> Iterator[str]:
    """Give the dotted names that a module may import, inside of functions and by tables of names, too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if found := re.fullmatch(r"(spmark(?:\.\w+)+)(?::\w+)?", node.value):
                yield found[1]


def chosen(steps: dict[str, int], budget_s: float = BUDGET_S) -> tuple[list[str], list[str]]:
    """Split the listed functions of reached files into those that fit the budget, nearest first, and the rest."""
    rows = [line.split("\t") for line in SECONDS.read_text().splitlines()[1:]]
    near = sorted(
        (steps[name.partition("::")[0]], float(seconds), name)
        for name, seconds in rows
        if name.partition("::")[0] in steps
    )
    taken, left = [], []
    for _, seconds, name in near:
        budget_s -= seconds
        (taken if budget_s >= 0 else left).append(name)
    return taken, left


def changed_files(base: str) -> list[str]:
    """List the files that differ from a commit, and those that git does not know yet."""
    commands = (["diff", "--name-only", base], ["ls-files", "--others", "--exclude-standard"])
    return [
        name
        for command in commands
        for name in subprocess.run(
            ["git", *command], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.splitlines()
    ]


def lint(changed: list[str]) -> int:
    """Lint the changed files that are still there, and give the worst exit code."""
    there = [name for name in changed if (ROOT / name).is_file()]
    python = [name for name in there if name.endswith(".py")]
    kernels = [name for name in there if name.endswith(CODE) and ".min." not in name]
    bin_ = Path(sys.executable).parent
    commands = []
    if python:
        commands += [[bin_ / "ruff", "check", *python], [bin_ / "ruff", "format", "--check", *python]]
    if kernels:
        commands.append([bin_ / "clang-format", "--dry-run", "-Werror", *kernels])
    return max((subprocess.run(command, cwd=ROOT, check=False).returncode for command in commands), default=0)


def main() -> int:
    """Run `make check`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default="HEAD", help="the commit that the checkout is compared with")
    parser.add_argument("--list", action="store_true", help="print what would run, beside the fast tests")
    parser.add_argument("pytest", nargs="*", help="options of pytest, after --")
    args = parser.parse_args()
    changed = changed_files(args.base)
    taken, left = chosen(Graph(ROOT).tests(changed))
    sys.stdout.write(
        f"{len(changed)} files differ from {args.base}: the fast tests and {len(taken)} others that these files reach; "
        f"{len(left)} more are left to make test\n"
    )
    if args.list:
        sys.stdout.write("".join(f"{name}\n" for name in taken))
        return 0
    sys.stdout.flush()
    code = lint(changed)
    command = [sys.executable, "-m", "pytest", "--tests=fast", *(f"--also={name}" for name in taken), *args.pytest]
    return subprocess.run(command, cwd=ROOT, check=False).returncode or code


if __name__ == "__main__":
    sys.exit(main())
