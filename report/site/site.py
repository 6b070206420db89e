"""The report as a site on disk: HTML pages that need nothing else, Markdown, figures and tables as files."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from importlib.resources import files
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from spmark.impls.core.errors import RecordError
from spmark.report.analysis.remember import remembering
from spmark.report.asset import absence, absent_candidates
from spmark.report.candidates import OF_CASE, begin_candidates, candidate_digests
from spmark.report.figures.plot import Drawing, Form
from spmark.report.parallel import each
from spmark.report.records import begin_records, record_files, sweep_name
from spmark.report.site.compose import compose
from spmark.report.site.made import MadeSweep, ReportFolder, all_anew, digest_of_bytes, read_made, write_made
from spmark.report.site.markdown import markdown, section_markdown
from spmark.report.site.model import ListedSweep, PaperPage, Report, Section, SweepPage
from spmark.report.site.pages import FIGURES, LIBRARY, SWEEPS, TABLES, VENDOR, PagePlace, pages, pages_of, places_of
from spmark.report.site.transfers import Studies
from spmark.report.tables.table import Chapter, Table, csv_of
from spmark.report.texts import python_texts

_INDEX = f"{Chapter.SUMMARY.value}.html"
_OURS = re.compile(rf"({'|'.join(Chapter)})(-\d+)?\.html")
"""Names of our pages."""
_log = logging.getLogger(__name__)
_Texts = tuple[dict[str, str], dict[str, bytes], list[str]]
"""Pages by their paths, files of tables by their names, and sections as Markdown."""
WORTH_HELPERS = 500
"""Records below which other processes take longer to start than they save."""
_WORTH_READING = 1 << 20
"""Bytes of record files below which this is so of reading."""


def write_report(
    folders: Sequence[Path],
    out: Path,
    baseline: str | None = None,
    title: str | None = None,
    paper: PaperPage | None = None,
    *,
    listed: Mapping[str, ListedSweep] = MappingProxyType({}),
) -> Path:
    """Write the report of all records under ``folders``; the same records give the same bytes.

    Parameters
    ----------
    folders : sequence of Path
        Record files or folders, as `spmark.report.records.load_records` takes them.
    out : Path
        As for `write_site`.
    baseline : str, optional
        What speed-ups are over; by default what each sweep's records name most.
    title : str, optional
        The sweep's name, or the number of sweeps, by default.
    paper : PaperPage, optional
        Narrows the report to the sweeps of one paper.
    listed : mapping of str to ListedSweep
        What is known of packaged sweeps, by name.

    Returns
    -------
    Path
        Of ``index.html``.

    Raises
    ------
    RecordError
        Records cannot be read, the baseline is in none of them, or ``out`` cannot be written.
    """
    return write_site(report_of(folders, baseline, title, paper, listed=listed, out=out), out)


@python_texts()
def report_of(
    folders: Sequence[Path],
    baseline: str | None = None,
    title: str | None = None,
    paper: PaperPage | None = None,
    *,
    listed: Mapping[str, ListedSweep] = MappingProxyType({}),
    out: Path | None = None,
    pool: Executor | None = None,
    also: AbstractSet[Form] = frozenset(),
) -> Report:
    """Build the report of all records and studies under ``folders``, as `write_report` writes it; may have no section.

    Parameters
    ----------
    folders, baseline, title, paper
        As for `write_report`.
    out : Path, optional
        Folder that the report goes to: a sweep of which nothing has changed since an earlier report there keeps its
        files, and its sections here are empty.
    pool : Executor, optional
        Processes that read and draw where there are at least `WORTH_HELPERS` records.
    also : set of Form
        Further forms that figures are drawn in.

    Raises
    ------
    RecordError
        Records cannot be read, or the baseline is in none of them.
    """
    _log.info("reading records")
    much = sum(file.stat().st_size for file in record_files(folders)) >= _WORTH_READING
    studies = Studies(folders, paper, also, pool if much else None)
    records = begin_records(folders, pool if much else None, by_sweep=True)()
    if len(records) < WORTH_HELPERS:
        pool = None
    devices = list(map(str, records["device"].unique()))
    folder = ReportFolder(out, read_made(out), candidate_digests(folders, devices)) if out else None
    begin = partial(begin_candidates, folders, records[list(OF_CASE)], pool)
    unseen = _unseen(folders, devices)
    moved = partial(studies.begin, pool if all_anew(folder) else None)
    report = compose(
        records, baseline, title, paper, begin, moved=moved, listed=listed, unseen=unseen, folder=folder, pool=pool,
        also=also,
    )  # fmt: skip
    return studies.beside(report, folder)


def _unseen(folders: Sequence[Path], devices: Iterable[str]) -> frozenset[tuple[str, str]]:
    """Give device and sweep of the records whose candidates are published, but are not there."""
    absent = absent_candidates(folders)
    if not absent:
        return frozenset()
    _log.warning("%s", absence(absent))
    files = [file for file in record_files(folders) if file.parent in absent]
    return frozenset((device, sweep_name(file, device)) for device in devices for file in files)


@python_texts()
def write_site(report: Report, out: Path, pool: Executor | None = None) -> Path:
    """Write a report to a folder.

    Parameters
    ----------
    report : Report
        What to say.
    pool : Executor, optional
        Processes that make pages and tables where sweeps' tables have at least `WORTH_HELPERS` rows.
    out : Path
        Folder that gets the pages (``sweeps/`` has a folder of them for each sweep), ``report.md``, ``figures/`` (SVG,
        the data as CSV, and the further forms that were drawn), ``tables/`` (CSV, and LaTeX of what stands on a
        summary), for interactive charts ``vendor/``, and ``made.json`` (`spmark.report.site.made`); made where it is
        missing. Pages that this
        report does not have are removed, and so are further forms of figures that this report draws anew without them.

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
    places, texts = places_of(report), dict.fromkeys(map(id, report.sections), "")
    asked = [sweep for sweep in _pages(report) if not (sweep and sweep.made)]
    of_asked = [replace(report, sections=list(map(_lean, _of(report, sweep)))) for sweep in asked]
    tasks = [partial(_texts, of, sweep, places) for of, sweep in zip(of_asked, asked, strict=True)]
    sizes = list(map(_rows, of_asked))
    # The landing page's claims are many whatever the records are.
    of_sweeps = sum(size for sweep, size in zip(asked, sizes, strict=True) if sweep)
    texts_of = each(tasks, sizes, pool if of_sweeps >= WORTH_HELPERS else None)
    made: dict[str, str] = {}
    sweeps = {page.name: page.made for page in report.sweeps if page.made}
    for page in (page for page in report.sweeps if page.made):
        texts |= zip(map(id, _of(report, page)), sweeps[page.name].sections, strict=True)
    try:
        for folder in (FIGURES, TABLES):
            (out / folder).mkdir(parents=True, exist_ok=True)
        for block in (block for section in report.sections for block in section.blocks):
            if isinstance(block, Drawing):
                _write_figure(block, out / FIGURES)
        if any(section.points for section in report.sections) or any(of.charts for of in sweeps.values()):
            _copy_library(out / VENDOR)
        for sweep, written in zip(asked, texts_of, strict=True):
            of_sweep, tables, told = written
            made |= of_sweep
            texts |= zip(map(id, _of(report, sweep)), told, strict=True)
            for name, data in tables.items():
                (out / TABLES / name).write_bytes(data)
            if sweep and sweep.key:
                sweeps[sweep.name] = _made(report, sweep, places, written)
        (out / "report.md").write_text(markdown(report, [*texts.values()]), encoding="utf-8")
        stays = made.keys() | {name for of in sweeps.values() for name in of.files}
        for path in (*out.glob("*.html"), *(out / SWEEPS).glob("*/*.html")):
            if _OURS.fullmatch(path.name) and path.relative_to(out).as_posix() not in stays:
                path.unlink()
        for name, text in made.items():
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_text(text, encoding="utf-8")
        write_made(out, {page.name: sweeps[page.name] for page in report.sweeps if page.name in sweeps})
    except OSError as error:
        raise RecordError(f"{out}: the report cannot be written: {error.strerror}; name another folder") from error
    return out / _INDEX


