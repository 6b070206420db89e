"""Many kernels compiled side by side, by processes that wait for the next ones.

A search compiles a few kernels at a time, many times over. A process needs half a second before it can compile
anything, as long as a kernel takes, so that processes stay and are asked again. A process ends when nobody asks it for
a while, and with the process that started it, however that one ends.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import subprocess
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from queue import Empty, SimpleQueue
from tempfile import TemporaryFile
from typing import TypeVar

from spmark.impls.core.errors import CompileError, DeviceError
from spmark.impls.runtime.compile import Binary, cached_kernel, compile_kernel

T = TypeVar("T")
R = TypeVar("R")
Job = tuple[Path, str, str]
"""Source, expression and architecture, as of `compile_kernel`."""
_IDLE_S = 60.0
"""Seconds after which a process that nobody asks ends."""
_CACHE = "SPMARK_CACHE"
# Never what lies in the current folder; not multiprocessing, which would run the caller's main module again.
_COMMAND = (sys.executable, "-P", "-m", "spmark.impls.runtime.compile_pool")


def side_by_side(function: Callable[[T], R], tasks: Sequence[T], workers: int) -> list[R]:
    """Call ``function``, which waits for a compiler or an assembler, with every task, ``workers`` calls at a time.

    Results come in the order of the tasks. Where a call raises, tasks that have not begun are dropped.
    """
    with ThreadPoolExecutor(max(1, min(workers, len(tasks)))) as threads:
        return list(threads.map(function, tasks))


def compile_many(kernels: Iterable[Job], workers: int | None = None) -> list[Binary | CompileError]:
    """Compile kernels side by side; what is in the cache is read from there.

    Parameters
    ----------
    kernels : iterable of (source, expression, architecture)
    workers : int, optional
        Processes at most; by default one for each core.

    Returns
    -------
    list
        In the order given: the binary, or the error of a kernel that does not compile.

    Raises
    ------
    DeviceError
        A process ended before it answered; carries what it printed.
    """
    jobs = list(kernels)
    results: list[Binary | CompileError | None] = [cached_kernel(*job) for job in jobs]
    missing = [place for place, result in enumerate(results) if result is None]
    most = min(workers or os.cpu_count() or 1, len(missing))
    if most == 1:
        results[missing[0]] = _compile(jobs[missing[0]])
    elif most:
        for place, made in zip(missing, side_by_side(_ask, [jobs[place] for place in missing], most), strict=True):
            results[place] = made
    return [result for result in results if result is not None]


def _compile(job: Job) -> Binary | CompileError:
    try:
        return compile_kernel(*job)
    except CompileError as error:
        return error


def _ask(job: Job) -> Binary | CompileError:
    """Have a waiting process compile a job, or a new one where none waits."""
    source, expression, arch = job
    request = json.dumps(
        {"source": str(source), "expression": expression, "arch": arch, "cache": os.environ.get(_CACHE)}
    )
    answer = None
    while answer is None:
        worker, waited = _take()
        answer = worker.answer(request)
        if answer is None:
            printed = worker.end()
            if not waited:
                raise DeviceError(f"a process that compiles kernels ended: {printed}")
    _WAITING.put(worker)
    facts = json.loads(answer)
    if "error" in facts:
        return CompileError(str(source), expression, facts["error"])
    return Binary(b64decode(facts.pop("cubin")), **facts)


class _Worker:
    """A process that compiles what it is asked for, one kernel after the other."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._errors = TemporaryFile("w+")
        self._process = subprocess.Popen(
            _COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )

    def answer(self, request: str) -> str | None:
        """Ask and wait; None where the process has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(request + "\n")
            self._process.stdin.flush()
        except OSError:
            return None
        return self._process.stdout.readline() or None

    def end(self) -> str:
        """Close the process's input, which ends it; give its exit code and the end of its standard error."""
        with suppress(OSError), self._process:
            pass
        with self._errors as errors:
            errors.seek(0)
            return f"exit code {self._process.returncode}\n{errors.read()[-2000:]}"


_WAITING: SimpleQueue[_Worker] = SimpleQueue()
"""Processes that wait for a request. All searches share them: otherwise each search would start its own."""


def _take() -> tuple[_Worker, bool]:
    """Give a process, and whether it waited: a process that waited may have ended meanwhile."""
    while True:
        try:
            worker = _WAITING.get_nowait()
        except Empty:
            return _Worker(), False
        if worker.owner == os.getpid():  # a forked child leaves its parent's processes alone
            return worker, True


@atexit.register
def _end_all() -> None:
    with suppress(Empty):
        while True:
            worker = _WAITING.get_nowait()
            if worker.owner == os.getpid():
                worker.end()


def _serve() -> None:
    """Answer requests, a line of JSON each, until there is no more input or none came for a while."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who was interrupted decides what becomes of the work
    while select.select([sys.stdin], [], [], _IDLE_S)[0]:
        line = sys.stdin.readline()
        if not line:
            return
        request = json.loads(line)
        if request["cache"] is None:
            os.environ.pop(_CACHE, None)
        else:
            os.environ[_CACHE] = request["cache"]
        result = _compile((Path(request["source"]), request["expression"], request["arch"]))
        if isinstance(result, CompileError):
            facts = {"error": result.log}
        else:
            facts = {**asdict(result), "cubin": b64encode(result.cubin).decode()}
        sys.stdout.write(json.dumps(facts) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _serve()
