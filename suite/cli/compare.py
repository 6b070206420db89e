"""``spmark compare``: two sets of records, case by case, as a gate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

from spmark.impls.core.errors import RecordError
from spmark.suite.cli.console import answer, console, say, table

if TYPE_CHECKING:
    from spmark.report.analysis.compare import Change, Comparison
    from spmark.report.analysis.compare_inputs import Side
    from spmark.report.analysis.spreadmodel import SpreadModel


@dataclass(frozen=True)
class CompareRequest:
    """What the command line asked for."""

    before: Path
    after: Path
    across: bool
    threshold_from: Path | None
    """A model's JSON file, or records of repeated runs to learn one from."""
    least: float
    """Relative change below which nothing is flagged."""
    every: bool
    """Also show the cases that did not change."""
    as_json: bool


def compare_records(request: CompareRequest) -> int:
    """Compare, show, and give the number of regressions.

    Raises
    ------
    RecordError
        A path holds no records, or the two may not be compared.
    """
    from spmark.report.analysis.compare import compare
    from spmark.report.analysis.compare_inputs import read_side

    sides = (read_side(request.before), read_side(request.after))
    first, second = _models(sides, request.threshold_from)
    comparison = compare(sides[0], sides[1], (first, second), across=request.across, least=request.least)
    if request.as_json:
        answer(_as_json(comparison, (first, second)))
    else:
        _show(comparison, (first, second), request.every, console(as_json=False))
    return len(comparison.regressions)


def _models(sides: Sequence[Side], source: Path | None) -> list[SpreadModel]:
    """Give the spread of runs of one code on either side: as asked for, else as shipped, else the default."""
    from spmark.report.analysis.spreadmodel import fit_spread, known_spread, read_spread

    devices = [side.device for side in sides]
    given = None
    if source is not None:
        given = read_spread(source) if source.suffix == ".json" else fit_spread([source])
        if given.device not in devices:
            raise RecordError(
                f"{source}: expected repeated runs on {' or '.join(dict.fromkeys(devices))}, found {given.device}"
            )
    return [given if given is not None and given.device == device else known_spread(device) for device in devices]


def _as_json(comparison: Comparison, models: Sequence[SpreadModel]) -> dict[str, Any]:
    return {
        "regressions": len(comparison.regressions),
        "counts": {f"{quantity} {verdict}": count for (quantity, verdict), count in _counts(comparison).items()},
        "across": comparison.across,
        "spread": [model.model_dump(exclude={"trends": {"__all__": {"known"}}}) for model in models],
        "differences": comparison.differences,
        "only_before": comparison.only_before,
        "only_after": comparison.only_after,
        "changes": [_finite(asdict(change)) for change in comparison.changes],
    }


def _finite(value: Any) -> Any:
    """Replace what JSON has no word for: NaN and infinity."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return None if isinstance(value, float) and not isfinite(value) else value


def _counts(comparison: Comparison) -> Counter[tuple[str, str]]:
    return Counter((change.quantity, str(change.verdict)) for change in comparison.changes)


def _show(comparison: Comparison, models: Sequence[SpreadModel], every: bool, screen: Console) -> None:
    from spmark.report.analysis.compare import CaseVerdict

    for line in comparison.differences:
        say(screen, f"[dim]{escape(line)}[/dim]")
    for model in models[:1] if models[0] == models[1] else models:
        say(screen, escape(_origin(model)))
    shown = [change for change in comparison.changes if every or change.verdict is not CaseVerdict.SAME]
    if shown:
        screen.print(table("After over before, with 95 % intervals", [_row(change) for change in shown], plain=True))
    rows = _summary(comparison)
    if rows:
        screen.print(table("What was tested", rows, plain=True))
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
    ratio = change.ratio
    tested = isfinite(ratio.value)
    return {
        "verdict": str(change.verdict),
        "quantity": change.quantity,
        "case": change.case_id,
        "before": _in_unit(change.quantity, change.before) if tested else "",
        "after": _in_unit(change.quantity, change.after) if tested else "",
        "ratio": f"{ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]" if tested else "",
        "p": f"{change.adjusted_p:.2g}" if tested else "",
        "threshold": _percent(change.threshold) if tested else "",
        "note": change.note,
    }


def _in_unit(quantity: str, value: float) -> str:
    from spmark.report.analysis.run_statistics import SPEEDUP, TIME

    return f"{value:,.4g}" + {TIME: " us", SPEEDUP: "×"}.get(quantity, " s")


def _summary(comparison: Comparison) -> list[dict[str, Any]]:
    """Give one row for each quantity: verdicts, and how small a change would have been seen."""
    rows = []
    for quantity in dict.fromkeys(change.quantity for change in comparison.changes):
        changes = [change for change in comparison.changes if change.quantity == quantity]
        tested = [change for change in changes if isfinite(change.ratio.value)]
        verdicts = Counter(str(change.verdict) for change in changes)
        limits, runs = [c.threshold for c in tested], [c.runs_needed for c in tested]
        rows.append(
            {
                "quantity": quantity,
                "cases": len(changes),
                "verdicts": ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items()),
                "threshold, median": _percent(median(limits)) if limits else "",
                "threshold, worst": _percent(max(limits)) if limits else "",
                "runs a side to see 10 %": _runs(median(runs)) + " to " + _runs(max(runs)) if runs else "",
            }
        )
    return rows


def _percent(share: float) -> str:
    return f"{share:.1%}" if share < 10 else "over 1000%"


def _runs(count: float) -> str:
    from spmark.report.analysis.difference import MOST_RUNS

    return f"{count:.0f}" if isfinite(count) else f"over {MOST_RUNS}"