def write_page(report: Report, path: Path) -> Path:
    """Write a report whose blocks all stand on the summary as one file, with the data of figures and tables inside.

    Raises
    ------
    RecordError
        ``path`` cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(pages(report, alone=True)[_INDEX], encoding="utf-8")
    except OSError as error:
        raise RecordError(f"{path}: the page cannot be written: {error.strerror}; name another file") from error
    return path


def _pages(report: Report) -> Sequence[SweepPage | None]:
    """Give what pages are of: the landing page, which is of no sweep, and each sweep."""
    return [None, *report.sweeps]


def _of(report: Report, sweep: SweepPage | None) -> list[Section]:
    return [section for section in report.sections if section.sweep == (sweep.name if sweep else "")]


def _rows(report: Report) -> int:
    """Give the rows of a report's tables."""
    blocks = (block for section in report.sections for block in section.blocks)
    return sum(len(block.frame) for block in blocks if isinstance(block, Table))


def _lean(section: Section) -> Section:
    """Leave the pictures out, which pages only link: they would be most of what another process is sent."""
    blocks = [
        replace(block, svg=b"", csv="", narrow_svg=block.narrow_svg[:1], png=block.png[:1])
        if isinstance(block, Drawing)
        else block
        for block in section.blocks
    ]
    return replace(section, blocks=blocks)


