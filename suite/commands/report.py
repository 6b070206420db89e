"""``spmark report``: from folders of records to a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.markup import escape

from spmark.suite.commands.console import answer, console, say


def draw(results: Sequence[Path], out: Path, baseline: str | None, title: str | None, as_json: bool) -> None:
    """Write the page and say where it is.

    Raises
    ------
    RecordError
        A path is not there, or a file in it is no record file.
    """
    from spmark.report.page import write_report

    index = write_report(list(results), out, baseline, title)
    if as_json:
        answer({"page": index})
    else:
        say(console(as_json), escape(str(index)))
