"""What a worker of a cluster does: it drives one measuring child, as a run on one machine does, and tells what comes.

A worker is a process of Dask with one thread and one GPU. Its tasks take and give JSON. A case's outcome is told when
the case ends and not with its group, so that a worker that dies loses no more than the case that it was measuring.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from functools import cache, partial
from threading import Lock
from typing import Any, Literal

from pydantic import ConfigDict

from spmark.datasets.cache import Cache
from spmark.impls.core.errors import DeviceError
from spmark.impls.core.untrusted import Frozen
from spmark.impls.runtime.device import calibrated, find
from spmark.impls.table import name_of
from spmark.records.schema import CaseSpec, Environment, Outcome, SeenConfig
from spmark.suite.environment import collect
from spmark.suite.plan.options import Options
from spmark.suite.plan.plan import completed
from spmark.suite.run.messages import Result, Setup
from spmark.suite.run.share import SHARE, share_of_cores
from spmark.suite.run.worker import Interrupted, Worker


class Group(Frozen):
    """Cases of one problem, and what a worker needs to measure them: the whole argument of a task."""

    model_config = ConfigDict(ser_json_inf_nan="constants")  # a config or a limit may be infinite

    run: str
    """Name of the queue of this run."""
    number: int
    cases: tuple[CaseSpec, ...]
    device: str
    """As `spmark.impls.runtime.device.find` takes it."""
    like: Environment
    """The machine that the run was planned for."""
    options: Options
    files: tuple[str, ...] = ()
    """As in `Setup`."""
    probe: CaseSpec | None
    """What each worker measures before its first case, if anything (`spmark.suite.cluster.slow_gpus`)."""


class News(Frozen):
    """What a worker tells the process that owns the records."""

    kind: Literal["probed", "begun", "measured", "lost"]
    """``lost``: the worker leaves, because its machine cannot measure cases of this run."""
    worker: str
    case_id: str = ""
    next_id: str = ""
    """The case that begins now; empty where the group ends here."""
    environment: Environment | None = None
    """The worker's machine, of which it tells before its first outcome of a group."""
    cache: str = ""
    """As `cache_id`, told with the machine."""
    outcome: Outcome | None = None
    seen: list[SeenConfig] = []
    reason: str = ""


