"""``spmark study spread``: how far repeated runs of the same code differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.markup import escape

from spmark.suite.cli.console import answer, console, say, table


def fit_model(results: Sequence[Path], out: Path, as_json: bool) -> None:
    """Learn from repeated runs how far runs of one code differ, and write a model as JSON for `spmark compare`.

    Raises
    ------
    RecordError
        The records are of several devices, too few cases were repeated, or the file cannot be written.
    """
    from spmark.report.analysis.spreadmodel import fit_spread, write_spread

    model = fit_spread(list(results))
    write_spread(model, out)
    if as_json:
        answer({"file": out} | model.model_dump())
        return
    screen = console(as_json)
    rows = [
        {"quantity": quantity} | trend.model_dump(exclude={"known"}) for quantity, trend in sorted(model.trends.items())
    ]
    screen.print(table(f"{model.device}: {model.cases} cases, {model.runs} runs each", rows, plain=True))
    say(screen, escape(str(out)))


def show_spread(results: Sequence[Path], as_json: bool) -> None:
    """Print one row per device.

    Raises
    ------
    RecordError
        A path is missing, or no case was run twice.
    """
    from spmark.report.analysis.spread import spread

    rows = [asdict(row) for row in spread(list(results))]
    if as_json:
        answer(rows)
        return
    for row in rows:
        row.update({name: f"{value:.2%}" for name, value in row.items() if isinstance(value, float)})
    console(as_json).print(table("Relative spread of medians over runs", rows, plain=True))
