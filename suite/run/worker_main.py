"""The process that measures: it may crash, hang or poison its device without harm to the runner.

`spmark.suite.run.worker` runs this file by its path in a session of its own, ``python -P worker_main.py FD RUNNER``.
When the runner dies, this process ends with every process that it started. The first lines tie it to its runner before
anything slow is imported, since a child that was stopped while it imports would outlive a runner that is killed.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from queue import SimpleQueue

    from spmark.records.schema import CaseSpec
    from spmark.suite.measure import Bench
    from spmark.suite.run.messages import Result

_PR_SET_PDEATHSIG = 1
_LOOK_S = 1.0
_ORPHANED_EXIT = 87


def tie(runner: int) -> None:
    """Make this process die with the runner, and before it when memory runs out.

    On Linux the kernel does it, whatever the process is doing and also where it is stopped. Elsewhere a thread looks
    for the runner every second, which a stopped process cannot do.

    Parameters
    ----------
    runner : int
        Process id of the parent, as the parent says: it may have died before this call.
    """
    tied = sys.platform == "linux" and ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) == 0
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    if os.getppid() != runner:
        os._exit(_ORPHANED_EXIT)
    if not tied:
        threading.Thread(target=_watch, args=(runner,), name="spmark-runner", daemon=True).start()


def _watch(runner: int) -> None:
    """End the whole session once the runner is gone."""
    while os.getppid() == runner:
        time.sleep(_LOOK_S)
    os.killpg(0, signal.SIGKILL)


def main(fd: int) -> int:
    """Measure the cases that come over the socket ``fd`` until told to end; gives the exit code.

    The setup stands on standard input: a file, so that a runner never waits for a child that is still being loaded.
    """
    import faulthandler
    from multiprocessing.connection import Connection

    from spmark.datasets.cache import Cache
    from spmark.impls.runtime.sparse_library import load_sparse_library
    from spmark.impls.table import name_of
    from spmark.records.schema import FINAL
    from spmark.suite.measure import Bench
    from spmark.suite.run.messages import POISONED_EXIT, Reply, Setup, send

    faulthandler.enable()
    os.set_inheritable(fd, False)  # else a process that outlives this one would hide its death from the runner
    connection = Connection(fd)
    setup = Setup.model_validate_json(sys.stdin.buffer.read())
    requests = _read_in_background(connection)
    what = "cannot be measured on"
    try:
        if setup.sparse_library:
            load_sparse_library(Path(setup.sparse_library))
        for file in setup.files:
            name_of(file)
        bench = Bench(
            setup.device,
            Cache.default(),
            setup.options,
            on_phase=lambda name: send(connection, Reply(kind="phase", text=name)),
        )
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
        outcome, seen = _measure(bench, case, setup.sparse_library)
        send(connection, Reply(kind="result", outcome=outcome, seen=seen))
        if outcome.status not in FINAL and not _computes(bench, setup.sparse_library):
            # A sticky error breaks every later call of this process, its own clean-up included, and a second cuSPARSE
            # stays.
            sys.stderr.flush()
            os._exit(POISONED_EXIT)


def _measure(bench: Bench, case: CaseSpec, sparse_library: str) -> Result:
    from spmark.impls.runtime.sparse_library import check_sparse_library
    from spmark.records.schema import Outcome, Status
    from spmark.suite.run.messages import Result

    try:
        result = bench.measure(case)
        if sparse_library:
            check_sparse_library(Path(sparse_library))
        return result
    except MemoryError as error:
        return Result(Outcome(status=Status.OUT_OF_MEMORY, reason=_message(error)))
    except Exception as error:
        return Result(Outcome(status=Status.RUN_ERROR, reason=_message(error)))


def _computes(bench: Bench, sparse_library: str) -> bool:
    from spmark.impls.runtime.sparse_library import check_sparse_library

    try:
        bench.canary()
        if sparse_library:
            check_sparse_library(Path(sparse_library))
    except Exception as error:
        sys.stderr.write(f"the device does not compute any more: {_message(error)}\n")
        return False
    return True


def _message(error: Exception) -> str:
    """Give the message of a foreseen error; of any other error also the place that raised it."""
    import traceback

    from spmark.impls.core.errors import SpmarkError

    if isinstance(error, SpmarkError):
        return str(error)
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(frame.filename).name}:{frame.lineno})"


def _read_in_background(connection: Connection) -> SimpleQueue[CaseSpec | None]:
    """Queue the cases; end the whole session at once when the runner is gone or makes no sense."""
    from queue import SimpleQueue

    from spmark.suite.run.messages import Request, receive

    requests: SimpleQueue[CaseSpec | None] = SimpleQueue()

    def read() -> None:
        try:
            while (case := receive(connection, Request).case) is not None:
                requests.put(case)
            requests.put(None)
        except (EOFError, OSError, ValueError):
            os.killpg(0, signal.SIGKILL)

    threading.Thread(target=read, name="spmark-requests", daemon=True).start()
    return requests


if __name__ == "__main__":
    tie(int(sys.argv[2]))
    sys.exit(main(int(sys.argv[1])))
