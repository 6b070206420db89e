"""A report as HTML pages, by the templates beside this file: a landing page, and pages for every sweep.

A page asks for no address outside the site, and all text is escaped. Long tables go on over several pages, so that each
page stays below a megabyte.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, field
from functools import cache, lru_cache
from html import escape
from math import isinf
from typing import Any

import markupsafe
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from spmark.impls.core.files import path_component
from spmark.report.analysis.cases import panels_of
from spmark.report.figures.plot import Drawing
from spmark.report.figures.style import looks
from spmark.report.site.model import Points, Report, Section, SweepPage
from spmark.report.tables.table import Cell, Chapter, Table, csv_of, first_line, shown
from spmark.report.tables.winners import WinnerMap, WinnerPlace, place_of

FIGURES, TABLES, SWEEPS, VENDOR = "figures", "tables", "sweeps", "vendor"
LIBRARY = "chart.umd.min.js"
CHART_HEADING = "Every case"
"""Of an interactive chart in the list of what a page shows; ``tables.html`` writes it above the chart."""
_ROOM = 850_000
"""Bytes that the rows and points of a page may take; the rest of a megabyte is for all else."""
_OF_PLACE = 90
"""Most bytes of markup around a place on a map."""
LONG = 60
"""Characters from which a text has more than one line, or is cut."""
_CUT = ("config",)
"""Columns whose long texts have one line each, with the whole text for a reader who points there: rows stay low."""
_BACKTICKS = re.compile("`([^`]+)`")


@dataclass(frozen=True)
class _Piece:
    """What one page shows of a block."""

    kind: str
    """Which macro of ``tables.html`` writes it: ``figure``, ``table`` or ``grid``."""
    block: Drawing | Table
    heads: list[tuple[str, bool]] = field(default_factory=list)
    """Of a table: headings, and whether a column holds numbers."""
    rows: list[Markup] = field(default_factory=list)
    told: str = ""
    """Which rows these are, where the table goes on over several pages."""
    panels: list[dict[str, Any]] = field(default_factory=list)
    """Of a map: name, widths and rows of places."""
    colours: dict[str, str] = field(default_factory=dict)
    size: int = 0
    """Bytes that its rows take at most."""


@dataclass(frozen=True)
class PagePlace:
    """A page, or the first of several: a chapter of the landing page's sections or of a sweep's."""

    sweep: SweepPage | None
    chapter: Chapter

    def path(self, part: int = 1) -> str:
        """Give the path inside the site."""
        name = f"{self.chapter.value}{'' if part == 1 else f'-{part}'}.html"
        return f"{SWEEPS}/{path_component(self.sweep.name)}/{name}" if self.sweep else name

    @property
    def root(self) -> str:
        """The way from the page to the site's folder."""
        return "../../" if self.sweep else ""

    @property
    def title(self) -> str:
        """What links to it say."""
        if self.chapter is Chapter.SUMMARY:
            return "This sweep" if self.sweep else "Summary"
        return self.chapter.name.capitalize()


_Part = list[tuple[Section, list[_Piece]]]


def pages_of(
    report: Report, sweep: SweepPage | None, landing: Sequence[Chapter], *, alone: bool = False
) -> dict[str, str]:
    """Give the pages of one sweep, or those of the landing page, by their paths inside the site.

    Parameters
    ----------
    report : Report
        Its sections are those of the sweep, or of the landing page.
    sweep : SweepPage or None
        None for the landing page.
    landing : sequence of Chapter
        The chapters of the landing page, which every page links.
    alone : bool
        Whether no files stand beside the pages: they then hold their figures and data.
    """
    places = [PagePlace(None, chapter) for chapter in landing]
    if sweep:
        places += [PagePlace(sweep, chapter) for chapter in chapters_of(report.sections)]
    made: dict[str, str] = {}
    for place in (place for place in places if place.sweep == sweep):
        # Sections without anything here still say what was measured, on the page that they are described on.
        told = [s for s in report.sections if place.chapter is Chapter.SUMMARY or _blocks(s, place.chapter)]
        parts = _parts(told, place.chapter)
        for which, part in enumerate(parts, 1):
            view = _view(report, place, places, which, len(parts))
            charts = view["summary"] and view["first"] and not alone
            made[place.path(which)] = (
                _templates()
                .get_template(view["template"])
                .render(**view, sections=part, contents=_contents(part, charts=charts), charts=charts, alone=alone)
            )
    return made


