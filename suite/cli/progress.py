"""What a run is doing: the progress bar, and warnings of a busy machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from spmark.impls.core.errors import printable
from spmark.impls.core.machine import Load, LoadMeter
from spmark.records.schema import FINAL, CaseSpec, Measurement
from spmark.suite.cli.console import say
from spmark.suite.cluster.schedule import run_s
from spmark.suite.plan.plan import Plan
from spmark.suite.run.execute import Watcher

BUSY_S = 0.3
"""Seconds for which a machine is watched before a run."""


def warn_of_load(screen: Console, meter: LoadMeter) -> None:
    """Say that other processes take the cores, before anything is measured."""
    if (load := meter.read(BUSY_S)).busy:
        say(screen, f"[yellow]This machine is busy: {load}. Times will be off.[/yellow]")


def tell_load(screen: Console, loads: Sequence[Load], remedy: str) -> None:
    """Say in how many cases other processes took the cores, and what to do about it."""
    if busy := [load for load in loads if load.busy]:
        worst = max(busy, key=lambda load: load.taken_cores)
        told = f"The machine was busy in {len(busy)} of {len(loads)} cases (at the worst, {worst}): {remedy}"
        say(screen, f"[yellow]{told}[/yellow]")


def estimated_s(plan: Plan, gpus: int) -> float | None:
    """Estimate the seconds of the cases that run, on so many GPUs; None without one, for which no records tell."""
    return run_s((item.spec for item in plan.items if item.action == "run"), gpus) if gpus else None


def tell_estimate(screen: Console, plan: Plan, gpus: int) -> None:
    """Say how long a run may take, before it begins."""
    if seconds := estimated_s(plan, gpus):
        unit, size = next((one for one in (("hours", 3600), ("minutes", 60)) if seconds >= 2 * one[1]), ("seconds", 1))
        on = f"{gpus} GPUs" if gpus > 1 else "one GPU"
        say(screen, f"about {seconds / size:.2g} {unit} on {on}, by what such cases took on an H200")


class Bar(Watcher):
    """Draws a bar for the cases that run, and writes a line for every failure as it happens.

    Parameters
    ----------
    console : Console
    gpus : int
        That measure at a time, for an estimate; 0 where there is to be none.
    """

    def __init__(self, console: Console, gpus: int = 0) -> None:
        self._console, self._gpus = console, gpus
        self._refused: set[str] = set()
        self._progress = Progress(
            SpinnerColumn(),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.description}", markup=False),
            TextColumn("{task.fields[phase]}", style="dim", markup=False),
            console=console,
        )
        self._task = self._progress.add_task("", total=None, phase="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.update(self._task, description="", phase="")
        self._progress.stop()

    def begun(self, plan: Plan) -> None:
        """Set the bar's length: what cannot run takes no time and is not counted."""
        self._refused = {item.spec.case_id for item in plan.todo() if item.refused is not None}
        self._progress.update(self._task, total=plan.count("run"))
        reasons = Counter(item.skipped for item in plan.items if item.skipped is not None)
        for reason, count in reasons.most_common():
            say(self._console, f"{count} of {len(plan.items)} cases skipped: {escape(reason)}")
        tell_estimate(self._console, plan, self._gpus)

    def entered(self, case: CaseSpec, phase: str) -> None:
        """Show the case and its phase."""
        self._progress.update(self._task, description=printable(case.case_id), phase=phase)

    def recorded(self, row: Measurement) -> None:
        """Move the bar; show a failure."""
        if row.case_id not in self._refused:
            self._progress.advance(self._task)
        if row.status not in FINAL:
            first = row.reason.splitlines()[0] if row.reason else ""
            say(self._console, f"[red]{row.status}[/red] {escape(row.case_id)}: {escape(first)}")
