"""What a report says, before it is Markdown or HTML: sections of figures and tables, by device and sweep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spmark.report.figures.plot import Drawing
from spmark.report.site.chart_data import Points
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
