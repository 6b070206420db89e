"""``spmark report``: from folders of records to a site."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape

from spmark.suite.cli.console import answer, console, say
from spmark.suite.cli.progress import Stages

if TYPE_CHECKING:
    from spmark.report.site.model import PaperPage


def draw(
    results: Sequence[Path],
    out: Path,
    *,
    baseline: str | None,
    title: str | None,
    paper: str | None,
    as_json: bool,
    also: Collection[str] = (),
    every: bool = False,
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
    from spmark.report.figures.plot import Form
    from spmark.report.site.site import write_report
    from spmark.suite.cli.listed import PackagedSweeps

    screen, chosen = console(as_json), _paper(paper) if paper else None
    with nullcontext() if as_json else Stages(screen, "spmark.report"):
        forms = frozenset(map(Form, also))
        done = write_report(
            list(results), out, baseline, title, chosen, listed=PackagedSweeps(), also=forms, every=every
        )
    if as_json:
        answer({"page": done.index, "notices": done.notices})
        return
    for notice in done.notices:
        say(screen, escape(notice))
    say(screen, escape(str(done.index)))


def _paper(name: str) -> PaperPage:
    from spmark.report.site.model import PaperPage
    from spmark.suite.plan.papers import read_papers

    papers = read_papers(name)
    return PaperPage(
        ", ".join(paper.name for paper in papers), frozenset(s.sweep for paper in papers for s in paper.steps)
    )
