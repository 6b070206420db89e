"""From loaded records to the content of a report: an overview of each device, and a section for each sweep."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Executor
from dataclasses import replace
from functools import cache, partial
from types import MappingProxyType

import pandas as pd

from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.errors import RecordError
from spmark.impls.core.names import path_component
from spmark.impls.core.record import Status
from spmark.report.analysis.cases import baseline_names, choose_baseline, derive, each_problem_once
from spmark.report.analysis.kept import Derivation, derived, digest_of_texts
from spmark.report.analysis.shares import joined, shares_of
from spmark.report.analysis.transfers import Moved
from spmark.report.candidates import COLUMNS
from spmark.report.claims.published import PAPERS, load_published
from spmark.report.claims.scorecard import Verdict, scorecard_tables
from spmark.report.figures.all import with_results
from spmark.report.figures.plot import Drawing, Form, render
from spmark.report.figures.speedups import speedup_per_matrix
from spmark.report.parallel import each
from spmark.report.records import current
from spmark.report.site.made import ReportFolder, all_anew, looked_up
from spmark.report.site.model import NO_RECORDS, Coverage, ListedSweep, PaperPage, Report, Section, SweepPage
from spmark.report.site.run_metadata import MEASURED, UNSEEN, doubtful, facts_of, versions_of, without_result
from spmark.report.site.sections import begin_sections, named
from spmark.report.site.sweep_records import SweepCases, found_in
from spmark.report.tables.table import Chapter, Table
from spmark.report.tables.winners import systems_table, winner_map

_log = logging.getLogger(__name__)


def _no_studies() -> None:
    """Give no studies of moved models."""


def compose(
    frame: pd.DataFrame,
    baseline: str | None = None,
    title: str | None = None,
    paper: PaperPage | None = None,
    begin: Callable[[], Callable[[], pd.DataFrame]] | None = None,
    *,
    moved: Callable[[], Moved | None] = _no_studies,
    listed: Mapping[str, ListedSweep] = MappingProxyType({}),
    unseen: frozenset[tuple[str, str]] = frozenset(),
    folder: ReportFolder | None = None,
    pool: Executor | None = None,
    also: AbstractSet[Form] = frozenset(),
) -> Report:
    """Build the report of loaded records: for each device an overview, and a section for each sweep.

    Parameters
    ----------
    frame : DataFrame
        As `spmark.report.records.load_records` gives it, best with rows for each sweep.
    baseline : str, optional
        What speed-ups are over: an implementation or a label. A sweep without this baseline takes the one that its
        records name most, as by default.
    title : str, optional
        The sweep's name or the number of sweeps by default, or the paper's name.
    paper : PaperPage, optional
        Only the records of this paper's sweeps are reported; all records, with a notice, where none is of these sweeps.
    begin : callable, optional
        Begins to read what searches saw, as `spmark.report.candidates.begin_candidates` does; called only where a
        sweep's pages are made.
    moved : callable
        Gives studies of moved models, which answer claims beside the records; asked once helpers are at work.
    listed : mapping of str to ListedSweep
        What is known of packaged sweeps, by name.
    unseen : set of (str, str)
        Device and sweep of the records whose searches' candidates are published, but are not there.
    folder : ReportFolder, optional
        The folder that the report goes to: sweeps of which nothing has changed there get no sections with content.
    pool : Executor, optional
        Draws the figures and makes the tables of sweeps; this process does by default.
    also : set of Form
        Further forms that figures are drawn in.

    Raises
    ------
    RecordError
        No device has the baseline that was asked for; lists what there is.
    """
    notices: list[str] = []
    if paper is not None:
        title = title or f"spmark: {paper.name}"
        frame, notices = _of_paper(frame, paper)
    names = sorted(map(str, frame["sweep"].unique()))
    heading = title or _heading(names, list(map(str, frame["device"].unique())))
    if frame.empty:
        return Report(heading, [*notices, NO_RECORDS], [])
    kept = current(frame)
    if baseline and all(choose_baseline(part, baseline) != baseline for _, part in kept.groupby("device")):
        raise RecordError(
            f"expected a baseline out of {', '.join(baseline_names(kept))}, found {baseline!r} in none of the records"
        )
    papers = (paper.name,) if paper and paper.name in PAPERS else ()
    packaged = {name: listed.get(name) for name in names}
    found = found_in(frame, baseline, packaged, alone=len(names) == 1)
    of_devices = {str(device): rows for device, rows in frame.groupby("device", sort=False)}
    _log.info("deriving speed-ups")
    shares = [shares_of(of.cases) for of in found]
    tasks = [(share, of.baseline) for of, parts in zip(found, shares, strict=True) for share in parts]
    deriving = each([partial(derived, *task) for task in tasks], [len(share) for share, _ in tasks], pool)
    # Where pages may stay, it is not known yet whether anybody asks for what searches saw.
    anew = all_anew(folder)
    seen = cache(begin() if begin and anew else partial(_candidates, begin))
    _log.info("answering the papers' claims")
    studies = moved()
    asked = [partial(_claims, rows, papers, studies) for rows in of_devices.values()]
    answering = each(asked, list(map(len, of_devices.values())), pool)
    elsewhere = {case for of in found if (of.device, of.sweep) in unseen for case in of.searched}
    told = [_of_unseen(of, unseen, elsewhere) for of in found]
    pages = _pages(found, packaged, {device: frozenset(rows["case_id"]) for device, rows in of_devices.items()})
    derivations = [
        joined([next(deriving) for _ in parts], of.cases.index) for of, parts in zip(found, shares, strict=True)
    ]
    keys = _keys(found, derivations, told, frame, folder.candidates) if folder else {}
    pairs = zip(found, derivations, strict=True)
    of_sweeps = [replace(of, cases=of.cases.assign(**derivation.columns)) for of, derivation in pairs]
    # Where every page is new, helpers draw while this process waits for the claims and looks over all records.
    drawing = partial(begin_sections, of_sweeps, seen=seen, wanted=baseline, pool=pool, also=also)
    sections = drawing(frozenset()) if anew else None
    overviews = [_overview_of(kept[kept["device"] == device], of_sweeps, baseline, also) for device in of_devices]
    cards = list(answering)
    overviews = [
        replace(of, blocks=[*of.blocks, *named(answered, path_component(of.device))])
        for of, answered in zip(overviews, cards, strict=True)
    ]
    if folder:
        shown = [heading, repr(baseline), *sorted(also), str(any(cards))]
        pages = tuple(looked_up(page, [*shown, *keys[page.name]], folder) for page in pages)
    done = frozenset(page.name for page in pages if page.made)
    sections = sections or drawing(done)
    made: list[Section] = []
    for of, section, notice in zip(of_sweeps, sections, told, strict=True):
        said = "nothing of %s has changed" if of.sweep in done else "drawing figures: all of %s are done"
        _log.info(f"%s: {said}", of.device, of.sweep)
        made.append(replace(section, notices=[*section.notices, notice]) if notice else section)
    lacking = sorted({of.sweep for of in found if (of.device, of.sweep) in unseen})
    notices += [f"{UNSEEN} This is so of {', '.join(lacking)}."] if lacking else []
    return Report(heading, notices, [*overviews, *made], pages)


def _candidates(begin: Callable[[], Callable[[], pd.DataFrame]] | None) -> pd.DataFrame:
    return begin()() if begin else pd.DataFrame(columns=list(COLUMNS))


def _claims(frame: pd.DataFrame, papers: Sequence[str], moved: Moved | None) -> list[Table]:
    """Give the tables of one device's scorecard; none where its records answer no claim."""
    made = scorecard_tables(frame, papers, moved)
    if not made or (made[-1].frame["verdict"] == Verdict.NOT_RUN.value).all():
        return []
    verdicts, claims = (replace(table, chapter=Chapter.SCORECARD) for table in made)
    return [replace(verdicts, headline=True), claims]


