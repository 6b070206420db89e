"""The report as a site on disk: HTML pages that need nothing else, Markdown, figures and tables as files.

``index.html`` has its figures inside, so that it can be mailed alone; long tables have pages of their own beside it.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from functools import partial
from html import escape
from importlib.resources import files
from math import isinf
from pathlib import Path, PurePosixPath
from string import Template

from spmark.impls.core.errors import RecordError
from spmark.impls.core.names import path_component
from spmark.report.figures.plot import Drawing
from spmark.report.load.candidates import OF_CASE, load_candidates
from spmark.report.load.records import load_records
from spmark.report.load.transfers import load_transfers
from spmark.report.page.content import Facts, PaperPage, Report, Section, compose
from spmark.report.page.markdown import markdown
from spmark.report.page.transfers import moved_of, with_studies
from spmark.report.tables.cells import Cell, heading, shown
from spmark.report.tables.latex import latex
from spmark.report.tables.spreadsheet import csv_of
from spmark.report.tables.table import Chapter, Table, first_line

_log = logging.getLogger(__name__)
WORTH_HELPERS = 500
"""Records below which other processes take longer to start than they save."""
_FIGURES, _TABLES = "figures", "tables"
_DATA = ("data (CSV)", ".csv")


def write_report(
    folders: Sequence[Path],
    out: Path,
    baseline: str | None = None,
    title: str | None = None,
    paper: PaperPage | None = None,
) -> Path:
    """Write the report of all records under ``folders``; the same records give the same bytes.

    Parameters
    ----------
    folders : sequence of Path
        Record files or folders, as `spmark.report.load.records.load_records` takes them.
    out : Path
        As for `write_site`.
    baseline : str, optional
        What speed-ups are over; by default what each device's records name most.
    title : str, optional
        The sweeps' names by default.
    paper : PaperPage, optional
        Narrows the report to the sweeps of one paper.

    Returns
    -------
    Path
        Of ``index.html``.

    Raises
    ------
    RecordError
        Records cannot be read, the baseline is in none of them, or ``out`` cannot be written.
    """
    return write_site(report_of(folders, baseline, title, paper), out)


def report_of(
    folders: Sequence[Path],
    baseline: str | None = None,
    title: str | None = None,
    paper: PaperPage | None = None,
    pool: Executor | None = None,
) -> Report:
    """Build the report of all records and studies under ``folders``, as `write_report` writes it; may have no section.

    Parameters
    ----------
    folders, baseline, title, paper
        As for `write_report`.
    pool : Executor, optional
        Processes that read and draw where there are at least `WORTH_HELPERS` records.

    Raises
    ------
    RecordError
        Records cannot be read, or the baseline is in none of them.
    """
    facts = load_transfers(folders)
    moved = moved_of(facts, paper)
    _log.info("reading records")
    records = load_records(folders)
    if len(records) < WORTH_HELPERS:
        pool = None
    reading = (folders, records[list(OF_CASE)])
    seen = pool.submit(load_candidates, *reading).result if pool else partial(load_candidates, *reading)
    report = compose(records, baseline, title, paper, seen, moved=moved, pool=pool)
    return with_studies(report, facts, moved) if moved else report


def write_site(report: Report, out: Path) -> Path:
    """Write a report to a folder.

    Parameters
    ----------
    report : Report
        What to say.
    out : Path
        Folder that gets the pages, ``report.md``, ``figures/`` (SVG, narrow SVG, PNG and the data as CSV) and
        ``tables/`` (CSV and LaTeX); made where it is missing. Pages of an earlier report that this one does not have
        are removed.

    Returns
    -------
    Path
        Of ``index.html``.

    Raises
    ------
    RecordError
        ``out`` cannot be written.
    """
    _log.info("writing pages, figures and tables")
    made = pages(report)
    try:
        for folder in (_FIGURES, _TABLES):
            (out / folder).mkdir(parents=True, exist_ok=True)
        for section in report.sections:
            for block in section.blocks:
                for name, data in _files(block):
                    (out / name).write_bytes(data)
        text = markdown(report, PurePosixPath(_FIGURES), PurePosixPath(_TABLES))
        (out / "report.md").write_text(text, encoding="utf-8")
        for chapter in Chapter:
            if chapter in made:
                (out / _file(chapter)).write_text(made[chapter], encoding="utf-8")
            else:
                (out / _file(chapter)).unlink(missing_ok=True)
    except OSError as error:
        raise RecordError(f"{out}: the report cannot be written: {error.strerror}; name another folder") from error
    return out / _file(Chapter.SUMMARY)


def write_page(report: Report, path: Path) -> Path:
    """Write a report whose blocks all stand on the summary as one file, with the data of figures and tables inside.

    Raises
    ------
    RecordError
        ``path`` cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(pages(report, alone=True)[Chapter.SUMMARY], encoding="utf-8")
    except OSError as error:
        raise RecordError(f"{path}: the page cannot be written: {error.strerror}; name another file") from error
    return path


def pages(report: Report, *, alone: bool = False) -> dict[Chapter, str]:
    """Give a report as HTML pages. A page asks for no file or address outside itself, and all text is escaped.

    Parameters
    ----------
    report : Report
    alone : bool
        Whether no files stand beside the pages: they then hold their data as CSV, and links save it.
    """
    there = [c for c in Chapter if c is Chapter.SUMMARY or any(_on(section, c) for section in report.sections)]
    template = Template(files("spmark.report.page").joinpath("page.html").read_text(encoding="utf-8"))
    made: dict[Chapter, str] = {}
    for chapter in there:
        sections = [s for s in report.sections if chapter is Chapter.SUMMARY or _on(s, chapter)]
        parts = [_navigation(there, chapter, sections)]
        parts += [_notice(text) for text in report.notices if chapter is Chapter.SUMMARY]
        parts += [_section(section, chapter, alone) for section in sections]
        name = report.title if chapter is Chapter.SUMMARY else f"{report.title}: {_title(chapter)}"
        made[chapter] = template.substitute(title=escape(name), body="\n".join(parts))
    return made


