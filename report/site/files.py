"""A report on disk: HTML pages that need nothing else, figures and tables as files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path, PurePosixPath

from spmark.impls.core.errors import RecordError
from spmark.report.figures.plot import Drawing
from spmark.report.site.model import Report, SweepPage
from spmark.report.site.pages import FIGURES, LIBRARY, TABLES, VENDOR, chapters_of, pages_of
from spmark.report.tables.table import Chapter, Table, csv_of

INDEX = f"{Chapter.SUMMARY.value}.html"
_OURS = re.compile(rf"({'|'.join(Chapter)})(-\d+)?\.html")
"""Names of our pages."""


def write_site(report: Report, out: Path) -> Path:
    """Write a report without records, such as that of one matrix or of a study, to a folder.

    Returns
    -------
    Path
        Of ``index.html``.

    Raises
    ------
    RecordError
        ``out`` cannot be written.
    """
    try:
        write_pages(report, None, chapters_of(report.sections), out)
    except OSError as error:
        raise unwritable(out, error) from error
    return out / INDEX


def write_page(report: Report, path: Path) -> Path:
    """Write a report whose blocks all stand on the summary as one file, with the data of figures and tables inside.

    Raises
    ------
    RecordError
        ``path`` cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(pages_of(report, None, [Chapter.SUMMARY], alone=True)[INDEX], encoding="utf-8")
    except OSError as error:
        raise unwritable(path, error) from error
    return path


def unwritable(out: Path, error: OSError) -> RecordError:
    """Say that a report cannot be written, and what to do."""
    return RecordError(f"{out}: the report cannot be written: {error.strerror}; name another place with --out")


def write_pages(report: Report, sweep: SweepPage | None, landing: Sequence[Chapter], out: Path) -> list[str]:
    """Write the pages of one sweep, or the landing page, with their figures and tables.

    Parameters
    ----------
    report, sweep, landing
        As for `spmark.report.site.pages.pages_of`.
    out : Path
        Folder that gets the pages (``sweeps/`` has a folder of them for each sweep), ``figures/`` (SVG, the data as
        CSV, and the further forms that were drawn), ``tables/`` (CSV, and LaTeX of a summary's tables that fit on a
        page of paper) and, for interactive charts, ``vendor/``; made where it is missing. Pages of an earlier report of
        the sweep that this one does not have are removed, and so are further forms of figures that are drawn anew
        without them.

    Returns
    -------
    list of str
        The files, by their paths inside of ``out``.

    Raises
    ------
    OSError
        A file cannot be written.
    """
    made = {path: text.encode() for path, text in pages_of(report, sweep, landing).items()}
    place = PurePosixPath(next(iter(made))).parent
    for block in (block for section in report.sections for block in section.blocks):
        if isinstance(block, Table):
            made[f"{TABLES}/{block.name}.csv"] = csv_of(block.frame).encode()
            if block.on_paper:
                made[f"{TABLES}/{block.name}.tex"] = block.latex().encode()
        else:
            made |= {f"{FIGURES}/{name}": data for name, data in _forms(block)}
    if any(section.points for section in report.sections):
        vendor = files("spmark.report.site").joinpath(VENDOR)
        made |= {f"{VENDOR}/{name}": vendor.joinpath(name).read_bytes() for name in (LIBRARY, "LICENSE.md")}
    for old in pages_in(out / place):
        if str(place / old.name) not in made:
            old.unlink()
    for name, data in made.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        if data:
            (out / name).write_bytes(data)
        else:  # a form of an earlier report would show other numbers
            (out / name).unlink(missing_ok=True)
    return [name for name, data in made.items() if data]


def pages_in(folder: Path) -> list[Path]:
    """List the pages of an earlier report in a folder; a person's own files have other names."""
    return [path for path in folder.glob("*.html") if _OURS.fullmatch(path.name)]


def _forms(drawing: Drawing) -> Iterator[tuple[str, bytes]]:
    """Give the files of a figure by their names; those of forms that were not drawn are empty."""
    yield f"{drawing.name}.svg", drawing.svg
    yield f"{drawing.name}.csv", drawing.csv.encode()
    yield f"{drawing.name}-narrow.svg", drawing.narrow_svg
    yield f"{drawing.name}.png", drawing.png
