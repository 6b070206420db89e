"""From loaded records to the content of a report: an overview of each device, and a section for each sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import pandas as pd

from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.errors import RecordError
from spmark.impls.core.names import path_component
from spmark.impls.core.record import Status
from spmark.report.claims.published import PAPERS, load_published
from spmark.report.claims.scorecard import scorecard_tables
from spmark.report.claims.verdicts import Verdict
from spmark.report.derive.cases import baseline_names, choose_baseline, derive
from spmark.report.derive.transfers import Moved
from spmark.report.figures.all import draw_all
from spmark.report.figures.costmodel import cost_model_table
from spmark.report.figures.plot import Drawing
from spmark.report.figures.predictions import agreement_table
from spmark.report.figures.roof import roof_table
from spmark.report.figures.variants import variant_table
from spmark.report.load.candidates import COLUMNS, measured
from spmark.report.load.records import current
from spmark.report.page.content import NO_RECORDS, Coverage, ListedSweep, PaperPage, Report, Section, SweepPage
from spmark.report.page.facts import MEASURED, facts_of, notices_of, versions_of
from spmark.report.page.points import points_of
from spmark.report.tables import results as tables
from spmark.report.tables.choices import choice_table
from spmark.report.tables.extrapolated import extrapolated_table
from spmark.report.tables.peers import best_other_table
from spmark.report.tables.systems import systems_table
from spmark.report.tables.table import Chapter, Table
from spmark.report.tables.winners import winner_map


def compose(
    frame: pd.DataFrame,
    baseline: str | None = None,
    title: str | None = None,
    paper: PaperPage | None = None,
    seen: pd.DataFrame | None = None,
    *,
    moved: Moved | None = None,
    listed: Mapping[str, ListedSweep] = MappingProxyType({}),
) -> Report:
    """Build the report of loaded records: for each device an overview, and a section for each sweep.

    Parameters
    ----------
    frame : DataFrame
        As `spmark.report.load.records.load_records` gives it, best with rows for each sweep.
    baseline : str, optional
        What speed-ups are over: an implementation or a label. A sweep without this baseline takes the one that its
        records name most, as by default.
    title : str, optional
        The sweep's name or the number of sweeps by default, or the paper's name.
    paper : PaperPage, optional
        Only the records of this paper's sweeps are reported; all records, with a notice, where none is of these sweeps.
    seen : DataFrame, optional
        What searches saw, as `spmark.report.load.candidates.load_candidates` gives it.
    moved : Moved, optional
        Studies of moved models, which answer claims beside the records.
    listed : mapping of str to ListedSweep
        What is known of packaged sweeps, by name.

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
    heading = title or ("spmark: " + (names[0] if len(names) == 1 else f"{len(names)} sweeps") if names else "spmark")
    if frame.empty:
        return Report(heading, [*notices, NO_RECORDS], [])
    kept = current(frame)
    if baseline and all(choose_baseline(part, baseline) != baseline for _, part in kept.groupby("device")):
        raise RecordError(
            f"expected a baseline out of {', '.join(baseline_names(kept))}, found {baseline!r} in none of the records"
        )
    papers = (paper.name,) if paper and paper.name in PAPERS else ()
    candidates = pd.DataFrame(columns=list(COLUMNS)) if seen is None else seen
    overviews: list[Section] = []
    sections: list[Section] = []
    collected: dict[str, list[Coverage]] = {name: [] for name in names}
    for device, rows in frame.groupby("device", sort=False):
        whole = choose_baseline(kept[kept["device"] == device], baseline)
        pooled = []
        for name, part in rows.groupby("sweep"):
            now = current(part)
            chosen = choose_baseline(now, baseline)
            derived = derive(now, chosen)
            prefix = "-".join(map(path_component, (str(device), *([str(name)] if len(names) > 1 else []))))
            section = _of_sweep(derived, chosen, prefix, measured(derived, candidates))
            notes = notices_of(derived, chosen, baseline, len(part) - len(derived))
            sections.append(replace(section, notices=notes))
            collected[str(name)].append(_collected(derived, listed.get(str(name))))
            pooled += [derived] if chosen == whole else []
        cards = _answered_tables(rows, papers, moved)
        # No sweep need have the baseline that most rows of all sweeps name.
        pooled = pooled or [derive(kept[kept["device"] == device].reset_index(drop=True), whole)]
        overviews.append(_overview(current(pd.concat(pooled, ignore_index=True)), whole, cards))
    pages = tuple(_page(name, listed.get(name), collected[name]) for name in names)
    return Report(heading, notices, [*overviews, *sections], pages)


