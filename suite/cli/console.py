"""Where commands write: tables and progress for people, JSON for scripts, never both on one stream.

What is shown may come out of records that others made: control characters are spelled, so that none reaches a terminal.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.status import Status
from rich.table import Table
from rich.text import Text

from spmark.impls.core.errors import printable

if TYPE_CHECKING:
    from spmark.studies.contracts import Outcome

FILE_WIDTH = 140
"""Columns of tables that are written to a file or a pipe."""


def console(as_json: bool) -> Console:
    """Give the console for people: standard output, or standard error where that belongs to JSON."""
    stream = sys.stderr if as_json else sys.stdout
    known = stream.isatty() or "COLUMNS" in os.environ
    return Console(stderr=as_json, highlight=False, emoji=False, width=None if known else FILE_WIDTH)


def say(screen: Console, text: str) -> None:
    """Write text that is not broken at the terminal's edge: paths in it can be copied and searched for."""
    screen.print(printable(text, "\n"), soft_wrap=True)


def working(screen: Console, text: str) -> Status:
    """Give the last line of a terminal that shows ``text``, letter by letter, while the body of a ``with`` runs."""
    return screen.status(Text(printable(text)))


def complain(text: str) -> None:
    """Write a message to standard error, its lines as they are."""
    typer.echo(printable(text, "\n\t"), err=True)


def answer(value: Any) -> None:
    """Write ``value`` as JSON to standard output."""
    typer.echo(json.dumps(value, indent=2, default=str))


def finite(value: Any) -> Any:
    """Replace what JSON has no word for: NaN and infinity."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    return None if isinstance(value, float) and not isfinite(value) else value


def tell(outcome: Outcome, as_json: bool) -> None:
    """Write the messages of a command that studies an implementation."""
    if as_json:
        answer(outcome.answer)
        return
    screen = console(as_json)
    if outcome.rows:
        screen.print(table(outcome.title, outcome.rows, plain=True))
    say(screen, escape(outcome.line))


def table(title: str, rows: Sequence[Mapping[str, Any]], *, plain: bool = False) -> Table:
    """Make a table out of rows that share their keys.

    Parameters
    ----------
    title : str
        Heading; may be empty.
    rows : sequence of mappings
        Column name to value, in the order to show; numbers stand on the right.
    plain : bool
        Cells are taken letter by letter; otherwise they may hold rich's markup.
    """
    made = Table(title=printable(escape(title)) or None, title_justify="left", header_style="bold")
    for name in rows[0] if rows else ():
        numeric = all(isinstance(row[name], int | float) or row[name] is None for row in rows)
        made.add_column(printable(name), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        made.add_row(*(escape(_text(value)) if plain else _text(value) for value in row.values()))
    return made


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return printable(str(value), "\n")