class _Child:
    """The measuring child of this process. It is kept from task to task, since it holds the matrix of the last case."""

    def __init__(self) -> None:
        self._setup: Setup | None = None
        self._worker: Worker | None = None
        self._lock, self._given_up = Lock(), False

    def measure(self, case: CaseSpec, setup: Setup) -> Result:
        with self._lock:
            if self._worker is None or setup != self._setup:
                self._close()
                self._setup, self._worker, self._given_up = setup, Worker(setup, lambda: self._given_up), False
            return self._worker.measure(case)

    def end(self) -> None:
        self._given_up = True
        with self._lock:
            self._close()

    def _close(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()


_child = _Child()
_probed: set[str] = set()
"""Runs in which this worker has measured the probe."""


def dask_setup(worker: object) -> None:
    """Take this process's share of the cores, before Dask starts the thread of its tasks; called by Dask."""
    if SHARE in os.environ:
        os.sched_setaffinity(0, share_of_cores())
        with suppress(PermissionError):
            os.setpgrp()  # Ctrl-C in a terminal is for the process that owns the records


async def end_child() -> None:
    """End the measuring child and give up its case, so that the GPU is free while no run needs it."""
    await asyncio.to_thread(_child.end)


@cache
def environment(device: str, sparse_library: str) -> Environment:
    """Describe the worker's machine and its GPU, calibrated, and the cuSPARSE that its child is to load."""
    return collect(calibrated(find(device)), sparse_library)


def described(device: str, sparse_library: str) -> str:
    """Give `environment` in JSON: a task."""
    return environment(device, sparse_library).model_dump_json()


def cache_id() -> str:
    """Give what tells the cache of this machine from others, and not from one that several machines see: a task.

    Empty where the cache cannot be written.
    """
    mark = Cache.default().root / "id"
    with suppress(OSError):
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.open("a").close()  # which leaves the time of a file that is there
        seen = mark.stat()
        return f"{seen.st_ino} {seen.st_mtime_ns}"
    return ""


def why_unlike(environment: Environment, like: Environment) -> str:
    """Say what of a machine would make its times another case's; empty for a machine like the one of the plan."""
    for what, found, expected in (
        ("device", environment.device.name, like.device.name),
        ("driver", environment.driver, like.driver),
        ("CUDA", environment.cuda, like.cuda),
        ("packages", environment.packages, like.packages),
    ):
        if found != expected:
            return f"expected the {what} {expected} of the first worker, found {found}"
    return ""


def measure_group(text: str) -> None:
    """Measure the cases of a `Group` that no earlier try of this task has told the outcome of: a task."""
    from distributed import Queue, get_client, get_worker

    group = Group.model_validate_json(text)
    worker, client = get_worker(), get_client()
    task, queue = worker.get_current_task(), Queue(group.run, client=client)

    def tell(told: int | None = None, **fields: Any) -> None:
        """Put news into the queue and note how many cases are told of, in the time of one answer of the scheduler."""
        text = News(worker=worker.address, **fields).model_dump_json()

        async def both() -> None:
            noted = [] if told is None else [client.set_metadata([group.run, str(group.number)], told)]
            await asyncio.gather(queue.put(text), *noted)

        client.sync(both)

    try:
        here = _checked(group)
        setup = Setup(device=here.device, options=group.options, files=group.files, sparse_library=here.sparse_library)
        told = client.get_metadata([group.run, str(group.number)], 0)
        todo = group.cases[told:]
        if not todo or cancelled(worker, task):
            return
        if group.probe is not None and group.run not in _probed:
            _probed.add(group.run)
            tell(kind="probed", environment=here, outcome=_child.measure(group.probe, setup).outcome)
        tell(kind="begun", next_id=todo[0].case_id, environment=here, cache=cache_id())
        for number, case in enumerate(todo, 1):
            outcome, seen = _child.measure(case, setup)
            following = "" if number == len(todo) or cancelled(worker, task) else todo[number].case_id
            tell(told + number, kind="measured", case_id=case.case_id, next_id=following, outcome=outcome, seen=seen)
            if not following:
                return
    except Interrupted:
        return
    except DeviceError as error:
        tell(kind="lost", reason=str(error))
        _leave(worker, str(error))


def _checked(group: Group) -> Environment:
    """Give this machine; raise `DeviceError` where it is not like the one that the cases were planned for."""
    for file in group.files:
        name_of(file)
    here = environment(group.device, group.options.sparse_library)
    if why := why_unlike(here, group.like):
        raise DeviceError(why)
    for case, own in zip(group.cases, completed(group.cases, group.options.flush), strict=True):
        if own.implementation_version != case.implementation_version:
            raise DeviceError(
                f"expected the code {case.implementation_version} of {case.implementation}, found "
                f"{own.implementation_version}: this worker has another checkout"
            )
        if own.matrix.file_sha256 != case.matrix.file_sha256:
            raise DeviceError(f"expected the file of {case.matrix.id} as the run has it, found none or another")
    return here


def cancelled(worker: Any, key: object) -> bool:
    """Tell whether nobody waits for the rest of a task: Dask cannot stop a thread, so its task asks."""
    task = worker.state.tasks.get(key)
    return task is None or task.state == "cancelled"


def measures(dask_worker: Any) -> bool:
    """Tell whether a task still runs on a worker, also one that was cancelled; called by Dask."""
    return bool(dask_worker.active_threads)


def _leave(worker: Any, reason: str) -> None:
    """Close the worker for good; Dask gives its task to another one."""
    from distributed import Reschedule

    worker.loop.add_callback(partial(worker.close, executor_wait=False, nanny=True, reason=reason))
    raise Reschedule
