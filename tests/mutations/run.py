"""Plant faults one at a time and see whether the tests of their area fail: python tests/mutations/run.py.

`faults.toml` and `earlier.toml` beside this file say what is planted and where. Everything happens in copies of the
checkout under a temporary folder, which have caches of their own.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from queue import Queue
from time import perf_counter

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LISTS = ("faults.toml", "earlier.toml")
AREAS = ("cuda", "formats", "searches", "emitters", "statistics", "measuring")
LIMIT_S = 60.0
_FAR_BELOW = 3
"""A time-out counts where the tests without a fault take at most this part of the limit: one in so many."""
_TAIL_LINES = 40


@dataclass(frozen=True)
class Fault:
    """A change of one place that some test must see."""

    name: str
    area: str
    file: str
    """From the root of the checkout."""
    text: str
    """Occurs once in the file."""
    instead: str
    """Takes its place."""
    what: str
    tests: tuple[str, ...] = ()
    """Paths or names of tests that pytest takes; by default those of the area."""
    survives: str = ""
    """Why no test can see it, where none does."""

    def planted(self, content: str) -> str:
        """Give the file's content with the fault in it.

        Raises
        ------
        ValueError
            The text does not occur once.
        """
        count = content.count(self.text)
        if count != 1:
            raise ValueError(
                f"{self.name}: expected its text once in {self.file}, found it {count} times: "
                f"name the place anew in {HERE.name}\n{self.text}"
            )
        return content.replace(self.text, self.instead)


class Outcome(StrEnum):
    """What the tests said."""

    RED = "red"
    GREEN = "green"
    UNCLEAR = "unclear"
    """They ended at the limit, to which they come near without a fault."""


@dataclass(frozen=True)
class Verdict:
    """What became of a fault."""

    fault: Fault
    outcome: Outcome
    seconds: float
    note: str = ""


def read_lists(folder: Path = HERE) -> tuple[list[Fault], list[Fault]]:
    """Read the faults of both lists; those without tests of their own get their area's."""
    first, second = (tomllib.loads((folder / name).read_text(encoding="utf-8")) for name in LISTS)
    areas = {area: tuple(paths) for area, paths in first["tests"].items()}
    lists = []
    for table in (first, second):
        faults = [Fault(**{**one, "tests": tuple(one.get("tests", areas[one["area"]]))}) for one in table["fault"]]
        lists.append(faults)
    return lists[0], lists[1]


