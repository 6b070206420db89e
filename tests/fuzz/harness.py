"""Mutated inputs for the readers of files, each in a child process that says which input comes next before it reads it.

A reader is a `Target`: a name, a function ``(data, folder) -> object`` that writes ``data`` into a file of ``folder``
and reads it, and good inputs to start from. A module ``tests/fuzz/targets_<area>.py`` lists its own as ``TARGETS``;
nothing else has to be told of it. Counted as a fault is

- an exception outside of ``Target.own``, whatever its type (`MemoryError` also where an own error came from it),
- the death of the process, or no answer within 60 s,
- more than 5 s of processor time for one input (of wall time would count what other processes do),
- a write, a command, a connection or an unpickled class (see `Trespass`), or a temporary file that is left behind,
- a good input that is refused, since a target that refuses everything tests nothing.

Input ``n`` of a target is the ``n``-th good input, then `mutate.mutated` with a generator seeded by the target's name,
the base seed and ``n``: a fault's number is enough to see the fault again.

By hand: ``python tests/fuzz [--seconds 60] [--seed 0] [NAME ...]`` prints counts of each target, and
``python tests/fuzz NAME --input 123`` runs one input with its traceback, and leaves it in the working folder.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from fuzz.mutate import mutated

from spmark.impls.core.errors import SpmarkError

FOLDER = Path(__file__).parent
_SETTINGS = {
    "PYTHONDONTWRITEBYTECODE": "1",
    "OPENBLAS_NUM_THREADS": "1",
    # PyArrow's own memory takes address space by the gigabyte, which children may not have.
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}
SILENCE_S = 60.0
"""A child that does not come to its next input within this is ended."""
MEMORY_BYTES = 1 << 30
"""What reading one input may take beside what the child has when it starts."""
MOST_FAULTS = 50
"""A target stops here: more of the same says nothing new."""
_MEMORY_DISK = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Where inputs become files: in memory, since a disk would take most of the time."""


@dataclass(frozen=True)
class Target:
    """A reader under test."""

    name: str
    read: Callable[[bytes, Path], object]
    """Writes ``data`` into the empty folder and reads it; the folder is the working folder and emptied afterwards."""
    seeds: Callable[[], Sequence[bytes]]
    """Makes good inputs; called once in each child."""
    own: tuple[type[Exception], ...] = (SpmarkError,)
    """What the reader may raise."""
    commands: bool = False
    """The reader may run commands; what they write beside the folder is still a fault."""
    limit_s: float = 5.0
    """Processor time that one input may take."""
    claims: bool = False
    """The reader asks for the memory that a file claims, and refuses the file where there is not so much."""


@dataclass(frozen=True)
class Fault:
    """One input that a reader did not survive as it should."""

    target: str
    number: int
    kind: str
    """``exception``, ``death``, ``silence``, ``slow``, ``memory``, ``trespass``, ``left behind`` or ``good input``."""
    detail: str

    def __str__(self) -> str:
        return f"{self.target} --input {self.number}: {self.kind}: {self.detail}"


@dataclass
class Tally:
    """What came of a target's inputs."""

    target: str
    inputs: int = 0
    accepted: int = 0
    """Read without an error; the rest was refused by an own error, or is a fault."""
    seconds: float = 0.0
    faults: list[Fault] = field(default_factory=list)


def targets() -> dict[str, Target]:
    """Find the targets of this folder's modules, by name."""
    modules = [importlib.import_module(f"fuzz.{path.stem}") for path in sorted(FOLDER.glob("targets_*.py"))]
    return {target.name: target for module in modules for target in module.TARGETS}


def find_target(name: str) -> Target:
    """Give one target. Areas that do not name it are not imported, which takes longer than most inputs."""
    for path in sorted(FOLDER.glob("targets_*.py")):
        if f'"{name}"' in path.read_text():
            for target in importlib.import_module(f"fuzz.{path.stem}").TARGETS:
                if target.name == name:
                    return target
    raise KeyError(name)


def input_of(target: Target, seeds: Sequence[bytes], seed: int, number: int) -> bytes:
    """Make input ``number``: a good one first, then mutated ones."""
    if number < len(seeds):
        return seeds[number]
    return mutated(Random(f"{target.name}/{seed}/{number}"), seeds)


def fuzz(name: str, *, inputs: int | None = None, seconds: float | None = None, seed: int = 0) -> Tally:
    """Run a target until ``inputs`` are done or ``seconds`` are over, in as many children as it takes.

    All good inputs are read, however few seconds there are.
    """
    tally, began = Tally(name), time.monotonic()
    number: int | None = 0
    while number is not None and len(tally.faults) < MOST_FAULTS:
        left = None if seconds is None else max(seconds - (time.monotonic() - began), 0.0)
        plan = {"target": name, "seed": seed, "first": number, "inputs": inputs, "seconds": left}
        number = _one_child(tally, plan, number)
    tally.seconds = time.monotonic() - began
    return tally


def _one_child(tally: Tally, plan: Mapping[str, object], first: int) -> int | None:
    """Start a child at input ``first`` and follow it to its end; give the input to go on with, None after the last."""
    reports, sent = os.pipe()
    with (
        tempfile.TemporaryDirectory(prefix="spmark-fuzz-", dir=_MEMORY_DISK) as root,
        tempfile.TemporaryFile() as stderr,
    ):
        path = os.pathsep.join([str(FOLDER.parent), os.environ.get("PYTHONPATH", "")])
        child = subprocess.Popen(
            [sys.executable, "-m", "fuzz.child", json.dumps({**plan, "root": root}), str(sent)],
            pass_fds=(sent,),
            stdout=stderr,
            stderr=stderr,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path, **_SETTINGS},
        )
        os.close(sent)
        at = first - 1
        ended = ""
        for line in _lines(reports):
            if line is None:
                ended = "silence"
                child.kill()
                break
            word, _, rest = line.partition(" ")
            if word == "input":
                at = int(rest)
                tally.inputs += 1
            elif word == "accepted":
                tally.accepted += 1
            elif word == "done":
                ended = "done"
            else:
                tally.faults.append(Fault(tally.target, at, *json.loads(rest)))
        os.close(reports)
        status = child.wait()
        if ended == "done":
            return None
        stderr.seek(0)
        said = stderr.read().decode(errors="replace")[-1500:]
        if at < first:
            raise RuntimeError(f"{tally.target}: the child ended with {status} before its first input:\n{said}")
        detail = f"no answer for {SILENCE_S} s" if ended else f"exit status {status}\n{said}"
        tally.faults.append(Fault(tally.target, at, ended or "death", detail))
        return at + 1


def _lines(reports: int) -> Iterator[str | None]:
    """Give a child's lines as they come; None where none came for too long. Loading modules may take longer."""
    rest, limit = b"", 120.0
    while True:
        if not select.select([reports], [], [], limit)[0]:
            yield None
            return
        block = os.read(reports, 1 << 16)
        if not block:
            return
        limit = SILENCE_S
        *lines, rest = (rest + block).split(b"\n")
        yield from (line.decode() for line in lines)
