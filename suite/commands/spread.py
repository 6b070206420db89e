"""``spmark spread``: what repeated runs of the same code differ by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from spmark.suite.commands.console import answer, console, table


def show_spread(results: Sequence[Path], as_json: bool) -> None:
    """Print one row per device.

    Raises
    ------
    RecordError
        A path is not there, or no case was run twice.
    """
    from spmark.report.spread import spread

    found = [asdict(row) for row in spread(list(results))]
    if as_json:
        answer(found)
        return
    for row in found:
        row.update({name: f"{value:.2%}" for name, value in row.items() if isinstance(value, float)})
    console(as_json).print(table("Relative spread of medians over runs", found, plain=True))
