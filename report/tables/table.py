"""A table of a report: a frame at full precision, with a note for the reader and the page that the table stands on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import pandas as pd


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


def first_line(text: str) -> str:
    """Give the first line of a reason, which may carry a whole log."""
    return text.strip().split("\n", 1)[0]
