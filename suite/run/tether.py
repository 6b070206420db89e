"""The first lines of a measuring process: they tie it to its runner before anything slow is imported.

`spmark.suite.run.worker` runs this file by its path, ``python -P tether.py FD RUNNER``. Importing what measures takes a
second or more: a child that was stopped in that second would outlive a runner that is killed, since only a signal of
the kernel ends a stopped process.
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
        threading.Thread(target=_watch, args=(runner,), name="spmark-tether", daemon=True).start()


def _watch(runner: int) -> None:
    """End the whole session once the runner is gone."""
    while os.getppid() == runner:
        time.sleep(_LOOK_S)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    tie(int(sys.argv[2]))
    from spmark.suite.run.worker_main import main

    sys.exit(main(int(sys.argv[1])))
