"""``spmark compare``, a gate over two sets of records, and ``spmark study spread``, which learns its thresholds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from spmark.impls.core.errors import RecordError
from spmark.suite.cli.console import answer, console, finite, say, table

if TYPE_CHECKING:
    from spmark.report.analysis.compare_inputs import Side
    from spmark.report.analysis.regressions import Change, Comparison
    from spmark.report.analysis.run_spread import SpreadModel


def compare_records(
    before: Path, after: Path, *, across: bool, threshold_from: Path | None, least: float, every: bool, as_json: bool
) -> int:
    """Compare two sets of records, show what changed, and give the number of regressions.

    Parameters
    ----------
    before, after : Path
        Folders or files of records.
    across : bool
        Compare devices, drivers or protocols: speed-ups over the baseline only.
    threshold_from : Path or None
        A model's JSON file, or records of repeated runs to learn one from.
    least : float
        Relative change below which nothing is flagged.
    every : bool
        Also show the cases that did not change.
    as_json : bool
        Print JSON.

    Raises
    ------
    RecordError
        A path holds no records, or the two may not be compared.
    """
    from spmark.report.analysis.compare_inputs import read_side
    from spmark.report.analysis.regressions import compare

    sides = read_side(before), read_side(after)
    first, second = _models(sides, threshold_from)
    comparison = compare(*sides, (first, second), across=across, least=least)
    if as_json:
        answer(_as_json(comparison, (first, second)))
    else:
        _show(comparison, (first, second), every)
    return len(comparison.regressions)


def show_spread(results: Sequence[Path], out: Path | None, as_json: bool) -> None:
    """Learn from repeated runs how far runs of one code differ, show it, and write it as JSON for `compare`.

    Raises
    ------
    RecordError
        The records are of several devices, too few cases were repeated, or the file cannot be written.
    """
    from spmark.report.analysis.run_spread import fit_spread, write_spread

    model = fit_spread(list(results))
    if out is not None:
        write_spread(model, out)
    if as_json:
        answer({"file": out} | model.model_dump())
        return
    rows = [{"quantity": name} | trend.model_dump(exclude={"known"}) for name, trend in sorted(model.trends.items())]
    screen = console(as_json)
    screen.print(table(f"{model.device}: {model.cases} cases, {model.runs} runs each", rows, plain=True))
    if out is not None:
        say(screen, escape(str(out)))


def _models(sides: Sequence[Side], source: Path | None) -> list[SpreadModel]:
    """Give the spread of runs of one code on either side's device: as asked for, else as shipped, else the default."""
    from spmark.report.analysis.run_spread import fit_spread, known_spread, read_spread

    models = {side.device: known_spread(side.device) for side in sides}
    if source is not None:
        given = read_spread(source) if source.suffix == ".json" else fit_spread([source])
        if given.device not in models:
            raise RecordError(f"{source}: expected repeated runs on {' or '.join(models)}, found {given.device}")
        models[given.device] = given
    return [models[side.device] for side in sides]


def _as_json(comparison: Comparison, models: Sequence[SpreadModel]) -> dict[str, Any]:
    counts = Counter(f"{change.quantity} {change.verdict}" for change in comparison.changes)
    return {
        "regressions": len(comparison.regressions),
        "counts": counts,
        "across": comparison.across,
        "spread": [model.model_dump(exclude={"trends": {"__all__": {"known"}}}) for model in models],
        "differences": comparison.differences,
        "only_before": comparison.only_before,
        "only_after": comparison.only_after,
        "changes": [finite(asdict(change)) for change in comparison.changes],
    }


def _show(comparison: Comparison, models: Sequence[SpreadModel], every: bool) -> None:
    screen = console(as_json=False)
    for line in comparison.differences:
        say(screen, f"[dim]{escape(line)}[/dim]")
    for told in dict.fromkeys(map(_origin, models)):
        say(screen, escape(told))
    rows = [_row(change) for change in comparison.changes if every or change.verdict != "same"]
    for title, shown in (
        ("After over before, with 95 % intervals", rows),
        ("What was tested", _summary(comparison.changes)),
    ):
        if shown:
            screen.print(table(title, shown, plain=True))
    for name, cases in (("before", comparison.only_before), ("after", comparison.only_after)):
        if cases:
            say(screen, escape(f"only {name}: {len(cases)} cases, such as {cases[0]}"))
    regressions = len(comparison.regressions)
    colour = "red" if regressions else "green"
    say(screen, f"[{colour}]{regressions} regressions[/{colour}]")


def _origin(model: SpreadModel) -> str:
    if not model.runs:
        return (
            f"spread between runs: the default, which is wide, since no runs of {model.device} were fitted; "
            "--threshold-from takes records of repeated runs"
        )
    return f"spread between runs: of {model.cases} cases, {model.runs} times each, on {model.device}"


def _row(change: Change) -> dict[str, Any]:
    unit = {"time": " us", "speedup": "×"}.get(change.quantity, " s")
    ratio = change.ratio
    tested = {
        "before": f"{change.before:,.4g}{unit}",
        "after": f"{change.after:,.4g}{unit}",
        "ratio": f"{ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]",
        "p": f"{change.adjusted_p:.2g}",
        "threshold": _percent(change.threshold),
    }
    told = {"verdict": str(change.verdict), "quantity": change.quantity, "case": change.case_id}
    return told | (tested if isfinite(ratio.value) else dict.fromkeys(tested, "")) | {"note": change.note}


def _summary(every: Sequence[Change]) -> list[dict[str, Any]]:
    """Give one row for each quantity: verdicts, and how small a change would have been seen."""
    rows = []
    for quantity in dict.fromkeys(change.quantity for change in every):
        changes = [change for change in every if change.quantity == quantity]
        verdicts = Counter(str(change.verdict) for change in changes)
        tested = [change for change in changes if isfinite(change.ratio.value)]
        limits, runs = [change.threshold for change in tested], [change.runs_needed for change in tested]
        rows.append(
            {
                "quantity": quantity,
                "cases": len(changes),
                "verdicts": ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items()),
                "threshold, median": _percent(median(limits)) if limits else "",
                "threshold, worst": _percent(max(limits)) if limits else "",
                "runs a side to see 10 %": f"{_runs(median(runs))} to {_runs(max(runs))}" if runs else "",
            }
        )
    return rows


def _percent(share: float) -> str:
    return f"{share:.1%}" if share < 10 else "over 1000%"


def _runs(count: float) -> str:
    from spmark.report.analysis.regressions import MOST_RUNS

    return f"{count:.0f}" if isfinite(count) else f"over {MOST_RUNS}"
