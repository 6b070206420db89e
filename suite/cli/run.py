"""``spmark run``: from a sweep's name to records on disk and a short table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

from spmark.datasets.sweep.model import Sweep
from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.machine import Load, LoadMeter
from spmark.records.rowfile import RECORDS
from spmark.records.schema import FINAL, RUNS_ON, Status
from spmark.suite.cli.console import answer, console, say, table
from spmark.suite.cli.progress import Bar, estimated_s, tell_estimate, tell_load, warn_of_load
from spmark.suite.environment import collect
from spmark.suite.plan.options import Options
from spmark.suite.plan.plan import Plan, choose, make_plan, record_folder
from spmark.suite.plan.refusals import ELSEWHERE
from spmark.suite.run.execute import NO_CLUSTER, Place, Summary, execute

if TYPE_CHECKING:
    from spmark.suite.plan.onematrix import OneMatrix

_SHOWN = ("op", "dtype", "implementation", "speedup", "ok", "failed")


@dataclass(frozen=True)
class Ended:
    """How a run ended, for the exit code."""

    failures: int = 0
    interrupted: bool = False


def run_sweep(
    sweep: str | OneMatrix,
    device: str,
    options: Options,
    out: Path,
    *,
    overrides: Sequence[str] = (),
    dry_run: bool = False,
    as_json: bool = False,
    cluster: AbstractContextManager[Place | None] = NO_CLUSTER,
) -> Ended:
    """Run a sweep's file or a matrix in its place, or show what would be run; ``cluster`` is entered for that.

    Raises
    ------
    SpmarkError
        The sweep is invalid, or the device, the cluster or the folder of records cannot be used.
    """
    from spmark.impls.runtime.device import calibration_file, find

    screen, meter = console(as_json), LoadMeter()
    loaded = Sweep.load(sweep, overrides) if isinstance(sweep, str) else sweep
    with cluster as place:
        spec = find(device) if place is None else place.environment.device
        asked = loaded if isinstance(loaded, Sweep) else loaded.sweep(spec.kind, overrides)
        chosen = choose(asked, spec.kind, options.only)
        if asked is not loaded:
            from spmark.suite.plan.onematrix import refuse_unreadable

            refuse_unreadable(chosen.cases, read=not dry_run)
        say(screen, f"[bold]{escape(asked.title or asked.name)}[/bold] on {escape(str(place or spec.name))}")
        gpus = 0 if spec.kind is not DeviceKind.CUDA else 1 if place is None else place.workers
        if dry_run:
            environment = collect(spec, options.sparse_library) if place is None else place.environment
            plan = make_plan(chosen, environment, record_folder(out, asked.name, environment.device.name), options)
            _show_plan(plan, gpus, screen, as_json)
            return Ended()
        if place is None and spec.kind is not DeviceKind.HOST_SIMT:
            warn_of_load(screen, meter)
            if calibration_file(spec) is None:
                say(screen, "measuring the device's bandwidth and rates first (once)")
        with Bar(screen, gpus) as bar:
            summary = execute(asked, spec, options, out=out, watcher=bar, place=place)
    _show_summary(summary, screen, as_json)
    failures = sum(count for status, count in summary.statuses.items() if status not in FINAL)
    return Ended(failures, summary.interrupted)


def _show_plan(plan: Plan, gpus: int, screen: Console, as_json: bool) -> None:
    rows: list[dict[str, Any]] = [
        {
            "case": item.spec.case_id,
            "action": item.action,
            "why": item.skipped or item.refused or "",
            "memory_bytes": plan.memory_bytes(item.spec),
        }
        for item in plan.items
    ]
    counts = {action: plan.count(action) for action in ("run", "skip", "refuse")}
    if as_json:
        answer({"folder": plan.folder, "cases": rows, "estimated_s": estimated_s(plan, gpus)} | counts)
        return
    longest = max((len(row["case"]) for row in rows), default=0)
    for row in rows:
        size = "" if row["memory_bytes"] is None else f"{row['memory_bytes'] / 2**20:,.2f} MiB"
        say(screen, escape(f"{row['action']:<6}  {row['case']:<{longest}}  {size:>12}  {row['why']}".rstrip()))
    told = ", ".join(f"{count} to {action}" for action, count in counts.items())
    say(screen, f"{told}; records go to {escape(str(plan.folder))}")
    tell_estimate(screen, plan, gpus)


def _show_summary(summary: Summary, screen: Console, as_json: bool) -> None:
    loads = [Load(summary.cores, row.free_cores) for row in summary.rows]
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
        from spmark.report.tables.table import WIDE_LEGEND, of_libraries, short_table

        frame = load_records([summary.folder])
        rows = short_table(frame)
        kept = [{name: row[name] for name in _SHOWN} for row in rows if row["ok"]]
        screen.print(table("Speed-up over the baseline, all records of this folder", kept, plain=True))
        if any(WIDE_MARK in row["speedup"] for row in kept):
            say(screen, WIDE_LEGEND)
        if told := of_libraries(frame):
            say(screen, told)
    without = [row for row in summary.rows if row.status is not Status.OK]
    elsewhere = {row.case_id: row for row in without if row.reason.startswith(RUNS_ON) and row.device_kind in ELSEWHERE}
    reasons = Counter(
        (row.spec.label, str(row.status), _shortened(row.reason)) for row in without if row.case_id not in elsewhere
    )
    if reasons:
        rows = [
            {"implementation": label, "status": status, "cases": count, "reason": reason}
            for (label, status, reason), count in reasons.most_common(20)
        ]
        screen.print(table("Without a result", rows, plain=True))
    if elsewhere:
        names = ", ".join(dict.fromkeys(row.spec.label for row in elsewhere.values()))
        say(screen, escape(f"{len(elsewhere)} cases {ELSEWHERE[without[0].device_kind]}: {names}"))


SWEEP = "quickstart"


def run_quickstart(device: str, out: Path) -> Ended:
    """Run the sweep into ``out/results`` and draw its pages into ``out``; a run that was interrupted has no page.

    Raises
    ------
    SpmarkError
        The device or the folder cannot be used.
    """
    from spmark.suite.cli.report import draw

    ended = run_sweep(SWEEP, device, Options(), out / "results")
    if not ended.interrupted:
        draw([out / "results"], out, baseline=None, title=None, paper=None, also=["narrow"], as_json=False)
    return ended
