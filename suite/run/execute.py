"""Runs a sweep on one device and appends a record for each case, so that it can stop and go on anywhere.

A case runs in a child process (`spmark.suite.run.worker`), which gives its outcome. Here alone the case, the outcome
and the machine are joined into a record. Nothing is written to a terminal.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, NamedTuple, Protocol

from spmark.datasets.sweep.model import Sweep
from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.runtime.device import calibrated, find
from spmark.records.rowfile import CANDIDATES, ENVIRONMENTS, RECORDS, RUNS, RecordFile, lock_folder
from spmark.records.schema import CandidateRow, CaseSpec, Environment, EnvironmentRow, Measurement, Outcome, Status
from spmark.suite.environment import changes_digest, collect
from spmark.suite.plan.options import Options
from spmark.suite.plan.plan import Chosen, Item, Plan, choose, files_of, make_plan, record_folder
from spmark.suite.run.messages import Result, Setup
from spmark.suite.run.provenance import RunRow
from spmark.suite.run.signals import StopSignals
from spmark.suite.run.worker import Interrupted, Worker

_log = logging.getLogger(__name__)


class Watcher:
    """Receives the events of a run; override its methods to use them."""

    def begun(self, plan: Plan) -> None:
        """Tell what will be done."""

    def entered(self, case: CaseSpec, phase: str) -> None:
        """Tell that ``case`` has entered a phase: starting, loading, waiting, placing, building, checking, timing."""

    def recorded(self, row: Measurement) -> None:
        """Tell that a record is on disk."""


class Answer(NamedTuple):
    """A case that is done with, and the machine that it was measured on."""

    item: Item
    result: Result
    environment: Environment


class Place(Protocol):
    """Where cases are measured."""

    @property
    def environment(self) -> Environment:
        """The machine that a run is planned for."""

    @property
    def workers(self) -> int:
        """How many measure at a time."""

    def measure(
        self, items: Sequence[Item], options: Options, *, stop: StopSignals, watcher: Watcher, until: float
    ) -> Generator[Sequence[Answer], None, None]:
        """Give each item once, in whatever order, those together that are written together.

        Fewer are given where the user stops or the time is up.

        Raises
        ------
        DeviceError
            Nothing computes any more.
        """


NO_CLUSTER: AbstractContextManager[Place | None] = nullcontext()
"""In place of a cluster that a command enters: this process measures, on the device that it is told."""


@dataclass(frozen=True)
class Here:
    """On this machine, where a child of this process measures one case after the other."""

    environment: Environment
    workers: ClassVar[int] = 1

    def measure(
        self, items: Sequence[Item], options: Options, *, stop: StopSignals, watcher: Watcher, until: float
    ) -> Generator[Sequence[Answer], None, None]:
        """Measure the items in their order."""
        here, files = self.environment, files_of(item.spec for item in items)
        setup = Setup(device=here.device, options=options, files=files, sparse_library=here.sparse_library)
        with Worker(setup, stop) as worker:
            for item in items:
                if stop.asked or time.monotonic() >= until:
                    return
                if item.refused is None:
                    watcher.entered(item.spec, "starting")
                try:
                    result = refusal(item) or worker.measure(item.spec, partial(watcher.entered, item.spec))
                except Interrupted:
                    return
                yield [Answer(item, result, self.environment)]


def refusal(item: Item) -> Result | None:
    """Give what comes of a case that cannot run on its device; None for a case that is to be measured."""
    if item.refused is None:
        return None
    return Result(Outcome(status=Status.UNSUPPORTED, reason=item.refused))


@dataclass(frozen=True)
class Summary:
    """What a run did."""

    folder: Path
    rows: tuple[Measurement, ...]
    """Records written, in order."""
    skipped: int
    """Cases that were left alone."""
    left: int
    """Cases not reached because the user interrupted the run, or its time was up."""
    interrupted: bool
    """Whether the user asked the run to stop, perhaps after its last case."""
    seconds: float
    cores: int
    """Of the machine."""

    @property
    def statuses(self) -> Counter[Status]:
        """Records written, by how the case ended."""
        return Counter(row.status for row in self.rows)


def execute(
    sweep: Sweep,
    device: str | DeviceSpec = "auto",
    options: Options | None = None,
    *,
    out: str | Path = "results",
    watcher: Watcher | None = None,
    until: float = math.inf,
    place: Place | None = None,
) -> Summary:
    """Run a sweep: every case that has no record yet, each in a child, each record on disk before the next case starts.

    Parameters
    ----------
    sweep : Sweep
        Made in Python, or by `Sweep.load`.
    device : {"auto", "cuda", "cpu", "host-simt"} or DeviceSpec
        ``auto`` is the GPU where there is one, else the CPU.
    options : Options, optional
        Which cases to run, and what to time.
    out : str or Path
        Records go to ``OUT/SWEEP/DEVICE``, which is made where it is not there, and locked.
    watcher : Watcher, optional
        Is told what happens.
    until : float
        Time of `time.monotonic` after which no case begins. A case that has begun is finished, so that no case fails
        for lack of time.
    place : Place, optional
        Where cases are measured, such as `spmark.suite.cluster.gather.Cluster`, in place of ``device``.

    Raises
    ------
    SweepError
        An implementation, its config or the baseline is unknown, or a matrix's file is missing; nothing has run.
    DeviceError
        The device does not compute, no child can be started, or the cuSPARSE that is asked for is missing; what was
        measured is on disk.
    RecordError
        The folder is locked, unreadable, or full.
    """
    options = options or Options()
    if place is None:
        spec = find(device) if isinstance(device, str) else device
        chosen = choose(sweep, spec.kind, options.only)  # a wrong name is told before a calibration starts
        place = Here(collect(calibrated(spec), options.sparse_library))
    else:
        chosen = choose(sweep, place.environment.device.kind, options.only)
    folder = record_folder(Path(out), sweep.name, place.environment.device.name)
    return run_chosen(chosen, place, folder, options, watcher=watcher or Watcher(), until=until)


def run_chosen(
    chosen: Chosen, place: Place, folder: Path, options: Options, *, watcher: Watcher, until: float
) -> Summary:
    """Run the chosen cases of a sweep in a place into a folder: the second half of `execute`."""
    started, environment = time.monotonic(), place.environment
    with ExitStack() as stack:
        stack.enter_context(lock_folder(folder))
        plan = make_plan(chosen, environment, folder, options)
        _tell_of_other_baselines(plan)
        todo, rows = list(plan.todo()), []
        # Git may take long, so it is asked while Ctrl-C still ends the process.
        changes = changes_digest() if todo else ""
        stop = stack.enter_context(StopSignals())
        records = stack.enter_context(RecordFile(folder / RECORDS))
        candidates = stack.enter_context(RecordFile(folder / CANDIDATES))
        told: set[str] = set()

        def tell_of(machine: Environment) -> None:
            if machine.digest in told:
                return
            told.add(machine.digest)
            if machine.digest not in plan.history.environments:
                with RecordFile(folder / ENVIRONMENTS) as file:
                    file.append(EnvironmentRow(digest=machine.digest, environment=machine))
            if todo:
                with RecordFile(folder / RUNS) as file:
                    file.append(RunRow.of(chosen.sweep, machine.digest, len(todo), changes))

        tell_of(environment)
        watcher.begun(plan)
        measured = place.measure(todo, options, stop=stop, watcher=watcher, until=until)
        for answers in stack.enter_context(closing(measured)):
            for answer in answers:
                tell_of(answer.environment)
            new = [Measurement.of(answer.item.spec, answer.result.outcome, answer.environment) for answer in answers]
            # The candidates first: a record says that its case is done with.
            candidates.append_all(
                CandidateRow.of(row, one)
                for row, answer in zip(new, answers, strict=True)
                for one in answer.result.seen
            )
            records.append_all(new)
            rows += new
            for row in new:
                watcher.recorded(row)
    seconds, left = time.monotonic() - started, len(todo) - len(rows)
    return Summary(folder, tuple(rows), plan.count("skip"), left, stop.asked, seconds, environment.cores)


def _tell_of_other_baselines(plan: Plan) -> None:
    if others := [item.other_baseline for item in plan.items if item.other_baseline]:
        _log.warning(
            "%d cases are done and were measured beside %s, which is not their baseline now: --retry ok measures them "
            "again",
            len(others), " and ".join(dict.fromkeys(others)),
        )  # fmt: skip