def _keys(
    found: Sequence[SweepCases],
    derivations: Sequence[Derivation],
    told: Sequence[str],
    frame: pd.DataFrame,
    candidates: Mapping[tuple[str, str], str],
) -> dict[str, list[str]]:
    """Give what the pages of each sweep follow from, as texts, beside what they share with all others."""
    by_sweep = frame.groupby(["device", "sweep"])["case_id"]
    cases = {(str(device), str(sweep)): frozenset(ids) for (device, sweep), ids in by_sweep}
    keys: dict[str, list[str]] = {}
    for of, derivation, notice in zip(found, derivations, told, strict=True):
        ids = cases[of.device, of.sweep].union(of.cases["case_id"])
        # Searches of the same cases also count where another sweep has them.
        near = sorted(key for key, theirs in cases.items() if key[0] == of.device and not ids.isdisjoint(theirs))
        saw = [f"{device}/{sweep} {candidates.get((device, sweep), '')}" for device, sweep in near]
        shown = [derivation.digest, repr(of.baseline), of.prefix, str(of.older), notice, *saw]
        keys.setdefault(of.sweep, []).append(digest_of_texts(shown))
    return keys


def _heading(sweeps: Sequence[str], devices: Sequence[str]) -> str:
    """Say what a report is of."""
    if len(sweeps) > 1:
        return f"Sparse kernels on {' and '.join(devices)}: {len(sweeps)} sweeps"
    return f"spmark: {sweeps[0]}" if sweeps else "spmark"