def _texts(report: Report, sweep: SweepPage | None, places: Sequence[PagePlace]) -> _Texts:
    """Give a sweep's pages, the files of its tables, and each of its sections as Markdown."""
    with remembering():
        made = pages_of(report, sweep, places)
        tables: dict[str, bytes] = {}
        for block in (block for section in report.sections for block in section.blocks):
            if isinstance(block, Table):
                tables[f"{block.name}.csv"] = csv_of(block.frame).encode()
                if block.chapter is Chapter.SUMMARY:
                    tables[f"{block.name}.tex"] = block.latex().encode()
        where = PurePosixPath(FIGURES), PurePosixPath(TABLES)
        told = [section_markdown(section, report.sweeps, *where) for section in report.sections]
    return made, tables, told


def _made(report: Report, sweep: SweepPage, places: Sequence[PagePlace], written: _Texts) -> MadeSweep:
    """Say what is written for a sweep."""
    pages, tables, told = written
    sections = _of(report, sweep)
    drawings = [block for section in sections for block in section.blocks if isinstance(block, Drawing)]
    contents = {f"{FIGURES}/{name}": data for drawing in drawings for name, data in _files(drawing)}
    contents |= {f"{TABLES}/{name}": data for name, data in tables.items()}
    contents |= {name: page.encode() for name, page in pages.items()}
    return MadeSweep(
        key=sweep.key,
        chapters=tuple(place.chapter for place in places if place.sweep == sweep),
        sections=tuple(told),
        charts=any(section.points is not None for section in sections),
        files={name: digest_of_bytes(data) for name, data in contents.items()},
    )


def _files(drawing: Drawing) -> Iterator[tuple[str, bytes]]:
    """Give the files of a figure by their names."""
    yield f"{drawing.name}.svg", drawing.svg
    yield f"{drawing.name}.csv", drawing.csv.encode()
    for ending, data in _further(drawing).items():
        if data:
            yield f"{drawing.name}{ending}", data


def _further(drawing: Drawing) -> dict[str, bytes]:
    """Give the forms that a figure need not have, by the ends of their files' names."""
    return {"-narrow.svg": drawing.narrow_svg, ".png": drawing.png}


def _write_figure(drawing: Drawing, folder: Path) -> None:
    for ending, data in _further(drawing).items():
        if not data:  # that of an earlier report would show other numbers
            (folder / f"{drawing.name}{ending}").unlink(missing_ok=True)
    for name, data in _files(drawing):
        (folder / name).write_bytes(data)


def _copy_library(folder: Path) -> None:
    """Copy the library of interactive charts with its licence."""
    folder.mkdir(exist_ok=True)
    for name in (LIBRARY, "LICENSE.md"):
        (folder / name).write_bytes(files("spmark.report.site").joinpath(VENDOR, name).read_bytes())
