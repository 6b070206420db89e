"""The report of records as a site: each sweep's pages in one pass, side by side, then the landing page.

``made.json`` in the report's folder has the digest of all that a sweep's pages follow from. Where it is the same, the
pages stay as they are.
"""

from __future__ import annotations

import gc
import hashlib
import logging
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.metadata import version
from importlib.resources import files
from multiprocessing import get_context
from pathlib import Path

import pandas as pd
from pydantic import ValidationError

from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.errors import RecordError, SpmarkError
from spmark.impls.core.files import path_component
from spmark.impls.core.machine import allowed_cores
from spmark.impls.core.untrusted import Frozen, NoJsonError, parse_model, reading
from spmark.records.rowfile import row_files
from spmark.report.analysis.cases import baseline_names, choose_baseline, derive, each_problem_once
from spmark.report.analysis.transfers import Moved
from spmark.report.candidates import CANDIDATES, absence, absent_candidates
from spmark.report.claims.published import PAPERS, load_published
from spmark.report.claims.scorecard import answers_any, scorecard_tables
from spmark.report.figures.all import with_results
from spmark.report.figures.plot import Drawing, Form, render
from spmark.report.figures.speedups import speedup_per_matrix
from spmark.report.records import Run, current, in_turn, load_records, python_texts, record_files, sweep_name
from spmark.report.site.files import INDEX, pages_in, unwritable, write_pages
from spmark.report.site.model import ListedSweep, PaperPage, Report, Section, SweepPage
from spmark.report.site.pages import SWEEPS, chapters_of
from spmark.report.site.run_metadata import MEASURED, UNSEEN, doubtful, facts_of, without_baseline, without_result
from spmark.report.site.sweep_page import SweepCases, SweepDone, SweepTask, cases_of, coverage_of, named, render_sweep
from spmark.report.site.transfers import STUDIES, moved_of, moved_section, standing, studies_alone
from spmark.report.tables.table import Chapter, Table
from spmark.report.tables.winners import systems_table, winner_map
from spmark.report.transfers import TransferFacts, digest_of_transfers, load_transfers

MADE = "made.json"
WORTH_HELPERS = 1_000_000
"""Bytes of records below which other processes take longer to start than they save."""
_GARBAGE = 100_000
"""Objects more than before at which a process of the pool looks for garbage."""
_PACKAGES = ("jinja2", "matplotlib", "numpy", "pandas", "scipy")
"""What pages are made with: another version may draw the same rows differently."""
_log = logging.getLogger(__name__)
"""What runs jobs and gives their results in order."""


class _MadeSweep(Frozen):
    key: str = ""
    """Digest of all that the sweep's pages follow from."""
    files: list[str] = []


class _Made(Frozen):
    """The file ``made.json``."""

    whole: str = ""
    """Digest of all that the report follows from."""
    notices: list[str]
    files: list[str]
    sweeps: dict[str, _MadeSweep]


@dataclass(frozen=True)
class Written:
    """A report on disk."""

    index: Path
    notices: list[str]
    """What its reader must know before anything else."""


@contextmanager
def _seldom_garbage() -> Iterator[None]:
    """Look seldom for garbage, which takes an eighth of a report's time otherwise."""
    usual = gc.get_threshold()
    gc.set_threshold(_GARBAGE)
    try:
        yield
    finally:
        gc.set_threshold(*usual)


