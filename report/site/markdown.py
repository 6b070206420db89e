"""A report as Markdown that GitHub shows: figures and tables by relative path, long tables cut off in favour of CSV."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import PurePosixPath

from spmark.report.figures.plot import Drawing
from spmark.report.site.model import Report
from spmark.report.tables.cells import shown
from spmark.report.tables.table import Table

MOST_ROWS = 200
"""Rows of a table in the page; failures are never cut off."""


def markdown(report: Report, figures: PurePosixPath, csv: PurePosixPath) -> str:
    """Write a report as Markdown: its title and notices, and its sections.

    Parameters
    ----------
    report : Report
        What to say.
    figures, csv : PurePosixPath
        Folders of the figures and the CSV files, as seen from the page.
    """
    parts = [f"# {_safe(report.title)}", *map(_notice, report.notices)]
    titles = {sweep.name: f"{sweep.title}: " for sweep in report.sweeps}
    for section in report.sections:
        parts += [f"## {_safe(titles.get(section.sweep, '') + section.device)}", _safe(section.measured)]
        parts.append(_rows(["", ""], [[f"**{_safe(name)}**", _safe(text)] for name, text in section.facts]))
        parts += map(_notice, section.notices)
        for block in section.blocks:
            if isinstance(block, Drawing):
                parts.append(f"![{_safe(block.caption)}]({figures / block.name}.svg)\n\n*{_safe(block.caption)}*")
            else:
                parts.append(_table(block, csv))
    return "\n\n".join(parts) + "\n"


def _notice(text: str) -> str:
    return f"> {_safe(' '.join(text.splitlines()))}"


def _table(table: Table, csv: PurePosixPath) -> str:
    whole = "reason" in table.frame
    columns, cells = shown(table.frame)  # which the pages and LaTeX show, too
    cells = cells if whole else cells[:MOST_ROWS]
    parts = [f"### {_safe(table.title)}", _safe(table.note)] if table.note else [f"### {_safe(table.title)}"]
    parts.append(_rows([table.heading(c) for c in columns], [[_safe(cell.text) for cell in row] for row in cells]))
    if len(cells) < len(table.frame):
        parts.append(
            f"The first {len(cells):,} of {len(table.frame):,} rows; all are in [the CSV file]({csv / table.name}.csv)."
        )
    return "\n\n".join(parts)


def _rows(headings: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *cells]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _safe(text: str) -> str:
    """Keep text, which may be a compiler's log, from being taken for markup or breaking a table."""
    escaped = html.escape(" ⏎ ".join(text.strip().splitlines()), quote=False)
    for letter in "\\|`*_[]":
        escaped = escaped.replace(letter, "\\" + letter)
    return escaped
