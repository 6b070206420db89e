"""A table of a report: a frame at full precision, with a note for the reader and the page that the table stands on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import pandas as pd

from spmark.report.tables.cells import heading


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


def first_line(text: str) -> str:
    """Give the first line of a reason, which may carry a whole log."""
    return text.strip().split("\n", 1)[0]