@python_texts()
@_seldom_garbage()
def write_report(
    folders: Sequence[Path],
    out: Path,
    baseline: str | None = None,
    title: str | None = None,
    paper: PaperPage | None = None,
    *,
    listed: Callable[[str], ListedSweep | None] = lambda name: None,
    also: AbstractSet[Form] = frozenset(),
    every: bool = False,
) -> Written:
    """Write the report of all records and studies under ``folders``; the same records give the same bytes.

    Parameters
    ----------
    folders : sequence of Path
        Record files or folders, as `spmark.report.records.load_records` takes them.
    out : Path
        Folder that gets the pages, as `spmark.report.site.files.write_pages` writes them.
    baseline : str, optional
        What speed-ups are over: an implementation or a label. A sweep without this baseline takes the one that its
        records name most, as by default.
    title : str, optional
        The sweep's name or the number of sweeps by default, or the paper's name.
    paper : PaperPage, optional
        Only the records of this paper's sweeps are reported; all records, with a notice, where none is of these sweeps.
    listed : callable
        Tells what is known of a packaged sweep by its name; None of others.
    also : set of Form
        Further forms that figures are drawn in.
    every : bool
        Whether figures are drawn that are left out by default.

    Raises
    ------
    RecordError
        Records cannot be read, the baseline is in none of them, or ``out`` cannot be written.
    SpmarkError
        A helper process was killed.
    """
    options = [repr(baseline), repr(title), repr(paper), *sorted(also), str(every)]
    whole = _digest([_code(), *options, *map(str, folders), *_digests(folders).values(), digest_of_transfers(folders)])
    before = _read_made(out)
    if before and before.whole == whole and all((out / name).is_file() for name in before.files):
        return Written(out / INDEX, before.notices)
    try:
        with _side_by_side(folders) as run:
            _log.info("reading records")
            studies = run([partial(_studies, folders, paper)])  # in a helper, while this process reads records
            frame = load_records(folders, by_sweep=True, run=run)
            notices: list[str] = []
            if paper is not None:
                title = title or f"spmark: {paper.name}"
                frame, notices = _of_paper(frame, paper)
            facts, moved = next(studies)
            names = sorted(map(str, frame["sweep"].unique()))
            title = title or _heading(names, list(map(str, frame["device"].unique())))
            if frame.empty:
                if not moved:
                    raise RecordError(
                        f"{', '.join(map(str, folders))}: expected records, found none; run a sweep first (spmark run "
                        "quickstart) and name the folder that it says"
                    )
                report = studies_alone(facts, moved, title, notices, also)
                write_pages(report, None, chapters_of(report.sections), out)
                return Written(out / INDEX, report.notices)
            if baseline and all(
                choose_baseline(part, baseline) != baseline for _, part in current(frame).groupby("device")
            ):
                known = ", ".join(baseline_names(current(frame)))
                raise RecordError(f"expected a baseline out of {known}, found {baseline!r} in none of the records")
            site = _Site(folders, frame, baseline, title, paper, listed, out, also, every, facts, moved)
            made = site.write(run, notices, options, before)
        (out / MADE).write_text(made.model_copy(update={"whole": whole}).model_dump_json(indent=1) + "\n", "utf-8")
    except OSError as error:
        raise unwritable(out, error) from error
    return Written(out / INDEX, made.notices)


