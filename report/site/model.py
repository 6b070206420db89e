"""What a report says, before it is HTML: sections of figures and tables, by device and sweep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import pandas as pd

from spmark.report.analysis.cases import by_size, panels_of
from spmark.report.figures.plot import Drawing
from spmark.report.figures.style import looks
from spmark.report.site.run_metadata import Facts
from spmark.report.tables.table import Table


@dataclass(frozen=True)
class Section:
    """What is said of one device: of one sweep there, or of all."""

    device: str
    measured: str
    """How the times were taken."""
    facts: Facts
    notices: list[str]
    """What a reader must know before believing a number."""
    blocks: list[Drawing | Table]
    """In reading order; their names are file stems and start with the device."""
    sweep: str = ""
    """The sweep on whose page this stands; empty for the landing page."""
    points: Points | None = None
    """What the interactive chart of a sweep shows."""


@dataclass(frozen=True)
class PaperPage:
    """A paper whose sweeps a report is narrowed to."""

    name: str
    sweeps: frozenset[str] = field(default=frozenset())
    """Names of its sweeps, as records' folders have them."""


@dataclass(frozen=True)
class ListedSweep:
    """What the packaged file of a sweep says."""

    title: str
    about: str
    labels: Mapping[str, str]
    """Labels of the cases that the sweep asks for, by the ids of these cases."""
    others: Mapping[str, str] = field(default_factory=dict)
    """Ids of these cases by other ids under which records may know them."""

    def today(self, case_id: str) -> str:
        """Give the id that the sweep has for the case of a record."""
        return self.others.get(case_id, case_id)


@dataclass(frozen=True)
class Coverage:
    """What was collected of a sweep on one device, as text."""

    device: str
    cases: str
    """With a result, of all that were tried."""
    listed: str
    """Tried, of those that the packaged sweep lists, and how many more were tried with other sweeps; empty for a sweep
    that is not packaged."""
    measured: str
    """First and last day, and the protocol."""
    versions: str


@dataclass(frozen=True)
class SweepPage:
    """A sweep with a page of its own."""

    name: str
    """As records' folders have it."""
    title: str
    about: str = ""
    collected: tuple[Coverage, ...] = ()


@dataclass(frozen=True)
class Report:
    """A whole report."""

    title: str
    notices: list[str]
    sections: list[Section]
    sweeps: tuple[SweepPage, ...] = ()
    """What sections with a sweep stand on, in the order of the landing page."""


MOST_POINTS = 12_000
"""Points of a chart: a page that holds them stays below a megabyte."""
_DIGITS = 5


@dataclass(frozen=True)
class Points:
    """The numbers of one chart."""

    series: list[dict[str, str]]
    """Label, colour, and marker and hatch as matplotlib names them, of each series, in the order of legends."""
    panels: list[dict[str, Any]]
    """``name`` (operator and dtype), ``cases`` ([matrix, J]) and ``points`` ([series, case, time in µs, speed-up])."""
    left_out: int
    """Cases that are not shown, for their number."""


def points_of(derived: pd.DataFrame) -> Points | None:
    """Give the points of all cases with a time; None where no case has one.

    Parameters
    ----------
    derived : DataFrame
        As `spmark.report.analysis.cases.derive` gives it, of one device and sweep.
    """
    timed = derived[derived["median_us"].notna()]
    if timed.empty:
        return None
    rows = timed.head(MOST_POINTS)
    named = looks(set(zip(rows["label"], rows["implementation"], strict=True)))
    series = {label: place for place, label in enumerate(named)}
    sizes = {matrix: place for place, matrix in enumerate(by_size(rows))}
    panels = []
    for (op, dtype), part in panels_of(rows):
        ordered = part.assign(size=part["matrix"].map(sizes)).sort_values(["size", "width"], kind="stable")
        problems = list(dict.fromkeys(zip(ordered["matrix"], ordered["width"].map(int), strict=True)))
        places = {problem: place for place, problem in enumerate(problems)}
        points = [
            [
                series[row["label"]],
                places[row["matrix"], int(row["width"])],
                *map(_short, (row["median_us"], row["speedup"])),
            ]
            for row in ordered[["label", "matrix", "width", "median_us", "speedup"]].to_dict("records")
        ]
        panels.append({"name": f"{op} {dtype}", "cases": [list(problem) for problem in problems], "points": points})
    legend = [
        {"label": label, "colour": look.colour, "marker": look.marker, "hatch": look.hatch}
        for label, look in named.items()
    ]
    return Points(legend, panels, len(timed) - len(rows))


def _short(number: float) -> float | None:
    """Give a number with the digits that a reader sees; None for one that JSON lacks."""
    return float(f"{number:.{_DIGITS}g}") if isfinite(number) else None