def _of_paper(frame: pd.DataFrame, paper: PaperPage) -> tuple[pd.DataFrame, list[str]]:
    of_paper = frame[frame["sweep"].isin(paper.sweeps)]
    if len(of_paper):
        left_out = sorted(set(frame["sweep"]) - paper.sweeps)
        return of_paper, [f"Left out, not being sweeps of {paper.name}: {', '.join(left_out)}."] if left_out else []
    known = ", ".join(sorted(paper.sweeps)) or "none is packaged"
    return frame, [f"No record here is of a sweep of {paper.name} ({known}): all records are shown."]


def _of_sweep(derived: pd.DataFrame, baseline: str | None, prefix: str, seen: pd.DataFrame) -> Section:
    """Give the section of one device's cases of one sweep; its blocks' names begin with ``prefix``."""
    kind = DeviceKind(derived["device_kind"].iloc[0])
    blocks: list[Drawing | Table] = [*draw_all(derived, baseline, seen), tables.times_table(derived)]
    if baseline:
        blocks += [*tables.mean_tables(derived, baseline), tables.break_even_table(derived, baseline)]
        blocks.append(best_other_table(derived))
    blocks += [variant_table(derived), cost_model_table(derived), extrapolated_table(derived)]
    blocks += [agreement_table(seen), choice_table(seen)]
    if kind is DeviceKind.HOST_SIMT:
        blocks.append(tables.checked_table(derived))
    blocks += [
        tables.failure_groups(derived),
        tables.failure_table(derived),
        tables.case_table(derived),
        roof_table(derived),
    ]
    blocks += [tables.build_table(derived, baseline), tables.flag_table(derived), tables.matrix_facts(derived)]
    device, sweep = str(derived["device"].iloc[0]), str(derived["sweep"].iloc[0])
    facts = [*facts_of(derived, kind, baseline), ("Versions", versions_of(derived))]
    return Section(device, MEASURED[kind], facts, [], _named(blocks, prefix), sweep, points_of(derived))


def _overview(pooled: pd.DataFrame, baseline: str | None, cards: Sequence[Table]) -> Section:
    """Give the section of one device on the landing page, of its newest records of all sweeps."""
    device, kind = str(pooled["device"].iloc[0]), DeviceKind(pooled["device_kind"].iloc[0])
    systems = {
        of.paper: of.title.partition(":")[0] for of in sorted(map(load_published, PAPERS), key=lambda p: p.place)
    }
    means = [systems_table(pooled, baseline, systems), winner_map(pooled, baseline)] if baseline else []
    facts = facts_of(pooled, kind, baseline)
    return Section(device, MEASURED[kind], facts, [], _named([*means, *cards], path_component(device)))


def _answered_tables(frame: pd.DataFrame, papers: Sequence[str], moved: Moved | None) -> list[Table]:
    """Give the scorecard of one device's records; empty where these answer nothing."""
    made = [replace(table, chapter=Chapter.SCORECARD) for table in scorecard_tables(frame, papers, moved)]
    if not made or (made[-1].frame["verdict"] == Verdict.NOT_RUN.value).all():
        return []
    verdicts, claims = made
    return [replace(verdicts, headline=True), claims]


def _named(blocks: Sequence[Drawing | Table], prefix: str) -> list[Drawing | Table]:
    """Keep the blocks that say something, and put a prefix before their names."""
    said = [block for block in blocks if isinstance(block, Drawing) or not block.frame.empty]
    return [replace(block, name=f"{prefix}-{block.name}") for block in said]


def _page(name: str, listed: ListedSweep | None, collected: Sequence[Coverage]) -> SweepPage:
    title, about = (listed.title, listed.about) if listed else ("", "")
    return SweepPage(name, title or name, about, tuple(collected))


def _collected(derived: pd.DataFrame, listed: ListedSweep | None) -> Coverage:
    ok = int((derived["status"] == Status.OK.value).sum())
    first, last = (f"{when:%Y-%m-%d}" for when in (derived["started_at"].min(), derived["started_at"].max()))
    there = f"{len(listed.cases & set(derived['case_id'])):,} of {len(listed.cases):,}" if listed else ""
    when = first if first == last else f"{first} to {last}"
    protocols = ", ".join(map(str, sorted(derived["protocol_version"].unique())))
    return Coverage(
        device=str(derived["device"].iloc[0]),
        cases=f"{ok:,} of {len(derived):,}",
        listed=there,
        measured=f"{when}, protocol {protocols}",
        versions=versions_of(derived),
    )
