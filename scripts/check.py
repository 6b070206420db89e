"""`make check`: lint the files that differ from a commit, then run the fast tests and those nearest to these files.

``tests/seconds.tsv`` lists the test functions that are not fast. All others are run each time. Of the listed ones, this
runs what a changed file can reach, the nearest first, until their recorded seconds fill what is left of two minutes.
`make test` runs the others.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SECONDS = ROOT / "tests/seconds.tsv"
BUDGET_S = 30.0
"""CPU seconds of tests that are chosen by the change: about a quarter of a minute on two cores."""
FOLDERS = ("datasets/", "impls/", "report/", "studies/", "suite/", "tests/", "spmark/")
IMPORTED = re.compile(r"from ([\w.]+) import (\([^)]+|[^\n]+)")
CODE = (".cu", ".cuh", ".cpp", ".hpp", ".h")


def git(*words: str) -> list[str]:
    """Give the lines that git prints."""
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


class Graph:
    """Which tracked files use which: modules and files that the text of Python and CUDA names."""

    def __init__(self) -> None:
        names = git("ls-files", "--cached", "--others", "--exclude-standard")
        self.files = {name for name in names if name.startswith(FOLDERS)}
        named: dict[str, set[str]] = defaultdict(set)
        for name in self.files:
            if name.endswith((".py", *CODE)):
                text = (ROOT / name).read_text(encoding="utf-8")
                words = set(re.findall(r"[\w.-]+", text))
                for above, parts in IMPORTED.findall(text):
                    words |= {above.rpartition(".")[2], *(f"{above}.{part}" for part in re.findall(r"\w+", parts))}
                for word in words:
                    named[word].add(name)
        self.users: dict[str, set[str]] = {name: self._users(name, named) for name in self.files}

    def _users(self, name: str, named: dict[str, set[str]]) -> set[str]:
        base = name.rpartition("/")[2]
        if name.startswith("tests/") and base.endswith(".py"):
            return {user for user in named[base.removesuffix(".py")] if user.startswith("tests/")}
        if base.endswith(".py"):
            module = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            return named[module if name.startswith("spmark/") else f"spmark.{module}"]
        # Sweeps and claims go by their names.
        by_name = named[base.removesuffix(".yaml")] if base.endswith(".yaml") else set()
        return named[base] | by_name or self._package(name)

    def _package(self, name: str) -> set[str]:
        """Give all modules of the package that a file lies in: nothing says which of them reads it."""
        folder = next((up for up in Path(name).parents if f"{up}/__init__.py" in self.files), Path(name).parent)
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
        folder, _, base = name.rpartition("/")
        below = base == "conftest.py"
        return {one for one in self.files if one.startswith(f"{folder}/")} if below else self.users[name]


def chosen(steps: dict[str, int]) -> tuple[list[str], int]:
    """Give the listed functions of reached files that fit the budget, nearest first, and the number of the others."""
    rows = (line.split("\t") for line in SECONDS.read_text().splitlines()[1:])
    near = [(steps[file], float(seconds), name) for name, seconds in rows if (file := name.partition("::")[0]) in steps]
    taken, left_s = [], BUDGET_S
    for _, seconds, name in sorted(near):
        left_s -= seconds
        if left_s >= 0:
            taken.append(name)
    return taken, len(near) - len(taken)


def lint(changed: list[str]) -> int:
    """Lint the changed files that are still there, and give the worst exit code."""
    there = [name for name in changed if (ROOT / name).is_file() and ".min." not in name]
    python = [name for name in there if name.endswith(".py")]
    kernels = [name for name in there if name.endswith(CODE)]
    commands = [["lint-imports", "--no-logo", "--no-cache"]]
    if python:
        commands += [["ruff", "check", *python], ["ruff", "format", "--check", *python]]
    if kernels:
        commands.append(["clang-format", "--dry-run", "-Werror", *kernels])
    bin_ = Path(sys.executable).parent
    return max(subprocess.run([bin_ / tool, *words], cwd=ROOT, check=False).returncode for tool, *words in commands)


def main() -> int:
    """Run `make check`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default="HEAD", help="the commit that the checkout is compared with")
    parser.add_argument("--list", action="store_true", help="print what would run, beside the fast tests")
    parser.add_argument("pytest", nargs="*", help="options of pytest, after --")
    args = parser.parse_args()
    changed = git("diff", "--name-only", args.base) + git("ls-files", "--others", "--exclude-standard")
    taken, left = chosen(Graph().tests(changed))
    sys.stdout.write(
        f"{len(changed)} files differ from {args.base}: the fast tests and {len(taken)} others that these files reach; "
        f"{left} more are left to make test\n"
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
