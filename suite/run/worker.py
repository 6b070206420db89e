"""The runner's side of the child process: starts it, gives it cases, and turns its death or silence into outcomes.

One `Worker` serves one device. After a crash, a hang or a poisoned device the next case gets a new child, whose canary
must compute before anything is measured.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import IO, Self

from spmark.impls.core.errors import DeviceError
from spmark.records.schema import CaseSpec, Outcome, Status
from spmark.suite.run import worker_main
from spmark.suite.run.messages import POISONED_EXIT, WAITING, Reply, Request, Result, Setup, receive, send
from spmark.suite.run.oom import oom_kills

_log = logging.getLogger(__name__)
_SLICE_S = 0.2
_STARTS = 2
_TAIL_BYTES = 2000
_DEATH_S = 5.0
"""Seconds that are waited for a killed process to be gone."""
_SENT = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that no fault of a process raises: somebody sends them."""


class Interrupted(Exception):
    """The user asked to stop; the case in the child was given up."""


@dataclass
class _Child:
    process: subprocess.Popen[bytes]
    connection: Connection
    log: IO[bytes]


class _Silence(Exception):
    pass


class _Death(Exception):
    pass


class Worker:
    """A killable child process that measures cases on one device.

    Parameters
    ----------
    setup : Setup
        What the child measures on.
    stop : callable
        Asked several times a second; True gives up the current case.
    start_limit_s : float
        Seconds that a child may take until its canary has computed.
    """

    def __init__(self, setup: Setup, stop: Callable[[], bool] = lambda: False, start_limit_s: float = 120.0) -> None:
        self._setup, self._stop, self._start_limit_s = setup, stop, start_limit_s
        self._child: _Child | None = None
        self._blame = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def measure(self, case: CaseSpec, on_phase: Callable[[str], None] = lambda phase: None) -> Result:
        """Measure a case; whatever happens to the child becomes an outcome.

        Parameters
        ----------
        case : CaseSpec
            Its ``time_limit_s`` covers loading, building, checking and timing, but for turns of other processes.
        on_phase : callable
            Told each phase that the child enters.

        Raises
        ------
        DeviceError
            No child can be started, or the canary does not compute; names the case that ran last.
        Interrupted
            `stop` gave True; the child is gone.
        """
        if self._child is not None and self._child.process.poll() is not None:
            self._kill()  # the child died while it waited, not because of this case
        child = self._child or self._start()
        limit_s = math.inf if case.time_limit_s is None else case.time_limit_s
        deadline = time.monotonic() + limit_s
        log_start = os.fstat(child.log.fileno()).st_size
        phase, waits_since, result = "starting", 0.0, None
        kills = oom_kills()
        try:
            _tell(child, Request(case=case))
            while (reply := self._next(child, math.inf if phase == WAITING else deadline)).kind != "ready":
                if phase == WAITING:
                    deadline += time.monotonic() - waits_since
                if reply.kind == "result" and reply.outcome is not None:
                    result, phase = Result(reply.outcome, reply.seen), "answering"
                    # After a failure the child runs the canary before it says that it is ready.
                    deadline = time.monotonic() + self._start_limit_s
                elif reply.kind == "phase":
                    phase, waits_since = reply.text, time.monotonic()
                    on_phase(phase)
            return result or self._failure(case, Status.RUN_ERROR, "the process answered without a result")
        except _Silence:
            self._kill()
            if result is not None:
                return self._poisoned(case, result, "the canary kernel did not finish")
            reason = f"expected an end within {limit_s:g} s, found none while {phase}: killed"
            return self._failure(case, Status.TIMEOUT, reason)
        except _Death:
            code, tail = self._reap(child, log_start)
            if result is not None:
                return self._poisoned(case, result, tail or f"it ended with {_ending(code)}")
            return self._death(case, code, kills, f"while {phase}", tail)

    def close(self) -> None:
        """End the child; kill it where it does not end by itself."""
        if self._child is None:
            return
        with suppress(OSError, subprocess.TimeoutExpired):
            send(self._child.connection, Request(case=None))
            self._child.process.wait(5)
        self._kill()

    def _start(self) -> _Child:
        how = ""
        for _ in range(_STARTS):
            child = self._child = _spawn(self._setup)
            try:
                reply = self._next(child, time.monotonic() + self._start_limit_s)
                while reply.kind == "phase":
                    reply = self._next(child, time.monotonic() + self._start_limit_s)
                if reply.kind == "ready":
                    return child
                self._kill()
                raise DeviceError(f"the device {self._setup.device.name} {reply.text}{self._blame}")
            except _Silence:
                how = f"silent for {self._start_limit_s:g} s"
                self._kill()
            except _Death:
                code, tail = self._reap(child, 0)
                how = f"{_ending(code)}\n{tail}"
        raise DeviceError(
            f"{self._setup.device.name}: expected a measuring process, found that it dies at start ({_STARTS} times): "
            f"{how.strip()}{self._blame}; `spmark doctor` tells what is missing"
        )

    def _next(self, child: _Child, deadline: float) -> Reply:
        """Wait for the next message; the child's end counts even where a process of its own holds the socket open."""
        ended = False
        while True:
            if self._stop():
                self._kill()
                raise Interrupted
            left = deadline - time.monotonic()
            if child.connection.poll(max(0.0, min(_SLICE_S, left))):
                try:
                    return receive(child.connection, Reply)
                except (EOFError, OSError, ValueError) as error:
                    raise _Death from error
            if ended:
                raise _Death
            if left <= 0:
                raise _Silence
            ended = child.process.poll() is not None

    def _death(self, case: CaseSpec, code: int | None, kills: int | None, when: str, tail: str) -> Result:
        """Give the outcome of a case whose process ended; ``kills`` is what `oom_kills` said before the case."""
        status, reason, outside = Status.RUN_ERROR, f"the process ended with {_ending(code)} {when}", False
        if code is not None and -code in _SENT:
            reason = f"killed by signal {-code} ({_ending(code)}) {when}"
            if code == -signal.SIGKILL and kills is None:
                reason += ", which the runner did not send; this system does not say whether memory had run out"
            elif code == -signal.SIGKILL and kills != oom_kills():
                status, reason = Status.OUT_OF_MEMORY, f"{reason} by the system, since memory had run out"
            else:
                outside = True
                reason += ", which somebody sent: memory had not run out; the next run measures the case again"
        return self._failure(case, status, f"{reason}\n{tail}".strip(), killed_from_outside=outside)

    def _poisoned(self, case: CaseSpec, result: Result, how: str) -> Result:
        self._blame = f" (after {case.case_id}, which ended as {result.outcome.status})"
        reason = f"{result.outcome.reason}\nThis case poisoned the device and the process was replaced: {how}"
        return Result(result.outcome.model_copy(update={"reason": reason}), result.seen)

    def _failure(self, case: CaseSpec, status: Status, reason: str, *, killed_from_outside: bool = False) -> Result:
        self._blame = f" (after {case.case_id}, which ended as {status})"
        return Result(Outcome(status=status, reason=reason, killed_from_outside=killed_from_outside))

    def _reap(self, child: _Child, log_start: int) -> tuple[int | None, str]:
        """Give a child's exit code, None where the child had to be killed, and its last words."""
        code: int | None = None
        with suppress(subprocess.TimeoutExpired):
            code = child.process.wait(_SLICE_S * 10)
        tail = _tail(child.log, log_start)
        self._kill()
        return code, tail

    def _kill(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        with suppress(ProcessLookupError, PermissionError):  # the session's group: compilers and pools end with it
            os.killpg(child.process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):  # a driver may hold on to the process, which is dead but not gone
            child.process.wait(_DEATH_S)
        child.connection.close()
        _log.debug("child %d ended:\n%s", child.process.pid, _tail(child.log, 0))
        child.log.close()


def _spawn(setup: Setup) -> _Child:
    ours, theirs = Pipe()
    log = tempfile.TemporaryFile("wb+", buffering=0)
    # -P: the working directory may hold folders called datasets or report that must not shadow packages.
    command = [sys.executable, "-P", worker_main.__file__, str(theirs.fileno()), str(os.getpid())]
    try:
        # A file and not a message: a device's tables may be longer than a socket takes before the child reads.
        with tempfile.TemporaryFile() as given:
            given.write(setup.model_dump_json().encode())
            given.seek(0)
            process = subprocess.Popen(
                command,
                stdin=given,
                stdout=log,  # standard output belongs to the command line's own answer
                stderr=log,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
    except OSError as error:
        raise DeviceError(f"a measuring process cannot be started: {error}") from error
    finally:
        theirs.close()
    return _Child(process, ours, log)


def _tell(child: _Child, message: Request) -> None:
    try:
        send(child.connection, message)
    except OSError as error:
        raise _Death from error


def _ending(code: int | None) -> str:
    if code is None:
        return "a message that makes no sense (it was killed)"
    if code >= 0:
        return f"exit code {code}" + (" (device poisoned)" if code == POISONED_EXIT else "")
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _tail(log: IO[bytes], start: int) -> str:
    """Give the end of the child's output since ``start``."""
    size = os.fstat(log.fileno()).st_size
    log.seek(max(start, size - _TAIL_BYTES))
    return log.read().decode(errors="replace").strip()
