"""Many kernels compiled side by side, by this process and by others that wait for the next ones.

A search compiles a few kernels at a time, many times over. Another process needs up to a second before it can compile
anything, and a kernel takes a tenth. So this process compiles until the others have started; a first plan of two or
three kernels is compiled before that. The other processes stay for further requests. Each ends when no request comes
for a while, and also when the process that started it ends in any way.
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
from threading import Thread
from typing import TypeVar

from spmark.impls.core.cores import allowed_cores
from spmark.impls.core.errors import CompileError, DeviceError
from spmark.impls.runtime.compile import Binary, cached_kernel, compile_kernel, nvrtc_version

T = TypeVar("T")
R = TypeVar("R")
Job = tuple[Path, str, str]
"""Source, expression and architecture, as of `compile_kernel`."""
Answer = tuple[int, Binary | CompileError] | DeviceError
"""A job's place and result, or the error that ended a process."""
_IDLE_S = 60.0
"""Seconds without a request after which a process ends."""
_CACHE = "SPMARK_CACHE"
_JOBS_OF_A_START = 4
"""Kernels for which a process is worth starting: the start takes a core from others, and the time of eight kernels
(H200 machine of 16 cores: 0.45 s to start, 0.55 s until the compiler is loaded, 0.13 s a kernel)."""
_READY = "ready\n"
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
    jobs = list(kernels)
    results: dict[int, Binary | CompileError] = {}
    open_jobs: SimpleQueue[tuple[int, Job]] = SimpleQueue()
    for place, job in enumerate(jobs):
        binary = cached_kernel(*job)
        if binary is None:
            open_jobs.put((place, job))
        else:
            results[place] = binary
    answers: SimpleQueue[Answer] = SimpleQueue()
    waiting = _WAITING.qsize()
    helpers = min(workers or len(allowed_cores()), open_jobs.qsize()) - 1
    for _ in range(min(helpers, waiting + open_jobs.qsize() // _JOBS_OF_A_START)):
        Thread(target=_help, args=(open_jobs, answers), daemon=True).start()  # one without a job delays nobody
    with suppress(Empty):
        while True:
            place, job = open_jobs.get_nowait()
            results[place] = _compile(job)
            while not answers.empty():
                results.update([_received(answers)])
    while len(results) < len(jobs):
        results.update([_received(answers)])
    return [results[place] for place in range(len(jobs))]


def _received(answers: SimpleQueue[Answer]) -> tuple[int, Binary | CompileError]:
    answer = answers.get()
    if isinstance(answer, DeviceError):
        raise answer
    return answer


def _help(open_jobs: SimpleQueue[tuple[int, Job]], answers: SimpleQueue[Answer]) -> None:
    """Have one process take jobs until none is left; a process that waited may have ended and is replaced."""
    try:
        worker, waited = _take()
        with suppress(Empty):
            while True:
                place, job = open_jobs.get_nowait()
                made = worker.answer(job)
                while made is None and waited:
                    worker.end()
                    worker, waited = _take()
                    made = worker.answer(job)
                if made is None:
                    raise DeviceError(f"a process that compiles kernels ended: {worker.end()}")
                answers.put((place, made))
        _WAITING.put(worker)
    except DeviceError as error:
        answers.put(error)
    except Exception as error:  # whoever waits for the job must hear of its end
        answers.put(DeviceError(f"a process that compiles kernels cannot be used: {error}"))


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

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._errors = TemporaryFile("w+")
        self._process = subprocess.Popen(
            _COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != _READY:
            raise DeviceError(f"a process that compiles kernels ended: {self.end()}")

    def answer(self, job: Job) -> Binary | CompileError | None:
        """Ask and wait; None where the process has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        source, expression, arch = job
        request = {"source": str(source), "expression": expression, "arch": arch, "cache": os.environ.get(_CACHE)}
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except OSError:
            return None
        line = self._process.stdout.readline()
        if not line.endswith("\n"):  # the process ended, perhaps within its answer
            return None
        facts = json.loads(line)
        if "error" in facts:
            return CompileError(str(source), expression, facts["error"])
        return Binary(b64decode(facts.pop("cubin")), **facts)

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
    """Answer requests, a line of JSON each, until the input ends or no request comes for a while."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that was interrupted decides about the work
    nvrtc_version()  # the compiler is loaded before a job is taken
    sys.stdout.write(_READY)
    sys.stdout.flush()
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
