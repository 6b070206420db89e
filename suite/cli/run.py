"""``spmark run``: from a sweep's name to records on disk and a short table."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from spmark.datasets.sweep.model import Sweep, expand
from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.load import Load
from spmark.impls.core.record import FINAL, Measurement, Status
from spmark.impls.runtime.load import LoadMeter
from spmark.suite.cli.console import answer, console, say, table
from spmark.suite.cli.progress import Bar, tell_load, warn_of_load
from spmark.suite.environment import collect
from spmark.suite.plan.filters import select
from spmark.suite.plan.memory import known_facts, memory_bytes
from spmark.suite.plan.onematrix import OneMatrix, refuse_unreadable
from spmark.suite.plan.options import Options
from spmark.suite.plan.plugins import with_files
from spmark.suite.plan.refusals import ELSEWHERE, refusals, runs_elsewhere
from spmark.suite.plan.resume import RECORDS, History, record_folder
from spmark.suite.plan.todo import Agenda, make_agenda, refuse_missing_files
from spmark.suite.run.runner import Summary, run_cases

_SHOWN = ("op", "dtype", "implementation", "speedup", "ok", "failed")


@dataclass(frozen=True)
class Ended:
    """How a run ended, for the exit code."""

    failures: int = 0
    interrupted: bool = False


def run_sweep(
    options: Options, out: Path, one: OneMatrix | None = None, *, dry_run: bool = False, as_json: bool = False
) -> Ended:
    """Run a sweep, or a matrix in the place of a sweep's file, or show what would be run.

    Raises
    ------
    SpmarkError
        The sweep is invalid, or the device or the folder of records cannot be used.
    """
    from spmark.impls.runtime.device import calibrated, calibration_file, find

    screen, meter = console(as_json), LoadMeter()
    if one is None:
        sweep, spec = Sweep.load(options.sweep, options.overrides), find(options.device)
    else:
        spec = find(options.device)
        sweep = one.sweep(spec.kind, options.overrides)
        options = options.model_copy(update={"sweep": f"{sweep.name}.yaml"})  # what a recipe would write it to
    cases = select(expand(with_files(sweep), spec.kind), options.only)
    refused = refusals(cases, spec.kind)  # a wrong name is told before a calibration starts
    if one is not None:
        refuse_unreadable(cases, read=not dry_run)
    say(screen, f"[bold]{escape(sweep.title or sweep.name)}[/bold] on {escape(spec.name)}")
    if not dry_run and spec.kind is not DeviceKind.HOST_SIMT:
        warn_of_load(screen, meter)
        if calibration_file(spec) is None:
            say(screen, "measuring the device's bandwidth and rates first (once)")
    environment = collect(spec if dry_run else calibrated(spec))
    folder = record_folder(out, sweep.name, environment.device.name)
    if dry_run:
        history = History.read(folder)
        agenda = make_agenda(cases, refused, environment, history, options)
        refuse_missing_files(agenda)
        _show_agenda(agenda, history, folder, screen, as_json)
        return Ended()
    with Bar(screen) as bar:
        summary = run_cases(cases, folder, environment, options, bar, sweep=sweep, refused=refused)
    _show_summary(summary, environment.cores, screen, as_json)
    failures = sum(count for status, count in summary.statuses.items() if status not in FINAL)
    return Ended(failures, summary.interrupted)


def _show_agenda(agenda: Agenda, history: History, folder: Path, screen: Console, as_json: bool) -> None:
    rows: list[dict[str, Any]] = [
        {
            "case": item.case.case_id,
            "action": item.action,
            "why": item.skipped or item.refused or "",
            "memory_bytes": memory_bytes(item.case, facts)
            if (facts := known_facts(item.case.matrix, history))
            else None,
        }
        for item in agenda.items
    ]
    if as_json:
        answer({"folder": folder, "cases": rows} | _counts(agenda))
        return
    longest = max((len(row["case"]) for row in rows), default=0)
    for row in rows:
        size = "" if row["memory_bytes"] is None else f"{row['memory_bytes'] / 2**20:,.2f} MiB"
        say(screen, escape(f"{row['action']:<6}  {row['case']:<{longest}}  {size:>12}  {row['why']}".rstrip()))
    counts = ", ".join(f"{count} to {action}" for action, count in _counts(agenda).items())
    say(screen, f"{counts}; records go to {escape(str(folder))}")


def _counts(agenda: Agenda) -> dict[str, int]:
    return {action: agenda.count(action) for action in ("run", "skip", "refuse")}


def _show_summary(summary: Summary, cores: int, screen: Console, as_json: bool) -> None:
    loads = [Load(cores, row.free_cores) for row in summary.rows]
    statuses = {str(status): count for status, count in sorted(summary.statuses.items())}
    if as_json:
        cases = [{"case": row.case_id, "status": row.status, "reason": row.reason} for row in summary.rows]
        answer(
            {
                "folder": summary.folder,
                "records": summary.folder / RECORDS,
                "statuses": statuses,
                "skipped": summary.skipped,
                "left": summary.left,
                "interrupted": summary.interrupted,
                "busy": sum(load.busy for load in loads),
                "seconds": round(summary.seconds, 3),
                "cases": cases,
            }
        )
    else:
        _show_results(summary, screen)
    counts = ", ".join(f"{count} {status}" for status, count in statuses.items()) or "nothing to run"
    say(screen, f"{counts}; {summary.skipped} skipped; {summary.seconds:.1f} s; {escape(str(summary.folder))}")
    tell_load(screen, loads, "measure them again when it is not, with --retry ok")
    if summary.left:
        screen.print(
            f"[yellow]Interrupted with {summary.left} cases to go: the same command goes on from here.[/yellow]"
        )


def _shortened(reason: str) -> str:
    """Give the first line of a reason, and the line in which the host ring says what is wrong and where."""
    first, *others = reason.splitlines()
    return "\n".join([first, *(line for line in others if line.startswith("spmark: fault"))][:2])


def _show_results(summary: Summary, screen: Console) -> None:
    """Show medians and speed-ups, and the reasons of cases that did not run, each reason once."""
    # Drawing up means over all records of a folder takes seconds, which Ctrl-C does not wait for.
    if not summary.interrupted and (any(row.samples_us for row in summary.rows) or summary.skipped):
        from spmark.report.analysis.cases import WIDE_MARK
        from spmark.report.records import load_records
        from spmark.report.tables.summary import WIDE_LEGEND, short_table

        rows = short_table(load_records([summary.folder]))
        kept = [{name: row[name] for name in _SHOWN} for row in rows if row["ok"]]
        screen.print(table("Speed-up over the baseline, all records of this folder", kept, plain=True))
        if any(WIDE_MARK in row["speedup"] for row in kept):
            say(screen, WIDE_LEGEND)
    without = [(row, _runs_elsewhere(row)) for row in summary.rows if row.status is not Status.OK]
    elsewhere = [row for row, folded in without if folded]
    reasons = Counter((row.label, str(row.status), _shortened(row.reason)) for row, folded in without if not folded)
    if reasons:
        rows = [
            {"implementation": label, "status": status, "cases": count, "reason": reason}
            for (label, status, reason), count in reasons.most_common(20)
        ]
        screen.print(table("Without a result", rows, plain=True))
    if elsewhere:
        names = ", ".join(dict.fromkeys(row.label for row in elsewhere))
        say(screen, escape(f"{len(elsewhere)} cases {ELSEWHERE[elsewhere[0].device_kind]}: {names}"))


def _runs_elsewhere(row: Measurement) -> bool:
    """Say whether a case has no result because its implementation runs on the other kind of device alone."""
    if row.status is not Status.UNSUPPORTED or row.device_kind not in ELSEWHERE:
        return False
    return runs_elsewhere(row.implementation, row.requested, row.device_kind)
