"""A table of a report: a frame at full precision, with a note for the reader and the page that the table stands on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pandas as pd

from spmark.report.tables.cells import heading, shown

MOST_ROWS = 40
"""Rows up to which a table of LaTeX stands on one page."""
TWIN = "A twin is a seeded stand-in for the matrix that it is named after."
_BEST = "_best"
"""How implementations are named that race a library's algorithms and keep the fastest."""
_FORMULA = re.compile(r"[=@\t\r\n]|[+-](?!(\d+\.?\d*|\.\d+)(e[+-]?\d+)?\Z)", re.IGNORECASE)
"""Text that a spreadsheet would run."""


class Chapter(StrEnum):
    """The page of a site that a table stands on."""

    SUMMARY = "index"
    SCORECARD = "scorecard"
    CASES = "cases"
    FAILURES = "failures"


@dataclass(frozen=True)
class Table:
    """A frame with a title and a note for its reader."""

    name: str
    """Stem of its CSV file."""
    title: str
    note: str
    frame: pd.DataFrame
    """Columns ``x_low`` and ``x_high`` are the ends of ``x``'s interval."""
    chapter: Chapter = Chapter.SUMMARY
    headline: bool = False
    """Whether the table stands on the summary, too."""
    heads: Mapping[str, str] = field(default_factory=dict)
    """Headings of columns whose heading depends on what was measured; all others have the usual one."""

    def heading(self, column: str) -> str:
        """Give the heading of a column."""
        return self.heads.get(column, heading(column))

    def latex(self) -> str:
        """Write the table as LaTeX for the packages ``booktabs`` and ``longtable``; of a reason the first line."""
        columns, rows = shown(self.frame)
        texts = [[first_line(cell.text) for cell in row] for row in rows]
        frame = pd.DataFrame(texts, columns=list(map(self.heading, columns)))
        label = f"tab:{self.name}"
        return frame.to_latex(
            index=False, escape=True, longtable=len(rows) > MOST_ROWS, caption=self.title, label=label
        )


def csv_of(frame: pd.DataFrame) -> str:
    """Give a frame as CSV without its index; text that a spreadsheet would run as a formula begins with an apostrophe.

    Names in a report come out of records, which others may have made.
    """
    shown = frame.rename(columns=_as_text)
    for name in shown.select_dtypes(["object", "str"]):
        # As objects: pandas would turn whole numbers beside a missing one into fractions.
        shown[name] = pd.Series([_as_text(value) for value in shown[name]], shown.index, dtype=object)
    return str(shown.to_csv(index=False, lineterminator="\n"))


def _as_text(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    # A carriage return alone ends a row for some readers, and is not put in quotes.
    return ("'" if _FORMULA.match(value) else "") + value.replace("\r\n", "\n").replace("\r", "\n")


def first_line(text: str) -> str:
    """Give the first line of a reason, which may carry a whole log."""
    return text.strip().split("\n", 1)[0]


def explained(baseline: str) -> str:
    """Give the name of a baseline, and what it is where the name alone does not say so."""
    library = baseline.removesuffix(_BEST)
    return baseline if library == baseline else f"{baseline} (the fastest of {library}'s algorithms in the same run)"


def config_text(config: Mapping[str, Any]) -> str:
    """Give the entries of a config as one text."""
    return ", ".join(f"{key}={value}" for key, value in config.items())
