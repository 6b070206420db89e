"""Many kernels compiled side by side, by this process and by others that wait for the next ones.

A search compiles a few kernels at a time, many times over. Another process needs up to a second before it can compile
anything, and a kernel takes a tenth. So this process compiles until the others have started; a first plan of two or
three kernels is compiled before that. The other processes stay for further requests. Each ends when no request comes
for a while, and also when the process that started it ends in any way.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from tempfile import TemporaryFile
from threading import Thread
from typing import Any, TypeVar

from spmark.impls.core.errors import CompileError, DeviceError
from spmark.impls.core.files import cache_root
from spmark.impls.core.machine import allowed_cores
from spmark.impls.runtime.compile import Binary, cached_kernel, compile_kernel, nvrtc_version

T = TypeVar("T")
R = TypeVar("R")
Job = tuple[Path, str, str]
"""Source, expression and architecture, as of `compile_kernel`."""
Task = tuple[Job, Future[Binary | CompileError]]
_IDLE_S = 60.0
"""Seconds without a request after which a process ends."""
_JOBS_OF_A_START = 4
"""Kernels for which a process is worth starting: the start takes a core from others, and the time of eight kernels
(H200 machine of 16 cores: 0.45 s to start, 0.55 s until the compiler is loaded, 0.13 s a kernel)."""
_SPARE = 4
"""Of so many cores one is spare: a process is started for any second kernel, since a search has more of them."""
_READY = "ready"
"""The first line of a process, before any request."""
# -P imports nothing from the current folder. multiprocessing would run the caller's main module again.
_COMMAND = (sys.executable, "-P", "-m", "spmark.impls.runtime.compile_pool")


def side_by_side(function: Callable[[T], R], tasks: Sequence[T], workers: int) -> list[R]:
    """Call ``function``, which waits for a compiler or an assembler, with every task, ``workers`` calls at a time.

    Results come in the order of the tasks. Where a call raises, tasks that have not begun are dropped.
    """
    with ThreadPoolExecutor(max(1, min(workers, len(tasks)))) as threads:
        return list(threads.map(function, tasks))


def compile_many(kernels: Iterable[Job], workers: int | None = None) -> list[Binary | CompileError]:
    """Compile kernels side by side; binaries in the cache are read from there.

    Parameters
    ----------
    kernels : iterable of (source, expression, architecture)
    workers : int, optional
        Processes at most, this one included; by default one for each core that this process may use.

    Returns
    -------
    list
        In the order given: the binary, or the error of a kernel that does not compile.

    Raises
    ------
    DeviceError
        Another process ended before it answered; the error carries what the process printed.
    """
    results: list[Future[Binary | CompileError]] = []
    tasks: SimpleQueue[Task] = SimpleQueue()
    for job in kernels:
        results.append(Future())
        binary = cached_kernel(*job)
        if binary is None:
            tasks.put((job, results[-1]))
        else:
            results[-1].set_result(binary)
    cores = workers or len(allowed_cores())
    helpers, started = min(cores, tasks.qsize()) - 1, max(tasks.qsize() // _JOBS_OF_A_START, cores // _SPARE)
    for _ in range(min(helpers, _WAITING.qsize() + started)):
        Thread(target=_help, args=(tasks,), daemon=True).start()  # one without a job delays nobody
    with suppress(Empty):
        while True:
            job, result = tasks.get_nowait()
            result.set_result(_compile(job))
    return [result.result() for result in results]


def _help(tasks: SimpleQueue[Task]) -> None:
    """Have one process take jobs until none is left; a process that waited may have ended and is replaced."""
    result: Future[Binary | CompileError] = Future()
    try:
        worker, waited = _take()
        with suppress(Empty):
            while True:
                job, result = tasks.get_nowait()
                made = worker.answer(job)
                while made is None and waited:
                    worker.end()
                    worker, waited = _take()
                    made = worker.answer(job)
                if made is None:
                    raise DeviceError(f"a process that compiles kernels ended: {worker.end()}")
                result.set_result(made)
        _WAITING.put(worker)
    except DeviceError as error:
        result.set_exception(error)
    except Exception as error:  # whoever waits for the job must hear of its end
        result.set_exception(DeviceError(f"a process that compiles kernels cannot be used: {error}"))


def _compile(job: Job) -> Binary | CompileError:
    try:
        return compile_kernel(*job)
    except CompileError as error:
        return error


class _Worker:
    """A process that compiles requested kernels one after the other; ready once it is made.

    Raises
    ------
    DeviceError
        The process ended before it was ready; the error carries what the process printed.
    """

    _process: Any

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._errors = TemporaryFile("w+")
        self._process = subprocess.Popen(
            _COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )
        if self._process.stdout.readline() != f"{_READY}\n":
            raise DeviceError(f"a process that compiles kernels ended: {self.end()}")

    def answer(self, job: Job) -> Binary | CompileError | None:
        """Ask and wait; None where the process has ended."""
        source, expression, arch = job
        request = {"source": str(source), "expression": expression, "arch": arch, "cache": str(cache_root())}
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except OSError:
            return None
        line = self._process.stdout.readline()
        if not line.endswith("\n"):  # the process ended, perhaps within its answer
            return None
        log = json.loads(line)
        return _compile(job) if log is None else CompileError(str(source), expression, log)

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


def _serve() -> None:
    """Answer requests, a line of JSON each, until the input ends or no request comes for a while."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that was interrupted decides about the work
    nvrtc_version()  # the compiler is loaded before a job is taken
    _say(_READY)
    while select.select([sys.stdin], [], [], _IDLE_S)[0] and (line := sys.stdin.readline()):
        request = json.loads(line)
        os.environ["SPMARK_CACHE"] = request["cache"]
        made = _compile((Path(request["source"]), request["expression"], request["arch"]))
        _say(json.dumps(made.log if isinstance(made, CompileError) else None))  # the cache holds the binary


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _serve()
