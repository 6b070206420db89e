"""The child process of `fuzz.harness`: reads inputs one by one, and reports each one's number before it reads it."""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import resource
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fuzz.harness import MEMORY_BYTES, Target, find_target, input_of

_WRITES = frozenset(
    {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod", "os.chown"}
    | {"os.utime", "os.setxattr", "tempfile.mkstemp", "tempfile.mkdtemp"}
)
_COMMANDS = frozenset(
    {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "pty.spawn"}
)
_NEVER = frozenset({"socket.connect", "socket.getaddrinfo", "pickle.find_class"})
_TO_WRITE = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Trespass(BaseException):
    """A reader was about to do what a reader of data never does; raised by the watch, so that it is not done.

    Writing outside of the input's folder, running a command, connecting, or unpickling a class by its name.
    """


class Watch:
    """Sees what the interpreter is asked to do while an input is read, through its audit events."""

    def __init__(self, allowed: Sequence[Path], commands: bool) -> None:
        self.allowed = tuple(f"{os.path.realpath(path)}{os.sep}" for path in allowed)
        self.refused = _NEVER if commands else _NEVER | _COMMANDS
        self.active = False
        self.seen: list[str] = []
        sys.addaudithook(self._event)

    def _event(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.active:
            return
        if event == "open":
            path, _, flags = args
            outside = bool(flags & _TO_WRITE) and not self._within(path)
        elif event in _WRITES:
            places = args[:2] if event in ("os.rename", "os.link") else args[1:2] if event == "os.symlink" else args[:1]
            outside = not all(self._within(place) for place in places)
        else:
            outside = event in self.refused
        if outside:
            self.seen.append(f"{event} {args[:2]!r}"[:300])
            raise Trespass(self.seen[-1])

    def _within(self, place: Any) -> bool:
        if not isinstance(place, str | bytes | os.PathLike):
            return True  # a file that is open already
        path = os.path.realpath(os.fsdecode(place))
        return path == os.devnull or f"{path}{os.sep}".startswith(self.allowed)


class Runner:
    """One target and the folders that it may use, below a root that holds nothing else."""

    def __init__(self, target: Target, root: Path) -> None:
        self.target = target
        self.folder = root / "above" / "above" / "inputs"
        self.scratch = root / "above" / "scratch"
        self.temporary = self.scratch / "tmp"
        self.levels = (root, root / "above", root / "above" / "above")
        for folder in (self.folder, self.temporary):
            folder.mkdir(parents=True)
        tempfile.tempdir = str(self.temporary)
        os.environ.update(
            SPMARK_CACHE=str(self.scratch / "cache"), NUMBA_CACHE_DIR=str(self.scratch / "numba"),
            TMPDIR=str(self.temporary), SPMARK_MIRROR="",
        )  # fmt: skip
        os.chdir(self.folder)
        self.beside = [_names(level) for level in self.levels]
        self.watch = Watch((self.folder, self.scratch), target.commands)

    def run(self, data: bytes) -> tuple[bool, tuple[str, str] | None]:
        """Read one input: whether it was accepted, and what was wrong."""
        fault: tuple[str, str] | None = None
        began = time.process_time()
        self.watch.seen.clear()
        self.watch.active = True
        accepted = False
        try:
            self.target.read(data, self.folder)
            accepted = True
        except self.target.own as error:
            if not self.target.claims and _from_memory(error):
                fault = ("memory", _told(error))
        except BaseException as error:  # also Trespass, SystemExit and what extension modules throw
            fault = ("exception", _told(error))
        self.watch.active = False
        spent = time.process_time() - began
        if self.watch.seen:
            fault = ("trespass", self.watch.seen[0])
        elif fault is None and spent > self.target.limit_s:
            fault = ("slow", f"{spent:.1f} s")
        elif fault is None:
            fault = self._traces()
        self._empty()
        return accepted, fault

    def _traces(self) -> tuple[str, str] | None:
        beside = [_names(level) for level in self.levels]
        if beside != self.beside:
            self.beside = beside
            return "trespass", f"the folders above hold {beside}"
        left = _names(self.temporary)
        return ("left behind", str(left)) if left else None

    def _empty(self) -> None:
        for folder in (self.folder, self.temporary):
            for entry in os.scandir(folder):
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
                else:
                    os.unlink(entry.path)  # noqa: PTH108


def _names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))  # noqa: PTH208


def _from_memory(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, MemoryError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _told(error: BaseException) -> str:
    lines = traceback.format_exception(error, limit=-6)
    return "".join(lines)[-2500:]


def limit_memory() -> None:
    """Let reading take `MEMORY_BYTES` beside what the process has."""
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY_BYTES, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main(plan: dict[str, Any], reports: int) -> None:
    """Read inputs from ``first`` on, until ``inputs`` are done or ``seconds`` are over and all good inputs are read."""

    def report(line: str) -> None:
        os.write(reports, line.encode() + b"\n")

    faulthandler.enable()
    logging.disable()
    warnings.simplefilter("ignore")
    target = find_target(plan["target"])
    seeds = list(target.seeds())
    runner = Runner(target, Path(plan["root"]))
    limit_memory()
    number, end = plan["first"], None if plan["seconds"] is None else time.monotonic() + plan["seconds"]
    while (plan["inputs"] is None or number < plan["inputs"]) and (
        number < len(seeds) or end is None or time.monotonic() < end
    ):
        data = input_of(target, seeds, plan["seed"], number)
        report(f"input {number}")
        accepted, fault = runner.run(data)
        if number < len(seeds) and not accepted and fault is None:
            fault = ("good input", "refused; run it alone to see why")
        if accepted:
            report("accepted")
        if fault is not None:
            report("fault " + json.dumps(fault))
        number += 1
    report("done")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), int(sys.argv[2]))