def _file(chapter: Chapter) -> str:
    return f"{chapter.value}.html"


def _title(chapter: Chapter) -> str:
    return chapter.name.capitalize()


def _on(section: Section, chapter: Chapter) -> list[Drawing | Table]:
    return [block for block in section.blocks if _chapter(block) is chapter]


def _chapter(block: Drawing | Table) -> Chapter:
    return Chapter.SUMMARY if isinstance(block, Drawing) else block.chapter


def _files(block: Drawing | Table) -> Iterator[tuple[str, bytes]]:
    if isinstance(block, Drawing):
        yield f"{_FIGURES}/{block.name}.png", block.png
        yield f"{_FIGURES}/{block.name}.svg", block.svg
        yield f"{_FIGURES}/{block.name}-narrow.svg", block.narrow_svg
        yield f"{_FIGURES}/{block.name}.csv", block.csv.encode()
    else:
        yield f"{_TABLES}/{block.name}.csv", csv_of(block.frame).encode()
        yield f"{_TABLES}/{block.name}.tex", latex(block).encode()


def _navigation(there: Sequence[Chapter], here: Chapter, sections: Sequence[Section]) -> str:
    links = [
        f'<a href="{_file(chapter)}"{" aria-current=page" if chapter is here else ""}>{_title(chapter)}</a>'
        for chapter in there
        if len(there) > 1
    ]
    if len(sections) > 1:
        links += [f'<a href="#{path_component(section.device)}">{escape(section.device)}</a>' for section in sections]
    return f"<nav>{''.join(links)}</nav>" if links else ""


def _section(section: Section, chapter: Chapter, alone: bool) -> str:
    parts = [f'<section id="{path_component(section.device)}">', f"<h2>{escape(section.device)}</h2>"]
    if chapter is Chapter.SUMMARY:
        parts += [f"<p>{escape(section.measured)}</p>", _facts(section.facts)]
        parts += [_notice(text) for text in section.notices]
    parts += [
        _figure(block, alone) if isinstance(block, Drawing) else _table(block, alone) for block in _on(section, chapter)
    ]
    return "\n".join([*parts, "</section>"])


def _notice(text: str) -> str:
    return f'<p class="notice">{escape(text)}</p>'


def _facts(facts: Facts) -> str:
    return "<dl>" + "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in facts) + "</dl>"


def _figure(drawing: Drawing, alone: bool) -> str:
    caption = escape(drawing.caption)
    kinds = (("SVG", ".svg"), ("narrow", "-narrow.svg"), ("PNG", ".png"), _DATA)
    links = _saved(drawing.name, drawing.csv) if alone else _links(_FIGURES, drawing.name, kinds)
    return (
        f'<figure id="{drawing.name}"><picture>'
        f'<source media="(max-width: 40rem)" srcset="{_image(drawing.narrow_svg)}">'
        f'<img alt="{caption}" src="{_image(drawing.svg)}"></picture>'
        f"<figcaption>{caption} {links}</figcaption></figure>"
    )


def _image(svg: bytes) -> str:
    # An image of its own keeps the ids inside one figure apart from those of the next.
    return f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"


def _links(folder: str, name: str, kinds: Sequence[tuple[str, str]]) -> str:
    links = " ".join(f'<a href="{folder}/{name}{ending}">{text}</a>' for text, ending in kinds)
    return f"<span class=files>{links}</span>"


def _saved(name: str, csv: str) -> str:
    """Link to data inside the page."""
    data = base64.b64encode(csv.encode()).decode()
    return f'<span class=files><a download="{name}.csv" href="data:text/csv;base64,{data}">{_DATA[0]}</a></span>'


def _table(table: Table, alone: bool) -> str:
    columns, rows = shown(table.frame)
    numeric = [any(row[place].number is not None for row in rows) for place in range(len(columns))]
    heads = "".join(
        f"<th{' class=n' if is_number else ''}><button>{escape(heading(column))}</button></th>"
        for column, is_number in zip(columns, numeric, strict=True)
    )
    body = "\n".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in rows)
    kinds = (_DATA, ("LaTeX", ".tex"))
    links = _saved(table.name, csv_of(table.frame)) if alone else _links(_TABLES, table.name, kinds)
    return (
        f'<h3 id="{table.name}">{escape(table.title)}</h3><p class="note">{escape(table.note)} {links}</p>\n'
        f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>\n{body}\n</tbody></table></div>'
    )


def _cell(cell: Cell) -> str:
    if cell.number is not None:
        key = "Infinity" if isinf(cell.number) else repr(cell.number)  # spelled so that JavaScript reads a number
        return f'<td class=n data-v="{key}">{escape(cell.text)}</td>'
    if "\n" in cell.text.strip():
        first, whole = escape(first_line(cell.text)), escape(cell.text.strip())
        return f"<td class=wide><details><summary>{first}</summary><pre>{whole}</pre></details></td>"
    return f"<td{' class=wide' if len(cell.text) > 60 else ''}>{escape(cell.text)}</td>"
