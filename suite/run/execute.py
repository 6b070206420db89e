"""Runs a sweep on one device and appends a record for each case, so that it can stop and go on anywhere.

A case runs in a child process (`spmark.suite.run.worker`), which gives its outcome. Here alone the case, the outcome
and the machine are joined into a record. Nothing is written to a terminal.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

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
    spec = find(device) if isinstance(device, str) else device
    chosen = choose(sweep, spec.kind, options.only)  # a wrong name is told before a calibration starts
    environment = collect(calibrated(spec), options.sparse_library)
    folder = record_folder(Path(out), sweep.name, environment.device.name)
    return run_chosen(chosen, environment, folder, options, watcher=watcher or Watcher(), until=until)


def run_chosen(
    chosen: Chosen, environment: Environment, folder: Path, options: Options, *, watcher: Watcher, until: float
) -> Summary:
    """Run the chosen cases of a sweep in a known environment into a folder: the second half of `execute`."""
    started = time.monotonic()
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
        if environment.digest not in plan.history.environments:
            with RecordFile(folder / ENVIRONMENTS) as file:
                file.append(EnvironmentRow(digest=environment.digest, environment=environment))
        files, sparse_library = files_of(chosen.cases), environment.sparse_library
        setup = Setup(device=environment.device, options=options, files=files, sparse_library=sparse_library)
        worker = stack.enter_context(Worker(setup, stop))
        watcher.begun(plan)
        if todo:
            with RecordFile(folder / RUNS) as file:
                file.append(RunRow.of(chosen.sweep, environment.digest, len(todo), changes))
        for item in todo:
            if stop.asked or time.monotonic() >= until:
                break
            try:
                outcome, seen = _measured(item, worker, watcher)
            except Interrupted:
                break
            row = Measurement.of(item.spec, outcome, environment)
            # The candidates first: a record says that its case is done with.
            candidates.append_all(CandidateRow.of(row, one) for one in seen)
            records.append(row)
            rows.append(row)
            watcher.recorded(row)
    seconds, left = time.monotonic() - started, len(todo) - len(rows)
    return Summary(folder, tuple(rows), plan.count("skip"), left, stop.asked, seconds, environment.cores)


def _measured(item: Item, worker: Worker, watcher: Watcher) -> Result:
    case = item.spec
    if item.refused is not None:
        return Result(Outcome(status=Status.UNSUPPORTED, reason=item.refused))
    watcher.entered(case, "starting")
    return worker.measure(case, lambda phase: watcher.entered(case, phase))


def _tell_of_other_baselines(plan: Plan) -> None:
    if others := [item.other_baseline for item in plan.items if item.other_baseline]:
        _log.warning(
            "%d cases are done and were measured beside %s, which is not their baseline now: --retry ok measures them "
            "again",
            len(others), " and ".join(dict.fromkeys(others)),
        )  # fmt: skip
