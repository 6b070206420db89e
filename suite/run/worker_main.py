"""The process that measures: it may crash, hang or poison its device without harm to the runner.

Started by `spmark.suite.run.worker` through `spmark.suite.run.tether` in a session of its own; when the runner dies,
this process ends with every process that it started.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Protocol

from spmark.datasets.sweep.model import Case
from spmark.impls.core.errors import SpmarkError
from spmark.impls.core.record import FINAL, Status
from spmark.impls.table import name_of
from spmark.suite.run.messages import POISONED_EXIT, Reply, Request, Setup, receive, send
from spmark.suite.run.rows import Failed, Result, make_row


class Measurer(Protocol):
    """What a bench factory gives."""

    def measure(self, case: Case) -> Result:
        """Measure one case; a failure that the bench can describe is a row and not an exception."""
        ...

    def canary(self) -> None:
        """Raise when the device does not compute."""
        ...


def open_bench(setup: Setup, on_phase: Callable[[str], None]) -> Measurer:
    """Make the bench of the suite on the setup's device."""
    from spmark.datasets.cache import Cache
    from spmark.suite.measure import Bench

    return Bench(setup.device, Cache.default(), setup.environment, setup.options, on_phase)


def main(fd: int) -> int:
    """Measure the cases that come over the socket ``fd`` until told to end; gives the exit code.

    The setup stands on standard input: a file, so that a runner never waits for a child that is still being loaded.
    """
    faulthandler.enable()
    os.set_inheritable(fd, False)  # else a process that outlives this one would hide its death from the runner
    connection = Connection(fd)
    setup = Setup.model_validate_json(sys.stdin.buffer.read())
    requests = _read_in_background(connection)

    def on_phase(name: str) -> None:
        send(connection, Reply(kind="phase", text=name))

    what = "cannot be measured on"
    try:
        for file in setup.files:
            name_of(file)
        bench = _factory(setup.factory)(setup, on_phase)
        what = "does not compute"
        bench.canary()
    except Exception as error:
        send(connection, Reply(kind="refused", text=f"{what}: {_message(error)}"))
        return 1
    while True:
        send(connection, Reply(kind="ready"))
        case = requests.get()
        if case is None:
            return 0
        row, candidates = _measure(bench, case, setup)
        send(connection, Reply(kind="result", row=row, candidates=list(candidates)))
        if row.status not in FINAL and not _computes(bench):
            # A sticky error breaks every later call of this process, its own clean-up included.
            sys.stderr.flush()
            os._exit(POISONED_EXIT)


def _measure(bench: Measurer, case: Case, setup: Setup) -> Result:
    try:
        return bench.measure(case)
    except MemoryError as error:
        failed = Failed(Status.OUT_OF_MEMORY, _message(error))
    except Exception as error:
        failed = Failed(Status.RUN_ERROR, _message(error))
    return Result(make_row(case, setup.device, setup.environment, failed, flush=setup.options.flush))


def _computes(bench: Measurer) -> bool:
    try:
        bench.canary()
    except Exception as error:
        sys.stderr.write(f"the device does not compute any more: {_message(error)}\n")
        return False
    return True


def _message(error: Exception) -> str:
    """Give the message of a foreseen error; of any other error also the place that raised it."""
    if isinstance(error, SpmarkError):
        return str(error)
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(frame.filename).name}:{frame.lineno})"


def _factory(name: str) -> Callable[[Setup, Callable[[str], None]], Measurer]:
    module, _, label = name.partition(":")
    factory: Callable[[Setup, Callable[[str], None]], Measurer] = getattr(import_module(module), label)
    return factory


def _read_in_background(connection: Connection) -> SimpleQueue[Case | None]:
    """Queue the cases; end the whole session at once when the runner is gone or makes no sense."""
    requests: SimpleQueue[Case | None] = SimpleQueue()

    def read() -> None:
        case: Case | None
        while True:
            try:
                case = receive(connection, Request).case
            except (EOFError, OSError, ValueError):
                os.killpg(0, signal.SIGKILL)
            requests.put(case)
            if case is None:
                return

    threading.Thread(target=read, name="spmark-requests", daemon=True).start()
    return requests