def _of_unseen(of: SweepCases, unseen: frozenset[tuple[str, str]], elsewhere: AbstractSet[tuple[str, ...]]) -> str:
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


def _overview_of(
    kept: pd.DataFrame, of_sweeps: Sequence[SweepCases], wanted: str | None, also: AbstractSet[Form]
) -> Section:
    """Give the section of the device of ``kept`` on the landing page, of the sweeps with the device's baseline."""
    device, baseline = str(kept["device"].iloc[0]), choose_baseline(kept, wanted)
    pooled = [of.own for of in of_sweeps if of.device == device and of.baseline == baseline]
    # No sweep need have the baseline that most rows of all sweeps name.
    pooled = pooled or [derive(kept.reset_index(drop=True), baseline)]
    every = current(pd.concat(pooled, ignore_index=True))
    once = each_problem_once(every)
    return _overview(once, baseline, len(every) - len(once), also)


def _overview(pooled: pd.DataFrame, baseline: str | None, again: int, also: AbstractSet[Form]) -> Section:
    """Give the section of one device on the landing page, of its newest records of all sweeps: a figure comes first.

    ``again`` is the number of cases of problems that other cases of their label stand for, which ``pooled`` lacks.
    """
    device, kind = str(pooled["device"].iloc[0]), DeviceKind(pooled["device_kind"].iloc[0])
    systems = {
        of.paper: of.title.partition(":")[0] for of in sorted(map(load_published, PAPERS), key=lambda p: p.place)
    }
    means: list[Drawing | Table] = []
    if baseline:
        if pooled.loc[~pooled["is_baseline"], "speedup"].notna().any():
            drawing = render(partial(speedup_per_matrix, with_results(pooled), baseline), also)
            means.append(replace(drawing, name=f"overview-{drawing.name}"))
        means += [systems_table(pooled, baseline, systems), winner_map(pooled, baseline, systems)]
    facts = facts_of(pooled, kind, baseline)
    notices = [*without_result(pooled), *doubtful(pooled)]
    if again:
        told = "a problem counts once for each label, and equal patterns are one problem."
        notices.append(f"{again:,} cases are left out: {told}")
    return Section(device, MEASURED[kind], facts, notices, named(means, path_component(device)))


def _pages(
    found: Sequence[SweepCases], packaged: Mapping[str, ListedSweep | None], cases: Mapping[str, frozenset[str]]
) -> tuple[SweepPage, ...]:
    """Give the pages of sweeps in the order of a reader; ``cases`` has all of each device."""
    collected: dict[str, list[Coverage]] = {name: [] for name in packaged}
    for of in found:
        collected[of.sweep].append(_collected(of.own, packaged[of.sweep], cases[of.device]))
    # What is not packaged, such as a measurement of the same code twice, stands behind what a reader looks for.
    in_order = sorted(packaged, key=lambda name: (packaged[name] is None, name))
    return tuple(_page(name, packaged[name], collected[name]) for name in in_order)


def _page(name: str, listed: ListedSweep | None, collected: Sequence[Coverage]) -> SweepPage:
    title, about = (listed.title, listed.about) if listed else ("", "")
    return SweepPage(name, title or name, about, tuple(collected))


def _collected(derived: pd.DataFrame, listed: ListedSweep | None, of_device: frozenset[str]) -> Coverage:
    """Say what was collected of a sweep; of the cases that it lists, ``of_device`` has those of all sweeps there."""
    ok = int((derived["status"] == Status.OK.value).sum())
    first, last = (f"{when:%Y-%m-%d}" for when in (derived["started_at"].min(), derived["started_at"].max()))
    there = ""
    if listed:
        here = listed.labels.keys() & set(derived["case_id"])
        others = len(listed.labels.keys() & of_device) - len(here)
        there = f"{len(here):,} of {len(listed.labels):,}"
        there += f" here and {others:,} with other sweeps" if others else ""
    when = first if first == last else f"{first} to {last}"
    protocols = ", ".join(map(str, sorted(derived["protocol_version"].unique())))
    return Coverage(
        device=str(derived["device"].iloc[0]),
        cases=f"{ok:,} of {len(derived):,}",
        listed=there,
        measured=f"{when}, protocol {protocols}",
        versions=versions_of(derived),
    )
