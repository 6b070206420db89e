"""Runs the cases of a sweep on one device and appends a record for each, so that it can stop and go on anywhere.

A case runs in a child process (`spmark.suite.run.worker`); this file keeps the books and writes to no terminal.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from spmark.datasets.sweep.model import Case, Sweep, expand
from spmark.impls.core.record import Environment, EnvironmentRow, Flush, Measurement, Status
from spmark.impls.core.recordfile import FolderLock, RecordFile
from spmark.impls.runtime.device import calibrated, find
from spmark.suite.environment import changes_digest, collect
from spmark.suite.plan.filters import select
from spmark.suite.plan.options import Options
from spmark.suite.plan.plugins import files_of, with_files
from spmark.suite.plan.refusals import refusals
from spmark.suite.plan.resume import CANDIDATES, ENVIRONMENTS, RECORDS, History, record_folder
from spmark.suite.plan.todo import Agenda, Item, make_agenda, refuse_missing_files
from spmark.suite.run.messages import DEFAULT_FACTORY, Setup
from spmark.suite.run.provenance import RUNS, RunRow
from spmark.suite.run.rows import Failed, Result, make_row
from spmark.suite.run.signals import StopSignals
from spmark.suite.run.worker import Interrupted, Worker

_log = logging.getLogger(__name__)


class Watcher:
    """Receives the events of a run; override its methods to use them."""

    def begun(self, agenda: Agenda) -> None:
        """Tell what will be done."""

    def entered(self, case: Case, phase: str) -> None:
        """Tell that ``case`` has entered a phase: starting, loading, waiting, placing, building, checking, timing."""

    def recorded(self, item: Item, row: Measurement) -> None:
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
    """Cases not reached because the user interrupted the run."""
    interrupted: bool
    """Whether the user asked the run to stop, perhaps after its last case."""
    seconds: float

    @property
    def statuses(self) -> Counter[Status]:
        """Records written, by how the case ended."""
        return Counter(row.status for row in self.rows)


def run(
    sweep: Sweep,
    out: str | Path = "results",
    device: str = "auto",
    options: Options | None = None,
    watcher: Watcher | None = None,
) -> Summary:
    """Run a sweep as ``spmark run`` does: what is measured already is left alone.

    Parameters
    ----------
    sweep : Sweep
        Made in Python, or by `Sweep.load`.
    out : str or Path
        Records go to ``OUT/SWEEP/DEVICE``.
    device : {"auto", "cuda", "cpu", "host-simt"}
        ``auto`` is the GPU where there is one, else the CPU.
    options : Options, optional
        How to run; what it says of the sweep and the device counts for nothing.
    watcher : Watcher, optional
        Is told what happens.

    Raises
    ------
    SweepError, DeviceError, RecordError
        As `run_cases`.
    """
    spec = find(device)
    # `spmark provenance` writes the sweep into the file that the recorded command names.
    told = {"sweep": f"{sweep.name}.yaml", "device": device, "overrides": ()}
    options = (options or Options()).model_copy(update=told)
    cases = select(expand(with_files(sweep), spec.kind), options.only)
    refused = refusals(cases, spec.kind)  # a wrong name is told before a calibration starts
    environment = collect(calibrated(spec))
    folder = record_folder(Path(out), sweep.name, spec.name)
    return run_cases(cases, folder, environment, options, watcher, sweep=sweep, refused=refused)


def run_cases(
    cases: Sequence[Case],
    folder: Path,
    environment: Environment,
    options: Options | None = None,
    watcher: Watcher | None = None,
    *,
    sweep: Sweep | None = None,
    refused: Mapping[str, str] | None = None,
    factory: str = DEFAULT_FACTORY,
) -> Summary:
    """Run what is to be run, each case in the child, each record on disk before the next case starts.

    Parameters
    ----------
    cases : sequence of Case
        In the order to run them; cases of one problem should stand together.
    folder : Path
        Of the records; made where it is not there, and locked.
    environment : Environment
        Of this machine; its device is what cases run on.
    options : Options, optional
        How to run.
    watcher : Watcher, optional
        Is told what happens.
    sweep : Sweep, optional
        What the cases are of, for ``runs.jsonl``.
    refused : mapping of str to str, optional
        What `spmark.suite.plan.refusals.refusals` says of the cases, where that was asked already.
    factory : str
        ``module:callable`` that makes the bench in the child.

    Raises
    ------
    SweepError
        An implementation, its config or the baseline is unknown, or a matrix's file is missing; nothing has run.
    DeviceError
        The device does not compute or no child can be started; what was measured is on disk.
    RecordError
        The folder is locked, unreadable, or full.
    """
    options, watcher, started = options or Options(), watcher or Watcher(), time.monotonic()
    if refused is None:
        refused = refusals(cases, environment.device.kind)  # a wrong name is told before a folder is made
    with ExitStack() as stack:
        stack.enter_context(FolderLock(folder))
        history = History.read(folder)
        agenda = make_agenda(cases, refused, environment, history, options)
        refuse_missing_files(agenda)
        _tell_of_other_baselines(agenda)
        todo, rows = list(agenda.todo()), []
        # Git may take long, so it is asked while Ctrl-C still ends the process.
        changes = changes_digest() if todo else ""
        stop = stack.enter_context(StopSignals())
        records = stack.enter_context(RecordFile(folder / RECORDS))
        candidates = stack.enter_context(RecordFile(folder / CANDIDATES))
        if environment.digest not in history.environments:
            with RecordFile(folder / ENVIRONMENTS) as file:
                file.append(EnvironmentRow(digest=environment.digest, environment=environment))
        setup = Setup(
            device=environment.device,
            environment=environment.digest,
            factory=factory,
            options=options,
            files=files_of(cases),
        )
        worker = stack.enter_context(Worker(setup, stop))
        watcher.begun(agenda)
        if todo:
            with RecordFile(folder / RUNS) as file:
                file.append(RunRow.of(options, sweep, environment.digest, len(todo), changes))
        for item in todo:
            if stop.asked:
                break
            try:
                result = _outcome(item, worker, environment, watcher, options.flush)
            except Interrupted:
                break
            # The candidates first: a record says that its case is done with.
            candidates.append_all(result.candidates)
            # A file that changed after its digest was taken has another digest at the next run, which measures again.
            row = result.row.model_copy(update={"file_sha256": item.file_sha256})
            records.append(row)
            rows.append(row)
            watcher.recorded(item, row)
    seconds, left = time.monotonic() - started, len(todo) - len(rows)
    return Summary(folder, tuple(rows), agenda.count("skip"), left, stop.asked, seconds)


def _tell_of_other_baselines(agenda: Agenda) -> None:
    others = [item.other_baseline for item in agenda.items if item.other_baseline]
    if others:
        _log.warning(
            "%d cases are done and were measured beside %s, which is not their baseline now: --retry ok measures them "
            "again",
            len(others), " and ".join(dict.fromkeys(others)),
        )  # fmt: skip


def _outcome(item: Item, worker: Worker, environment: Environment, watcher: Watcher, flush: Flush) -> Result:
    case = item.case
    if item.refused is not None:
        failed = Failed(Status.UNSUPPORTED, item.refused)
        return Result(make_row(case, environment.device, environment.digest, failed, flush=flush))
    watcher.entered(case, "starting")
    return worker.measure(case, lambda phase: watcher.entered(case, phase))
