"""``spmark report``: from folders of records to a site."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from spmark.datasets.sweep.model import expand
from spmark.datasets.sweep.reading import packaged_sweeps, read_sweep
from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.errors import printable
from spmark.suite.cli.console import answer, console, say, working

if TYPE_CHECKING:
    from spmark.report.site.model import ListedSweep, PaperPage


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

    screen, chosen = console(as_json), _paper(paper) if paper else None
    with nullcontext() if as_json else Stages(screen, "spmark.report"):
        forms = frozenset(map(Form, also))
        done = write_report(results, out, baseline, title, chosen, listed=listed_sweep, also=forms, every=every)
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


def listed_sweep(name: str) -> ListedSweep | None:
    """Say what pages say of a packaged sweep; None where no packaged sweep has the name."""
    from spmark.report.site.model import ListedSweep

    if (file := packaged_sweeps().get(name)) is None:
        return None
    sweep = read_sweep(file)
    lines = takewhile(lambda line: line.startswith("#"), file.read_text(encoding="utf-8").splitlines())
    about = " ".join(line.lstrip("# ") for line in lines)
    # Which cases there are is the same on every kind of device.
    cases = expand(sweep, DeviceKind.CUDA)
    others = {other: case.case_id for case in cases for other in case.other_ids}
    return ListedSweep(sweep.title, about, {case.case_id: case.label for case in cases}, others)


def show_provenance(path: Path, as_json: bool) -> None:
    """Print a shell script for each run: comments that describe the run, then commands, then the differences to expect.

    Raises
    ------
    RecordError
        There are no records, or a file cannot be read.
    """
    from spmark.suite.run.provenance import read_batches, recipe

    recipes_of = {file: [recipe(batch) for batch in batches] for file, batches in read_batches(path).items()}
    if as_json:
        answer([{"file": file} | asdict(made) for file, recipes in recipes_of.items() for made in recipes])
        return
    screen = console(as_json)
    here = Path.cwd()
    for file, recipes in recipes_of.items():
        name = file.relative_to(here) if file.is_relative_to(here) else file
        for made in recipes:
            lines = [f"# {printable(str(name))}", *(f"# {line}" for line in made.about), *made.commands]
            for line in (*lines, "# Not exactly as it was:", *(f"# - {line}" for line in made.limits), ""):
                say(screen, escape(line))


class Stages(logging.Handler):
    """Shows the newest message of a logger on the last line of a terminal, until the work is done."""

    def __init__(self, console: Console, logger: str) -> None:
        super().__init__(logging.INFO)
        self._status = working(console, "")
        self._logger = logging.getLogger(logger)
        self._level = self._logger.level

    def __enter__(self) -> Self:
        self._logger.addHandler(self)
        self._logger.setLevel(min(self._logger.getEffectiveLevel(), logging.INFO))
        self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._status.stop()
        self._logger.setLevel(self._level)
        self._logger.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Show a message of a stage; warnings go to standard error anyway."""
        if record.levelno == logging.INFO:
            self._status.update(Text(printable(record.getMessage())))
