"""The report on disk: one HTML page that needs nothing else, Markdown, figures as PNG and SVG, tables as CSV."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from math import isinf
from pathlib import Path, PurePosixPath
from string import Template

from spmark.impls.core.errors import RecordError
from spmark.report.cells import Cell, heading, shown
from spmark.report.content import Facts, Report, Section, compose, slug
from spmark.report.figures import Drawing
from spmark.report.load import load_records
from spmark.report.markdown import markdown
from spmark.report.tables import Table, first_line

_FIGURES, _TABLES = "figures", "tables"


def write_report(folders: Sequence[Path], out: Path, baseline: str | None = None, title: str | None = None) -> Path:
    """Write the report of all records under ``folders``; the same records give the same bytes.

    Parameters
    ----------
    folders : sequence of Path
        Record files or folders, as `spmark.report.load.load_records` takes them.
    out : Path
        Folder that gets ``index.html``, ``report.md``, ``figures/`` and ``tables/``; made where it is missing.
    baseline : str, optional
        What speed-ups are over; by default what each device's records name most.
    title : str, optional
        The sweeps' names by default.

    Returns
    -------
    Path
        Of ``index.html``.

    Raises
    ------
    RecordError
        Records cannot be read, the baseline is in none of them, or ``out`` cannot be written.
    """
    report = compose(load_records(folders), baseline, title)
    index = out / "index.html"
    try:
        for folder in (_FIGURES, _TABLES):
            (out / folder).mkdir(parents=True, exist_ok=True)
        for section in report.sections:
            for block in section.blocks:
                _write_block(block, out)
        text = markdown(report, PurePosixPath(_FIGURES), PurePosixPath(_TABLES))
        (out / "report.md").write_text(text, encoding="utf-8")
        index.write_text(page(report), encoding="utf-8")
    except OSError as error:
        raise RecordError(f"{out}: the report cannot be written: {error.strerror}; name another folder") from error
    return index


def page(report: Report) -> str:
    """Give a report as one HTML page: no file or address outside it is asked for, and all text is escaped."""
    links = [f'<a href="#{slug(section.device)}">{escape(section.device)}</a>' for section in report.sections]
    parts = [f"<nav>{''.join(links)}</nav>"] if len(links) > 1 else []
    parts += [_notice(text) for text in report.notices]
    parts += [_section(section) for section in report.sections]
    template = Template(files("spmark.report").joinpath("page.html").read_text(encoding="utf-8"))
    return template.substitute(title=escape(report.title), body="\n".join(parts))


def _write_block(block: Drawing | Table, out: Path) -> None:
    if isinstance(block, Drawing):
        (out / _FIGURES / f"{block.name}.png").write_bytes(block.png)
        (out / _FIGURES / f"{block.name}.svg").write_bytes(block.svg)
    else:
        block.frame.to_csv(out / _TABLES / f"{block.name}.csv", index=False, lineterminator="\n")


def _section(section: Section) -> str:
    parts = [f'<section id="{slug(section.device)}">', f"<h2>{escape(section.device)}</h2>"]
    parts += [f"<p>{escape(section.measured)}</p>", _facts(section.facts)]
    parts += [_notice(text) for text in section.notices]
    parts += [_figure(block) if isinstance(block, Drawing) else _table(block) for block in section.blocks]
    return "\n".join([*parts, "</section>"])


def _notice(text: str) -> str:
    return f'<p class="notice">{escape(text)}</p>'


def _facts(facts: Facts) -> str:
    return "<dl>" + "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in facts) + "</dl>"


def _figure(drawing: Drawing) -> str:
    # An image of its own keeps the ids inside one figure apart from those of the next.
    image = f"data:image/svg+xml;base64,{base64.b64encode(drawing.svg).decode()}"
    caption = escape(drawing.caption)
    return f'<figure><img alt="{caption}" src="{image}"><figcaption>{caption}</figcaption></figure>'


def _table(table: Table) -> str:
    columns, rows = shown(table.frame)
    numeric = [any(row[place].number is not None for row in rows) for place in range(len(columns))]
    heads = "".join(
        f"<th{' class=n' if is_number else ''}><button>{escape(heading(column))}</button></th>"
        for column, is_number in zip(columns, numeric, strict=True)
    )
    body = "\n".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in rows)
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    return (
        f'<h3 id="{table.name}">{escape(table.title)}</h3>{note}\n'
        f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>\n{body}\n</tbody></table></div>'
    )


def _cell(cell: Cell) -> str:
    if cell.number is not None:
        key = "Infinity" if isinf(cell.number) else repr(cell.number)  # as JavaScript reads it
        return f'<td class=n data-v="{key}">{escape(cell.text)}</td>'
    if "\n" in cell.text.strip():
        first, whole = escape(first_line(cell.text)), escape(cell.text.strip())
        return f"<td class=wide><details><summary>{first}</summary><pre>{whole}</pre></details></td>"
    return f"<td{' class=wide' if len(cell.text) > 60 else ''}>{escape(cell.text)}</td>"