def chapters_of(sections: Sequence[Section]) -> list[Chapter]:
    """List the chapters that sections fill; there is always a summary."""
    filled = (chapter for chapter in Chapter if any(_blocks(section, chapter) for section in sections))
    return list(dict.fromkeys((Chapter.SUMMARY, *filled)))


def _contents(part: _Part, *, charts: bool) -> list[tuple[str, list[tuple[str, str]]]]:
    """List what a page shows, by device: id and heading of each chart, figure and table. Empty for a page of one."""
    listed = []
    for section, pieces in part:
        entries = {chart_id(section): CHART_HEADING} if charts and section.points else {}
        for block in (piece.block for piece in pieces):
            if text := block.heading if isinstance(block, Drawing) else block.title:
                entries[id_of(block)] = text
        listed.append((section.device, list(entries.items())))
    return listed if len(listed) > 1 or any(len(entries) > 1 for _, entries in listed) else []


def id_of(block: Drawing | Table) -> str:
    """Give the id of a figure or a table on its page; both may have the same name."""
    return f"figure-{block.name}" if isinstance(block, Drawing) else block.name


def chart_id(section: Section) -> str:
    """Give the id of a section's interactive chart on its page."""
    return f"{path_component(section.device)}-every-case"


def _view(report: Report, place: PagePlace, places: Sequence[PagePlace], part: int, parts: int) -> dict[str, Any]:
    title = place.sweep.title if place.sweep else report.title
    if place.chapter is not Chapter.SUMMARY:
        title += f": {place.chapter.name.capitalize()}"
    landing = place.sweep is None and place.chapter is Chapter.SUMMARY
    return {
        "template": "landing.html"
        if landing
        else "scorecard.html"
        if place.chapter is Chapter.SCORECARD
        else "sweep.html",
        "report": report,
        "sweep": place.sweep,
        "title": title,
        "root": place.root,
        "first": part == 1,
        "summary": place.chapter is Chapter.SUMMARY,
        "links": [(other.path(), other.title, other == place) for other in places] if len(places) > 1 else [],
        "parts": [(place.path(other), other == part) for other in range(1, parts + 1)] if parts > 1 else [],
    }


def _blocks(section: Section, chapter: Chapter) -> list[Drawing | Table]:
    def stands(block: Drawing | Table) -> bool:
        if isinstance(block, Drawing):
            return chapter is Chapter.SUMMARY
        return block.chapter is chapter or (block.headline and chapter is Chapter.SUMMARY)

    return [block for block in section.blocks if stands(block)]


def _parts(sections: Sequence[Section], chapter: Chapter) -> list[_Part]:
    """Deal the pieces of sections out to pages in their order; a new page begins where the room is taken."""
    parts: list[_Part] = [[]]
    room = _ROOM
    for section in sections:
        parts[-1].append((section, []))
        if chapter is Chapter.SUMMARY and section.points is not None:
            room -= len(points_json(section.points))
        for block in _blocks(section, chapter):
            for piece in _pieces(block, room):
                if piece.size > room and any(pieces for _, pieces in parts[-1]):
                    parts.append([(section, [])])
                    room = _ROOM
                parts[-1][-1][1].append(piece)
                room -= piece.size
    return parts