@dataclass
class Workplace:
    """A copy of the checkout in which one fault at a time is planted."""

    folder: Path
    limit_s: float
    _control_s: dict[tuple[str, ...], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tree.mkdir(parents=True)
        self.caches.mkdir()
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            check=True,
        )
        for name in filter(None, listed.stdout.decode().split("\0")):
            source, target = ROOT / name, self.tree / name
            if source.is_symlink() or source.exists():  # a file that was deleted is still listed
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target, follow_symlinks=False)
        where = subprocess.run(
            [sys.executable, "-c", "import spmark; print(spmark.__file__)"],
            cwd=self.tree,
            env=self._environment(self.caches),
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        if not Path(where).is_relative_to(self.tree):
            raise SystemExit(f"expected spmark to be imported from the copy {self.tree}, found {where}")

    @property
    def tree(self) -> Path:
        """The copy."""
        return self.folder / "tree"

    @property
    def caches(self) -> Path:
        """What the tests without a fault have kept: compiled kernels and loops, parsed matrices."""
        return self.folder / "caches"

    def judge(self, fault: Fault) -> Verdict:
        """Plant a fault, run its tests, and take it out again."""
        control_s = self._control(fault.tests)
        with self._planted(fault), self._own_caches(fault) as caches:
            code, seconds, said = self._pytest(fault.tests, caches)
        if code is None:
            clear = control_s * _FAR_BELOW <= self.limit_s
            note = f"no end within {self.limit_s:g} s; {control_s:.0f} s without the fault"
            return Verdict(fault, Outcome.RED if clear else Outcome.UNCLEAR, seconds, note)
        if code in (pytest.ExitCode.NO_TESTS_COLLECTED, pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.INTERNAL_ERROR):
            raise SystemExit(f"{fault.name}: expected tests in {' '.join(fault.tests)}, found:\n{said}")
        failed = next((line for line in said.splitlines() if line.startswith(("FAILED", "ERROR"))), "")
        return Verdict(fault, Outcome.RED if code else Outcome.GREEN, seconds, failed)

    def _control(self, tests: tuple[str, ...]) -> float:
        """Run tests without a fault, once more where they were slow with empty caches; give the seconds."""
        if tests not in self._control_s:
            for _ in range(2):
                code, seconds, said = self._pytest(tests, self.caches, 10 * self.limit_s)
                if code != 0:
                    raise SystemExit(f"expected {' '.join(tests)} to pass without a fault, found:\n{said}")
                if seconds * _FAR_BELOW <= self.limit_s:
                    break
            self._control_s[tests] = seconds
        return self._control_s[tests]

    @contextmanager
    def _planted(self, fault: Fault) -> Iterator[None]:
        path = self.tree / fault.file
        before, times = path.read_bytes(), path.stat()
        path.write_text(fault.planted(before.decode()), encoding="utf-8")
        try:
            yield
        finally:
            path.write_bytes(before)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    @contextmanager
    def _own_caches(self, fault: Fault) -> Iterator[Path]:
        """Give what is kept without the fault, as links: who replaces a file there replaces the fault's alone.

        Numba looks for changes in the file of a loop alone, not in what that calls: a fault in such a file begins with
        no loop compiled.
        """
        with tempfile.TemporaryDirectory(dir=self.folder, ignore_cleanup_errors=True) as place:
            own = Path(place) / "caches"
            shutil.copytree(self.caches, own, copy_function=os.link)
            if "numba" in (self.tree / fault.file).read_text(encoding="utf-8"):
                shutil.rmtree(own / "numba", ignore_errors=True)
            yield own

    def _environment(self, caches: Path) -> dict[str, str]:
        own = {"SPMARK_CACHE": str(caches / "spmark"), "NUMBA_CACHE_DIR": str(caches / "numba")}
        return {**os.environ, **own, "PYTHONPATH": str(self.tree), "PYTHONDONTWRITEBYTECODE": "1"}

    def _pytest(
        self, tests: Sequence[str], caches: Path, limit_s: float | None = None
    ) -> tuple[int | None, float, str]:
        """Run pytest up to the first failure; give its exit code (None at the limit), seconds and last words."""
        asked = ["-x", "-q", "--no-header", "--tb=line", "-p", "no:cacheprovider", "-m", "not slow and not gpu"]
        started = perf_counter()
        with subprocess.Popen(
            [sys.executable, "-m", "pytest", *asked, *tests],
            cwd=self.tree,
            env=self._environment(caches),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as running:
            try:
                said, _ = running.communicate(timeout=limit_s or self.limit_s)
            except BaseException as error:
                os.killpg(running.pid, signal.SIGKILL)
                said, _ = running.communicate()
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
                return None, perf_counter() - started, said
        tail = "\n".join(said.splitlines()[-_TAIL_LINES:])
        return running.returncode, perf_counter() - started, tail


def judge_all(faults: Sequence[Fault], jobs: int, limit_s: float) -> Iterator[Verdict]:
    """Judge faults in ``jobs`` workplaces; verdicts come in the order of the list."""
    with tempfile.TemporaryDirectory(prefix="spmark-mutations-", ignore_cleanup_errors=True) as folder:
        free: Queue[Workplace] = Queue()
        for number in range(jobs):
            free.put(Workplace(Path(folder) / str(number), limit_s))

        def judge(fault: Fault) -> Verdict:
            place = free.get()
            try:
                return place.judge(fault)
            finally:
                free.put(place)

        with ThreadPoolExecutor(jobs) as pool:
            yield from pool.map(judge, faults)


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge what is asked for; 0 where every fault without a reason to survive is seen."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--area", choices=AREAS, action="append", help="only faults of this area")
    parser.add_argument("--only", metavar="NAME", action="append", help="only this fault")
    parser.add_argument("-j", "--jobs", type=int, default=1, help="faults at once, each in a copy of the checkout")
    parser.add_argument(
        "--limit", type=float, default=LIMIT_S, help="seconds of a fault's tests (default: %(default)g)"
    )
    asked = parser.parse_args(arguments)
    every = [fault for faults in read_lists() for fault in faults]
    unknown = set(asked.only or ()) - {fault.name for fault in every}
    if unknown:
        parser.error(f"expected names of faults, found {', '.join(sorted(unknown))}")
    chosen = [
        fault
        for fault in every
        if (not asked.area or fault.area in asked.area) and (not asked.only or fault.name in asked.only)
    ]
    chosen.sort(key=lambda fault: (AREAS.index(fault.area), fault.tests))
    for fault in chosen:
        fault.planted((ROOT / fault.file).read_text(encoding="utf-8"))
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # copies go, however it ends
    verdicts = []
    for verdict in judge_all(chosen, asked.jobs, asked.limit):
        verdicts.append(verdict)
        fault = verdict.fault
        reason = f" (known: {fault.survives})" if fault.survives else ""
        words = f"{verdict.outcome:8}{fault.area:11}{fault.name:32}{verdict.seconds:6.0f} s  {verdict.note}{reason}"
        sys.stdout.write(words.rstrip() + "\n")
        sys.stdout.flush()
    seen = sum(verdict.outcome is Outcome.RED for verdict in verdicts)
    sys.stdout.write(f"{seen} of {len(verdicts)} faults are seen\n")
    return int(any(verdict.outcome is not Outcome.RED and not verdict.fault.survives for verdict in verdicts))


if __name__ == "__main__":
    sys.exit(main())