@dataclass
class _Site:
    """The records of a report, and what all of its pages share."""

    folders: Sequence[Path]
    frame: pd.DataFrame
    baseline: str | None
    title: str
    paper: PaperPage | None
    listed: Callable[[str], ListedSweep | None]
    out: Path
    also: AbstractSet[Form]
    every: bool
    facts: TransferFacts
    moved: Moved | None

    def __post_init__(self) -> None:
        names = sorted(map(str, self.frame["sweep"].unique()))
        self.packaged = {name: self.listed(name) for name in names}
        self.cases = cases_of(self.frame, self.baseline, self.packaged, alone=len(names) == 1)
        self.keys: dict[str, str] = {}
        self.of_devices = {str(device): rows for device, rows in self.frame.groupby("device", sort=False)}

    def scored(self) -> dict[str, Callable[[], list[Table]]]:
        """Give what makes the scorecard's tables, of each device whose records answer a claim."""
        papers = (self.paper.name,) if self.paper and self.paper.name in PAPERS else ()
        return {
            device: partial(_cards, rows, papers, self.moved)
            for device, rows in self.of_devices.items()
            if answers_any(rows, papers, self.moved)
        }

    def tasks(
        self, landing: list[Chapter], options: Sequence[str], before: _Made | None
    ) -> tuple[list[str], list[SweepTask]]:
        """Give the sweeps whose candidates are not here, and the pages to make in the order of a reader."""
        absent = absent_candidates(self.folders)
        if absent:
            _log.warning("%s", absence(absent))
        digests = _digests(self.folders)
        of_files: dict[tuple[str, str], list[Path]] = {}
        for file in record_files(self.folders):
            for device in map(str, self.frame["device"].unique()):
                of_files.setdefault((device, sweep_name(file, device)), []).append(file)
        unseen = {key for key, found in of_files.items() if any(file.parent in absent for file in found)}
        elsewhere = {case for of in self.cases if (of.device, of.sweep) in unseen for case in of.searched}
        cases = {
            (str(device), str(sweep)): frozenset(ids)
            for (device, sweep), ids in self.frame.groupby(["device", "sweep"])["case_id"]
        }
        of_device = {device: frozenset(rows["case_id"]) for device, rows in self.of_devices.items()}
        tasks = []
        # What is not packaged, such as a measurement of the same code twice, stands behind what a reader looks for.
        for name in sorted(self.packaged, key=lambda name: (self.packaged[name] is None, name)):
            own = [replace(of, unseen=_of_unseen(of, unseen, elsewhere)) for of in self.cases if of.sweep == name]
            # Searches of the same cases also count where another sweep has them.
            near = {
                file
                for of in own
                for key, ids in cases.items()
                if key[0] == of.device and (ids & set(of.cases["case_id"]) or key[1] == name)
                for file in of_files.get(key, ())
            }
            listed = self.packaged[name]
            about, sweep_title = (listed.about, listed.title) if listed else ("", "")
            coverage = tuple(coverage_of(of, listed, of_device[of.device]) for of in own)
            page = SweepPage(name, sweep_title or name, about, coverage)
            shown = [repr((of.baseline, of.prefix, of.older, of.unseen)) for of in own]
            parts = [*options, self.title, *landing, repr(page), *shown, *sorted(digests[file] for file in near)]
            self.keys[name] = _digest([_code(), *parts])
            known = (before.sweeps if before else {}).get(name, _MadeSweep())
            same = known.key == self.keys[name] and all((self.out / file).is_file() for file in known.files)
            tasks.append(
                SweepTask(
                    page, own, sorted({file.parent for file in near}), self.baseline, self.every, self.also, self.title,
                    landing, self.out, same,
                )
            )  # fmt: skip
        return sorted({sweep for _, sweep in unseen} & self.packaged.keys()), tasks

    def write(self, run: Run, notices: Sequence[str], options: Sequence[str], before: _Made | None) -> _Made:
        """Write the pages of the sweeps that changed, then the landing page, and say what was made.

        ``options`` are what pages follow from besides the records, and ``before`` is what the folder has.
        """
        scored = self.scored()
        lacking, tasks = self.tasks([Chapter.SUMMARY, *[Chapter.SCORECARD] * bool(scored)], options, before)
        studies = [partial(moved_section, self.facts, self.moved, self.also)] if self.moved else []
        # What takes the longest begins first, so that no process waits for another at the end.
        order = sorted(range(len(tasks)), key=lambda at: -tasks[at].cases)
        _log.info("drawing figures: %d sweeps", len(tasks))
        ended = run([*scored.values(), *studies, *(partial(render_sweep, tasks[at]) for at in order)])
        cards = {device: next(ended) for device in scored}
        moved_sections: list[Section] = [next(ended) for _ in studies]
        done = [of for _, of in sorted(zip(order, ended, strict=True), key=lambda pair: pair[0])]
        told = [*notices, *([f"{UNSEEN} This is so of {', '.join(lacking)}."] if lacking else [])]
        pages, wrote = [task.page for task in tasks], {of.name: of.files for of in done}
        if self.moved:
            page, moved = SweepPage(STUDIES, STUDIES.capitalize()), moved_sections[0]
            section = replace(moved, sweep=STUDIES, notices=[*standing(self.moved), *moved.notices])
            wrote[STUDIES] = write_pages(Report(self.title, [], [section], (page,)), page, tasks[0].landing, self.out)
            pages.append(page)
        sections = [self.overview(device, done, cards.get(device, [])) for device in self.of_devices]
        landing = write_pages(Report(self.title, told, sections, tuple(pages)), None, tasks[0].landing, self.out)
        _remove_others(self.out, pages)
        stays = before.sweeps if before else {}
        kept = {name: _MadeSweep(key=key, files=wrote[name] or stays[name].files) for name, key in self.keys.items()}
        every_file = [*landing, *(name for of in kept.values() for name in of.files), *wrote.get(STUDIES, [])]
        return _Made(notices=told, files=every_file, sweeps=kept)

    def overview(self, device: str, done: Sequence[SweepDone], cards: Sequence[Table]) -> Section:
        """Give the landing page's section of a device, of its newest records of all sweeps: a figure comes first."""
        kept = current(self.frame[self.frame["device"] == device])
        kind, baseline = DeviceKind(kept["device_kind"].iloc[0]), choose_baseline(kept, self.baseline)
        of_sweeps = [of for one in done for of in one.of_devices if not of.cases.empty]
        pooled = [of.cases for of in of_sweeps if of.device == device and of.baseline == baseline]
        # No sweep need have the baseline that most rows of all sweeps name.
        pooled = pooled or [derive(kept.reset_index(drop=True), baseline)]
        every = current(pd.concat(pooled, ignore_index=True))
        once = each_problem_once(every)
        claimed = sorted(map(load_published, PAPERS), key=lambda published: published.place)
        systems = {of.paper: of.title.partition(":")[0] for of in claimed}
        blocks: list[Drawing | Table] = []
        if baseline:
            if once.loc[~once["is_baseline"], "speedup"].notna().any():
                drawing = render(partial(speedup_per_matrix, with_results(once), baseline), self.also)
                blocks.append(replace(drawing, name=f"overview-{drawing.name}"))
            blocks.append(systems_table(once, baseline, systems))
            blocks.append(winner_map(once, baseline, systems))
        notices = [*without_result(once), *without_baseline(once, baseline), *doubtful(once)]
        if again := len(every) - len(once):
            told = "a problem counts once for each label, and equal patterns are one problem."
            notices.append(f"{again:,} cases are left out: {told}")
        facts = facts_of(once, kind, baseline)
        return Section(device, MEASURED[kind], facts, notices, named([*blocks, *cards], path_component(device)))


