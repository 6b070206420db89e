"""``spmark reproduce``: from a paper's name to its records and its page, within a budget of time."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from spmark.impls.core.devicespec import DeviceSpec
from spmark.records.rowfile import RECORDS
from spmark.suite.cli.console import answer, complain, console, say, table
from spmark.suite.cli.progress import Bar
from spmark.suite.environment import collect
from spmark.suite.plan.options import Options
from spmark.suite.plan.papers import Paper, StepCases, counts, in_turns, missing, read_papers, seconds
from spmark.suite.plan.plan import record_folder
from spmark.suite.run.execute import NO_CLUSTER, Place, execute

if TYPE_CHECKING:
    from spmark.suite.study.transfer import StudyState


@dataclass(frozen=True)
class Reproduced:
    """How it ended, for the exit code."""

    missing: bool = False
    """A paper could not run at all."""
    interrupted: bool = False


def reproduce_papers(
    name: str,
    budget: str,
    device: str,
    out: Path,
    *,
    dry_run: bool,
    as_json: bool,
    cluster: AbstractContextManager[Place | None] = NO_CLUSTER,
) -> Reproduced:
    """Run the papers' cases, most important first, until all are done or the time is up; draw a page for each.

    A study of models runs in this process, also where a cluster runs the cases.

    Raises
    ------
    SpmarkError
        The paper or the budget is invalid, or the device, the cluster or the folder of records cannot be used.
    """
    ends = time.monotonic() + seconds(budget)
    papers = read_papers(name)
    with cluster as place:
        return _reproduce(papers, place, device, out, ends=ends, dry_run=dry_run, as_json=as_json)


def _reproduce(
    papers: Sequence[Paper], place: Place | None, device: str, out: Path, *, ends: float, dry_run: bool, as_json: bool
) -> Reproduced:
    from spmark.impls.runtime.device import calibrated, find

    screen, spec = console(as_json), find(device) if place is None else place.environment.device
    absent = {paper.name: reasons for paper in papers if (reasons := missing(paper, spec.kind))}
    for paper_name, reasons in absent.items():
        complain(f"spmark: {paper_name} cannot run here: {'; '.join(reasons)}: spmark doctor says what is missing")
    able = [paper for paper in papers if paper.name not in absent]
    listed = _matrices(in_turns(papers, spec.kind)) if dry_run else []
    if listed and not as_json:
        screen.print(table("Matrices", listed, plain=True))
    if not able:
        if as_json:
            answer({"missing": absent, "steps": [], "matrices": listed, "pages": {}, "interrupted": False})
        return Reproduced(missing=True)
    for paper in able:
        say(screen, f"[bold]{escape(paper.title)}[/bold] ({escape(paper.citation)}) on {escape(spec.name)}")
        if paper.left_out:
            say(screen, f"compared without what does not exist yet: {', '.join(paper.left_out)}")
    todo = in_turns(able, spec.kind)
    environment = place.environment if place else collect(spec if dry_run else calibrated(spec))
    here = spec if place is None else find("auto" if device == "cuda" else device)
    studies = {} if dry_run else _studies(able, here, out, screen, ends=ends, as_json=as_json)
    interrupted = False if dry_run else _run(todo, spec, place, out, screen, ends=ends)
    folders = [record_folder(out, step.chosen.sweep.name, environment.device.name) for step in todo]
    rows = [counts(step, folder, environment) for step, folder in zip(todo, folders, strict=True)]
    pages = {} if dry_run else _pages(able, todo, folders, out, studies)
    told = [{"paper": name, **asdict(one)} for name, states in studies.items() for one in states]
    if as_json:
        ended = {"studies": told, "pages": pages, "interrupted": interrupted}
        answer({"missing": absent, "steps": rows, "matrices": listed, **ended})
    else:
        screen.print(table("Most important first", rows, plain=True))
    for page in pages.values():
        say(screen, escape(str(page)))
    if not dry_run and any(row["left"] for row in [*rows, *told]):
        say(screen, "[yellow]Some cases are left: the same command goes on from here.[/yellow]")
    return Reproduced(bool(absent), interrupted)


def _matrices(todo: Sequence[StepCases]) -> list[dict[str, str]]:
    """Give each matrix of the steps with the address that it comes from, which what a formula gives has not."""
    found = {case.matrix.id: case.matrix.origin for step in todo for case in step.chosen.cases}
    return [{"matrix": matrix, "origin": origin} for matrix, origin in found.items()]


def _studies(
    papers: Sequence[Paper], spec: DeviceSpec, out: Path, screen: Console, *, ends: float, as_json: bool
) -> dict[str, list[StudyState]]:
    """Run the studies of papers that have one, each within half of its paper's share of the time."""
    from spmark.suite.study.transfer import run_studies

    studies = {}
    now = time.monotonic()
    share_s = (ends - now) / len(papers) / 2
    for paper in papers:
        if paper.study is None:
            continue
        targets = paper.study.able(spec.kind)
        absent = [name for name in paper.study.targets if name not in targets]
        say(screen, f"{paper.name}: collecting configs and training models for {', '.join(targets)}")
        if absent:
            say(screen, f"{paper.name}: this machine has no device for {', '.join(absent)}")
        folder = out / "reproduce" / paper.name
        studies[paper.name] = run_studies(paper.study, targets, folder, now + share_s, as_json)
        for state in studies[paper.name]:
            if state.why:
                complain(f"spmark: {paper.name}: the study of {state.target} cannot go on: {state.why}")
    return studies


def _run(
    todo: Sequence[StepCases], spec: DeviceSpec, place: Place | None, out: Path, screen: Console, *, ends: float
) -> bool:
    """Run step after step; tells whether the user interrupted."""
    for step in todo:
        if time.monotonic() >= ends:
            break
        sweep = step.chosen.sweep
        say(screen, f"{step.paper.name}: {escape(step.step.shows)} ({sweep.name})")
        with Bar(screen) as bar:
            options = Options(only=step.step.only)
            summary = execute(sweep, spec, options, out=out, watcher=bar, until=ends, place=place)
        if summary.interrupted:
            return True
    return False


def _pages(
    papers: Sequence[Paper],
    todo: Sequence[StepCases],
    folders: Sequence[Path],
    out: Path,
    studies: Mapping[str, Sequence[StudyState]],
) -> dict[str, Path]:
    """Draw each paper that has records, or facts of a study."""
    from spmark.report.site.model import PaperPage
    from spmark.report.site.site import write_report
    from spmark.suite.cli.report import listed_sweep

    pages = {}
    for paper in papers:
        own = {folder: step for step, folder in zip(todo, folders, strict=True) if step.paper is paper}
        found = [folder for folder in own if (folder / RECORDS).exists()]
        found += [file for state in studies.get(paper.name, ()) for file in state.folder.glob("transfers.jsonl*")]
        if found:
            narrowed = PaperPage(paper.name, frozenset(step.chosen.sweep.name for step in own.values()))
            page = out / "reproduce" / paper.name
            done = write_report(found, page, title=paper.title, paper=narrowed, listed=listed_sweep)
            pages[paper.name] = done.index
    return pages
