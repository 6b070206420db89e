"""Plant faults one at a time and see whether the tests of `make test` fail: python tests/mutations/run.py.

``faults.toml`` says what is planted. In Python, a fault names a function and an expression or a statement in it, found
by its syntax tree. In CUDA, it names a text, found whatever its white space. Everything happens in copies of the
checkout under a temporary folder, which have caches of their own.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from queue import Queue
from time import perf_counter

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LIMIT_S = 90.0
"""Seconds of a fault's tests. A fault that makes them endless is seen."""
_CONTROL_S = 600.0


@dataclass(frozen=True)
class Fault:
    """A change of one place that some test must see."""

    name: str
    area: str
    file: str
    """From the root of the checkout."""
    old: str
    """Python: an expression or a statement. CUDA: a text. It occurs once in its place."""
    new: str
    """Stands there instead; ``pass`` where a statement goes."""
    what: str
    tests: tuple[str, ...]
    """Paths or names of tests that pytest takes."""
    place: str = ""
    """Python: the function, such as ``Race.finish``; empty for the module."""

    def planted(self, content: str) -> str:
        """Give the file's content with the fault in it.

        Raises
        ------
        ValueError
            The place or the code in it is not there, or is there more than once.
        """
        spans = list(self._python(content) if self.file.endswith(".py") else self._text(content))
        if len(spans) != 1:
            where = f"{self.file}, {self.place or 'the whole file'}"
            raise ValueError(f"{self.name}: expected once in {where}, found {len(spans)} times:\n{self.old}")
        start, stop, indent = spans[0]
        raw = content.encode()
        new = self.new.replace("\n", "\n" + " " * indent)
        return (raw[:start] + new.encode() + raw[stop:]).decode()

    def _text(self, content: str) -> Iterator[tuple[int, int, int]]:
        words = [re.escape(word) for word in self.old.split()]
        for found in re.finditer(r"\s+".join(words), content):
            yield len(content[: found.start()].encode()), len(content[: found.end()].encode()), 0

    def _python(self, content: str) -> Iterator[tuple[int, int, int]]:
        (wanted,) = ast.parse(textwrap.dedent(self.old)).body
        kind = ast.expr if isinstance(wanted, ast.Expr) else ast.stmt
        text = ast.unparse(wanted)
        lines = [0]
        for line in content.encode().splitlines(keepends=True):
            lines.append(lines[-1] + len(line))
        for scope in _named(ast.parse(content), self.place):
            for node in ast.walk(scope):
                if isinstance(node, kind) and node is not scope and ast.unparse(node) == text:
                    end = lines[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
                    yield lines[node.lineno - 1] + node.col_offset, end, node.col_offset


def _named(tree: ast.AST, place: str) -> Iterator[ast.AST]:
    """Find functions and classes by their dotted name."""
    first, _, rest = place.partition(".")
    if not first:
        yield tree
        return
    for node in ast.walk(tree):
        if getattr(node, "name", None) == first and node is not tree and hasattr(node, "body"):
            yield from _named(node, rest)


def read_faults() -> list[Fault]:
    """Read the list; faults without tests of their own get their area's."""
    listed = tomllib.loads((HERE / "faults.toml").read_text(encoding="utf-8"))
    return [
        Fault(**{**one, "tests": tuple(one.get("tests", listed["tests"].get(one["area"], ())))})
        for one in listed["fault"]
    ]


def stale(faults: Sequence[Fault]) -> list[str]:
    """Say which faults no longer fit the tree: place, code, or tests."""
    said = []
    for fault in faults:
        try:
            before = (ROOT / fault.file).read_text(encoding="utf-8")
            if fault.planted(before) == before:
                said.append(f"{fault.name}: changes nothing")
        except (OSError, ValueError, SyntaxError) as error:
            said.append(f"{fault.name}: {error}")
        missing = [path for path in fault.tests if not (ROOT / path.partition("::")[0]).exists()]
        if missing or not fault.tests:
            said.append(f"{fault.name}: expected its tests to exist, found none at {', '.join(missing)}")
    return said


@dataclass
class Workplace:
    """A copy of the checkout in which one fault at a time is planted."""

    folder: Path
    limit_s: float
    _passed: set[tuple[str, ...]] = field(default_factory=set)

    def __post_init__(self) -> None:
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT, capture_output=True, check=True,
        )  # fmt: skip
        for name in filter(None, listed.stdout.decode().split("\0")):
            source, target = ROOT / name, self.folder / "tree" / name
            if source.is_symlink() or source.exists():  # a file that was deleted is still listed
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target, follow_symlinks=False)

    def judge(self, fault: Fault) -> tuple[bool, float, str]:
        """Plant a fault and run its tests: whether they fail, the seconds, and the first failure."""
        if fault.tests not in self._passed:
            code, _, said = self._python(["-m", "pytest", *fault.tests], _CONTROL_S, "caches")
            if code != 0:
                raise SystemExit(f"expected {' '.join(fault.tests)} to pass without a fault, found:\n{said}")
            self._passed.add(fault.tests)
        path = self.folder / "tree" / fault.file
        before, times = path.read_bytes(), path.stat()
        path.write_text(fault.planted(before.decode()), encoding="utf-8")
        try:
            if fault.file.endswith(".py"):
                module = "spmark." + fault.file.removesuffix(".py").replace("/", ".")
                code, _, said = self._python(["-c", f"import {module}"], LIMIT_S, "caches")
                if code != 0:  # this says nothing about the tests
                    return False, 0.0, "the planted module cannot be imported"
            # Numba looks for changes in the file of a loop alone, not in what that calls: no loop is kept.
            shutil.rmtree(self.folder / "own", ignore_errors=True)
            shutil.copytree(self.folder / "caches", self.folder / "own", copy_function=os.link)
            if b"numba" in before or b"loops" in before:
                shutil.rmtree(self.folder / "own/numba", ignore_errors=True)
            code, seconds, said = self._python(["-m", "pytest", *fault.tests], self.limit_s, "own")
        finally:
            path.write_bytes(before)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        lines = [line for line in said.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return code != 0, seconds, (lines or [""])[0] if code is not None else "no end"

    def _python(self, words: Sequence[str], limit_s: float, caches: str) -> tuple[int | None, float, str]:
        """Run Python in the copy; give its exit code (None at the limit), the seconds and its last words."""
        kept = self.folder / caches
        environment = {
            **os.environ,
            "SPMARK_CACHE": str(kept / "spmark"),
            "NUMBA_CACHE_DIR": str(kept / "numba"),
            "PYTHONPATH": str(self.folder / "tree"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTEST_ADDOPTS": "-x -q --no-header --tb=line -p no:cacheprovider",
        }
        (kept / "spmark").mkdir(parents=True, exist_ok=True)
        started = perf_counter()
        with subprocess.Popen(
            [sys.executable, *words], cwd=self.folder / "tree", env=environment, text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as running:  # fmt: skip
            try:
                said, _ = running.communicate(timeout=limit_s)
            except BaseException as error:
                os.killpg(running.pid, signal.SIGKILL)
                said, _ = running.communicate()
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
                return None, perf_counter() - started, said
        return running.returncode, perf_counter() - started, "\n".join(said.splitlines()[-40:])


def main() -> int:
    """Judge what is asked for; 0 where every fault is seen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only say which faults no longer fit the tree")
    parser.add_argument("--area", action="append", help="only faults of this area")
    parser.add_argument("--only", metavar="NAME", action="append", help="only this fault")
    parser.add_argument("-j", "--jobs", type=int, default=1, help="faults at once, each in a copy of the checkout")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds of a fault's tests (%(default)g)")
    asked = parser.parse_args()
    chosen = [
        fault
        for fault in read_faults()
        if (not asked.area or fault.area in asked.area) and (not asked.only or fault.name in asked.only)
    ]
    old = stale(chosen)
    if old or asked.check or not chosen:
        sys.stdout.write("\n".join([*old, f"{len(old)} of {len(chosen)} faults are stale"]) + "\n")
        return int(bool(old) or not chosen)
    chosen.sort(key=lambda fault: (fault.area, fault.tests))
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # copies go, however it ends
    seen: dict[str, list[bool]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="spmark-mutations-", ignore_cleanup_errors=True) as folder:
        free: Queue[Workplace] = Queue()
        for number in range(asked.jobs):
            free.put(Workplace(Path(folder) / str(number), asked.limit))

        def judge(fault: Fault) -> tuple[bool, float, str]:
            place = free.get()
            try:
                return place.judge(fault)
            finally:
                free.put(place)

        with ThreadPoolExecutor(asked.jobs) as pool:
            for fault, (red, seconds, note) in zip(chosen, pool.map(judge, chosen), strict=True):
                seen[fault.area].append(red)
                word = "red" if red else "GREEN"
                sys.stdout.write(f"{word:6}{fault.area:11}{fault.name:36}{seconds:6.0f} s  {note}\n")
                sys.stdout.flush()
    seen["all"] = [red for reds in list(seen.values()) for red in reds]
    for area, reds in seen.items():
        sys.stdout.write(f"{area:11}{sum(reds):4} of {len(reds):3} are seen, {sum(reds) / len(reds):4.0%}\n")
    return int(not all(seen["all"]))


if __name__ == "__main__":
    sys.exit(main())