@contextmanager
def _side_by_side(folders: Sequence[Path]) -> Iterator[Run]:
    """Give what runs jobs and gives their results in order, in the processes of a pool where that is worth it.

    Raises
    ------
    SpmarkError
        A process was killed.
    """
    cores = len(allowed_cores())
    if cores == 1 or sum(file.stat().st_size for file in record_files(folders)) < WORTH_HELPERS:
        yield in_turn
        return
    level = logging.getLogger().level
    forkserver = get_context("forkserver")
    forkserver.set_forkserver_preload([__name__])
    with ProcessPoolExecutor(cores, forkserver, _begin, (level,)) as pool:
        for _ in range(cores):
            pool.submit(int)  # processes start while this one reads the records
        try:
            yield partial(pool.map, operator.call)
        except BrokenProcessPool as error:
            raise SpmarkError(
                "a helper process was ended from outside, for want of memory perhaps: free some memory, or allow one "
                "core (taskset -c 0), which needs no helpers"
            ) from error


def _begin(level: int) -> None:
    """Begin a process of the pool: it logs as this one, and looks seldom for garbage."""
    logging.basicConfig(level=level)
    gc.set_threshold(_GARBAGE)


@python_texts()
def _studies(folders: Sequence[Path], paper: PaperPage | None) -> tuple[TransferFacts, Moved | None]:
    """Read studies of moved models, and derive what they say."""
    facts = load_transfers(folders)
    return facts, moved_of(facts, paper)


