"""``spmark report``: from folders of records to a site."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape

from spmark.impls.core.errors import RecordError
from spmark.suite.cli.console import answer, console, say
from spmark.suite.cli.helpers import helpers
from spmark.suite.cli.progress import Stages

if TYPE_CHECKING:
    from spmark.report.site.model import PaperPage, Report

_MANY_BYTES = 1 << 20
"""Size of record files from which helpers read them, as `spmark.report.site.site` has it, which imports for seconds."""


def draw(
    results: Sequence[Path],
    out: Path,
    *,
    baseline: str | None,
    title: str | None,
    paper: str | None,
    as_json: bool,
    also: Collection[str] = (),
) -> None:
    """Write the site, and say where the site is and what its reader must know first.

    ``also`` names further forms of figures, `spmark.report.figures.plot.Form`.

    Raises
    ------
    RecordError
        A path is missing or holds no record, or a file in it is not a record file.
    SweepError
        There is no such paper.
    """
    screen = console(as_json)
    with nullcontext() if as_json else Stages(screen, "spmark.report"):
        report, index = _written(list(results), out, baseline, title, paper, also=also)
    if as_json:
        answer({"page": index, "notices": report.notices})
        return
    for notice in report.notices:
        say(screen, escape(notice))
    say(screen, escape(str(index)))


def _written(
    folders: Sequence[Path],
    out: Path,
    baseline: str | None,
    title: str | None,
    paper: str | None,
    *,
    also: Collection[str],
) -> tuple[Report, Path]:
    with helpers("spmark.report.site.site", at_once=_bytes_of(folders) >= _MANY_BYTES) as pool:
        from spmark.report.figures.plot import Form
        from spmark.report.site.site import report_of, write_site
        from spmark.suite.cli.listed import PackagedSweeps

        chosen = _paper(paper) if paper else None
        report = report_of(
            folders,
            baseline,
            title,
            chosen,
            listed=PackagedSweeps(),
            out=out,
            pool=pool,
            also=frozenset(map(Form, also)),
        )
        if not report.sections:
            raise RecordError(
                f"{', '.join(map(str, folders))}: expected records, found none; run a sweep first (spmark run "
                "quickstart) and name the folder that it says"
            )
        return report, write_site(report, out, pool)


def _bytes_of(folders: Sequence[Path]) -> int:
    """Give the size of record files, without the imports that reading them takes."""
    files = (file for folder in folders for file in folder.rglob("records.jsonl*"))
    try:
        return sum(file.stat().st_size for file in files if file.is_file())
    except OSError:  # reading tells what cannot be read
        return 0


def _paper(name: str) -> PaperPage:
    from spmark.report.site.model import PaperPage
    from spmark.suite.plan.papers import read_papers

    papers = read_papers(name)
    return PaperPage(
        ", ".join(paper.name for paper in papers), frozenset(s.sweep for paper in papers for s in paper.steps)
    )