def _pieces(block: Drawing | Table, room: int) -> Iterator[_Piece]:
    """Give a block in pieces, the first of which fits into the room that a page has left, if any row does."""
    if isinstance(block, Drawing):
        yield _Piece("figure", block)
    elif isinstance(block, WinnerMap):
        yield _grid(block)
    else:
        columns, rows = shown(block.frame)
        numeric = [any(row[place].number is not None for row in rows) for place in range(len(columns))]
        heads = list(zip(map(block.heading, columns), numeric, strict=True))
        cut = [column in _CUT for column in columns]
        written = [Markup(f"<tr>{''.join(map(_cell, row, cut))}</tr>") for row in rows]
        sizes = [len(row.encode()) for row in written]
        # A table that fits on a page of its own is not torn apart.
        room = room if sum(sizes) <= room else _ROOM
        start = 0
        while start < len(rows):
            stop, taken = start + 1, sizes[start]
            while stop < len(rows) and taken + sizes[stop] <= room:
                taken += sizes[stop]
                stop += 1
            told = "" if stop - start == len(rows) else f"Rows {start + 1:,} to {stop:,} of {len(rows):,}."
            yield _Piece("table", block, heads, written[start:stop], told, size=taken)
            start = stop


def _cell(cell: Cell, cut: bool) -> str:
    """Give a cell as HTML, by hand: a site has a million of them, and a template takes four times as long."""
    if cell.number is None:
        return _text_cell(cell.text, cut)
    key = "Infinity" if isinf(cell.number) else repr(cell.number)  # spelled so that JavaScript reads a number
    return f'<td class=n data-v="{key}">{markupsafe.escape(cell.text)}</td>'


@lru_cache(maxsize=1 << 12)
def _text_cell(text: str, cut: bool) -> str:
    whole = markupsafe.escape(text)
    if "\n" in text.strip():
        first = markupsafe.escape(first_line(text))
        return f"<td class=wide><details><summary>{first}</summary><pre>{whole.strip()}</pre></details></td>"
    if len(text) > LONG and cut:
        return f'<td class=long title="{whole}">{whole}</td>'
    return f"<td{' class=wide' if len(text) > LONG else ''}>{whole}</td>"


def _grid(block: WinnerMap) -> _Piece:
    """Give a map as panels of rows; a place is None where nothing was measured."""
    panels: list[dict[str, Any]] = []
    for (op, dtype), part in panels_of(block.frame):
        widths = sorted(int(width) for width in part["width"].unique())
        rows: dict[str, dict[int, WinnerPlace]] = {}
        for row in part.to_dict("records"):
            rows.setdefault(str(row["matrix"]), {})[int(row["width"])] = place_of(row)
        panels.append(
            {
                "name": f"{op}, {dtype}",
                "widths": widths,
                "rows": [(matrix, [of.get(width) for width in widths]) for matrix, of in rows.items()],
            }
        )
    names = [str(name) for name in dict.fromkeys(block.frame["implementation"])]
    colours = {name: look.colour for name, look in looks(zip(names, names, strict=True)).items()}
    size = sum(
        len(escape(matrix)) + sum(len(escape("".join(astuple(place)))) + _OF_PLACE for place in places if place)
        for panel in panels
        for matrix, places in panel["rows"]
    )
    return _Piece("grid", block, panels=panels, colours=colours, size=size)


def points_json(points: Points) -> str:
    """Give the points of a chart as JSON that may stand inside of an HTML page."""
    text = json.dumps(asdict(points), separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _code(text: str) -> Markup:
    """Give text as HTML in which what stands between backticks is code."""
    return Markup(_BACKTICKS.sub(r"<code>\1</code>", str(markupsafe.escape(text))))


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("spmark.report.site", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "anchor": path_component,
        "code": _code,
        "csv": lambda block: block.csv if isinstance(block, Drawing) else csv_of(block.frame),
        "data_address": lambda kind, data: f"data:{kind};base64,{base64.b64encode(data).decode()}",
        "points_json": points_json,
    }
    environment.globals |= {
        "FIGURES": FIGURES,
        "TABLES": TABLES,
        "LIBRARY": f"{VENDOR}/{LIBRARY}",
        "chart_id": chart_id,
        "id_of": id_of,
        "path_of": path_of,
    }
    return environment


def path_of(sweep: SweepPage) -> str:
    """Give the path of a sweep's page inside the site."""
    return PagePlace(sweep, Chapter.SUMMARY).path()