@python_texts()
def _cards(rows: pd.DataFrame, papers: Sequence[str], moved: Moved | None) -> list[Table]:
    """Give the tables of one device's scorecard."""
    verdicts, claims = (replace(table, chapter=Chapter.SCORECARD) for table in scorecard_tables(rows, papers, moved))
    return [replace(verdicts, headline=True), claims]


def _heading(sweeps: Sequence[str], devices: Sequence[str]) -> str:
    """Say what a report is of."""
    if len(sweeps) > 1:
        return f"Sparse kernels on {' and '.join(devices)}: {len(sweeps)} sweeps"
    return f"spmark: {sweeps[0]}" if sweeps else "spmark"


def _of_unseen(of: SweepCases, unseen: AbstractSet[tuple[str, str]], elsewhere: AbstractSet[tuple[str, ...]]) -> str:
    """Say which candidates a section lacks, its own or those of sweeps with the same cases; empty where none lack."""
    if (of.device, of.sweep) in unseen:
        return UNSEEN
    shared = len(of.searched & elsewhere)
    if not shared:
        return ""
    return (
        f"Searches of {shared:,} of these cases also ran in sweeps whose candidates are published apart and are not "
        "here: tables and figures of choices and of predicted times show this sweep's own. `spmark fetch candidates` "
        "brings the others."
    )


def _of_paper(frame: pd.DataFrame, paper: PaperPage) -> tuple[pd.DataFrame, list[str]]:
    of_paper = frame[frame["sweep"].isin(paper.sweeps)]
    if len(of_paper):
        left_out = sorted(set(frame["sweep"]) - paper.sweeps)
        return of_paper, [f"Left out, not being sweeps of {paper.name}: {', '.join(left_out)}."] if left_out else []
    known = ", ".join(sorted(paper.sweeps)) or "none is packaged"
    return frame, [f"No record here is of a sweep of {paper.name} ({known}): all records are shown."]


def _remove_others(out: Path, pages: Sequence[SweepPage]) -> None:
    """Remove the pages of sweeps that an earlier report of the folder had."""
    ours = {path_component(page.name) for page in pages}
    for folder in (out / SWEEPS).glob("*/"):
        for path in pages_in(folder) if folder.name not in ours else ():
            path.unlink()


def _digests(folders: Sequence[Path]) -> dict[Path, str]:
    """Give a digest of each record file with its side files."""
    found = {}
    for file in record_files(folders):
        beside = [side for name in (CANDIDATES, "environments", "runs") for side in row_files(file.parent, name)]
        with reading(file, "records and their side files", RecordError):
            found[file] = _digest([str(file), *(hashlib.sha256(p.read_bytes()).hexdigest() for p in (file, *beside))])
    return found


def _digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


@cache
def _code() -> str:
    """Give the digest of the code and data that pages are made of, and of the packages that they are made with."""
    parts = [f"{name} {version(name)}" for name in _PACKAGES]
    for root in (Path(str(files(name))) for name in ("spmark.report", "spmark.impls.core")):
        for path in sorted(root.rglob("*")):
            inside = path.relative_to(root).parts
            shipped = inside[0] != "reference" or inside[1:2] == ("tiles",)
            if path.is_file() and shipped and "__pycache__" not in inside:
                parts += [*inside, hashlib.sha256(path.read_bytes()).hexdigest()]
    return _digest(parts)


def _read_made(out: Path) -> _Made | None:
    """Read what an earlier report wrote into ``out``; None where nothing is known of it."""
    try:
        return parse_model(_Made, (out / MADE).read_bytes())
    except (OSError, NoJsonError, ValidationError):
        return None
