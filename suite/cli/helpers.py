"""Helper processes of a command: one for each core that this process may use."""

from __future__ import annotations

import gc
import logging
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import forkserver, get_context

from spmark.impls.core.cores import allowed_cores
from spmark.impls.core.errors import SpmarkError
from spmark.suite.cli.logs import log_to_screen

_RARELY = 50_000
"""New objects after which cycles are looked for: a report holds millions of objects, and next to no cycles.

Python's 700 take a seventh of a report's time.
"""


@contextmanager
def helpers(*modules: str, at_once: bool = False) -> Iterator[Executor | None]:
    """Give a pool of processes, which start with the first call; None on one core.

    Meanwhile this process collects cycles rarely, and so do the helpers. The program must be importable: a script needs
    its guard (``if __name__ == "__main__"``).

    Parameters
    ----------
    modules : str
        Imported once for all helpers.
    at_once : bool
        Whether these imports begin now, beside those of this process: for what is certain to need helpers.

    Raises
    ------
    SpmarkError
        A helper was killed.
    """
    usual = gc.get_threshold()
    gc.set_threshold(_RARELY, *usual[1:])
    try:
        with _pool(modules, at_once=at_once) as pool:
            yield pool
    finally:
        gc.set_threshold(*usual)


@contextmanager
def _pool(modules: Sequence[str], *, at_once: bool) -> Iterator[Executor | None]:
    cores = len(allowed_cores())
    if cores == 1:
        yield None
        return
    context = get_context("forkserver")
    context.set_forkserver_preload([*modules])
    if at_once:
        forkserver.ensure_running()
    pool = ProcessPoolExecutor(cores, context, _set_up, (logging.getLogger().level,))
    try:
        yield pool
    except BrokenProcessPool as error:
        raise SpmarkError(
            "a helper process was ended from outside, for want of memory perhaps: free some memory, or allow one core "
            "(taskset -c 0), which needs no helpers"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _set_up(level: int) -> None:
    """Speak as the parent does, and leave it to the parent to answer Ctrl-C."""
    log_to_screen(level)
    gc.freeze()  # what all helpers have imported need not be walked over again and again
    gc.set_threshold(_RARELY, *gc.get_threshold()[1:])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
