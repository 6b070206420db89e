"""The pages of one sweep: from the records of its cases on each device to files, in one pass, in one process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from pathlib import Path

import pandas as pd

from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.files import path_component
from spmark.records.schema import Status
from spmark.report.analysis.cases import choose_baseline, derive, each_problem_once
from spmark.report.candidates import OF_CASE, load_candidates, measured
from spmark.report.figures.ablation import variant_table
from spmark.report.figures.all import plots, search_plots, with_results
from spmark.report.figures.plot import Drawing, Form, render
from spmark.report.figures.predictions import agreement_table, cost_model_table
from spmark.report.figures.roof import roof_table
from spmark.report.records import current, python_texts
from spmark.report.site.files import write_pages
from spmark.report.site.model import Coverage, ListedSweep, Report, Section, SweepPage, points_of
from spmark.report.site.run_metadata import MEASURED, facts_of, notices_of, versions_of
from spmark.report.tables import results as tables
from spmark.report.tables.extrapolated import extrapolated_table
from spmark.report.tables.table import Chapter, Table, of_libraries
from spmark.report.tables.winners import best_other_table

_SAMPLES = ["samples_us", "warm_samples_us", "graph_samples_us", "baseline_samples_us"]
"""Columns that nothing reads after deriving, and that are most of what another process would be sent."""
_Blocks = list[Drawing | Table]


@dataclass(frozen=True, eq=False)
class SweepCases:
    """One device's cases of one sweep."""

    sweep: str
    cases: pd.DataFrame
    """With the records that other sweeps lend (`_lent`), whose column ``sweep`` names these sweeps."""
    baseline: str | None
    prefix: str
    """Of the names of figures and tables."""
    older: int
    """Rows that are left out, being of older code, of another protocol or of another flush."""
    unseen: str = ""
    """What is said of candidates that are published apart."""
    of_libraries: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    """The own cases by version of the sparse library; empty where there is one version."""

    @property
    def device(self) -> str:
        """Name of the device."""
        return str(self.cases["device"].iloc[0])

    @property
    def own(self) -> pd.DataFrame:
        """The cases that were measured with this sweep."""
        return self.cases[self.cases["sweep"] == self.sweep]

    @property
    def searched(self) -> set[tuple[str, ...]]:
        """The keys of the cases whose plan a search chose: candidates are told apart by them alone."""
        cases = self.cases[self.cases["search"].notna()]
        return set(cases[list(OF_CASE)].itertuples(index=False, name=None))


@dataclass(frozen=True, eq=False)
class SweepTask:
    """All that the pages of one sweep are made of."""

    page: SweepPage
    of_devices: list[SweepCases]
    candidates: list[Path]
    """Folders of records whose searches may have seen the cases."""
    wanted: str | None
    """The baseline that was asked for."""
    every: bool
    """Whether figures are drawn that are left out by default."""
    also: AbstractSet[Form]
    title: str
    """Of the report."""
    landing: list[Chapter]
    out: Path
    unchanged: bool = False
    """Whether the folder has these very pages: cases are then derived for the landing page alone."""

    @property
    def cases(self) -> int:
        """Number of cases, with which the work grows."""
        return sum(len(of.cases) for of in self.of_devices)


@dataclass(frozen=True, eq=False)
class SweepDone:
    """What the landing page needs to know of a sweep."""

    name: str
    of_devices: list[SweepCases]
    """Own cases with derived columns, without samples."""
    files: list[str]
    """Paths of what was written; none where nothing had changed."""


def cases_of(
    frame: pd.DataFrame, wanted: str | None, packaged: Mapping[str, ListedSweep | None], *, alone: bool
) -> list[SweepCases]:
    """Give the current cases of each device and sweep, with those that other sweeps lend.

    Parameters
    ----------
    frame : DataFrame
        As `spmark.report.records.load_records` gives it.
    wanted : str or None
        The baseline that was asked for.
    packaged : mapping of str to ListedSweep or None
        What is known of each sweep in ``frame``; None for a sweep that is not packaged.
    alone : bool
        Whether there is one sweep, whose figures and tables need no name of the sweep.
    """
    found: list[SweepCases] = []
    for device, rows in frame.groupby("device", sort=False):
        for name, part in rows.groupby("sweep"):
            now = current(part)
            prefix = "-".join(map(path_component, (str(device), *([] if alone else [str(name)]))))
            libraries = {str(version): current(of) for version, of in part.groupby("library") if version}
            each = libraries if len(libraries) > 1 else {}
            baseline = choose_baseline(now, wanted)
            older = len(part) - (sum(map(len, each.values())) or len(now))
            lent = _lent(rows, now, packaged[str(name)])
            if len(lent):
                now = pd.concat([now, lent]).sort_values("started_at", kind="stable", ignore_index=True)
                baseline = baseline or choose_baseline(lent, wanted)  # where all own cases were refused
            found.append(SweepCases(str(name), now, baseline, prefix, older, of_libraries=each))
    return found


def _lent(rows: pd.DataFrame, own: pd.DataFrame, listed: ListedSweep | None) -> pd.DataFrame:
    """Give other sweeps' records of the cases that a sweep lists and was not measured with, under its own labels.

    A case that several sweeps list is measured once. The records have the protocol and the flush of ``own``. A record
    under its system's bare name keeps it where today's label is the extended one: it is of older code, from before a
    system had two labels.
    """
    listed = listed or ListedSweep("", "", {})
    labels, ids = listed.labels, rows["case_id"].map(listed.today)
    others = ids.isin(labels.keys() - set(own["case_id"].map(listed.today)))
    for alike in ("protocol_version", "flush"):
        others &= rows[alike] == own[alike].iloc[0]
    lent = current(rows[others])
    today, name = lent["case_id"].map(listed.today).map(labels), lent["implementation"]
    older = (lent["label"] == name) & (today == name + "_extended")
    return lent.assign(label=today.where(~older, name))


def coverage_of(of: SweepCases, listed: ListedSweep | None, of_device: AbstractSet[str]) -> Coverage:
    """Say what was collected of a sweep; of the cases that it lists, ``of_device`` has those of all sweeps there."""
    own = of.own
    ok = int((own["status"] == Status.OK.value).sum())
    first, last = (f"{when:%Y-%m-%d}" for when in (own["started_at"].min(), own["started_at"].max()))
    there = ""
    if listed:
        here = listed.labels.keys() & set(map(listed.today, own["case_id"]))
        others = len(listed.labels.keys() & set(map(listed.today, of_device))) - len(here)
        there = f"{len(here):,} of {len(listed.labels):,}"
        there += f" here and {others:,} with other sweeps" if others else ""
    when = first if first == last else f"{first} to {last}"
    protocols = ", ".join(map(str, sorted(own["protocol_version"].unique())))
    cases = f"{ok:,} of {len(own):,}"
    return Coverage(of.device, cases, there, f"{when}, protocol {protocols}", versions_of(own))


@python_texts()
def render_sweep(task: SweepTask) -> SweepDone:
    """Derive the cases of a sweep, draw its figures, make its tables, and write its pages.

    Raises
    ------
    OSError
        A file cannot be written.
    """
    derived = list(map(_derived, task.of_devices))
    files: list[str] = []
    if not task.unchanged:
        sections = [_section(of, task) for of in derived]
        files = write_pages(Report(task.title, [], sections, (task.page,)), task.page, task.landing, task.out)
    return SweepDone(task.page.name, [replace(of, cases=of.own) for of in derived], files)


def _derived(of: SweepCases) -> SweepCases:
    own, *each = (derive(rows, of.baseline).drop(columns=_SAMPLES) for rows in (of.cases, *of.of_libraries.values()))
    return replace(of, cases=own, of_libraries=dict(zip(of.of_libraries, each, strict=True)))


def _section(of: SweepCases, task: SweepTask) -> Section:
    kind = DeviceKind(of.cases["device_kind"].iloc[0])
    facts = [*facts_of(of.cases, kind, of.baseline), ("Versions", versions_of(of.cases))]
    notices = notices_of(of.cases, of.baseline, task.wanted, of.older, of.sweep)
    once = each_problem_once(of.cases)
    blocks: _Blocks = [render(draw, task.also) for draw in plots(once, of.baseline, every=task.every)]
    blocks += _of_searches(once, of.cases, task)
    if of.of_libraries and of.baseline:
        notices.append(of_libraries(pd.concat(of.of_libraries.values())))
        blocks.append(tables.library_table(of.cases, of.of_libraries, of.baseline))
    blocks += [tables.times_table(of.cases), *_tables(of.cases, once, of.baseline)]
    return Section(
        of.device,
        MEASURED[kind],
        facts,
        [*notices, *filter(None, [of.unseen])],
        named(blocks, of.prefix),
        of.sweep,
        points_of(of.cases),
    )


def named(blocks: Sequence[Drawing | Table], prefix: str) -> _Blocks:
    """Keep the blocks that say something, and put a prefix before their names."""
    said = [block for block in blocks if isinstance(block, Drawing) or not block.frame.empty]
    return [replace(block, name=f"{prefix}-{block.name}") for block in said]


def _of_searches(once: pd.DataFrame, cases: pd.DataFrame, task: SweepTask) -> _Blocks:
    """Give what a section says of its searches."""
    seen = measured(once, load_candidates(task.candidates, cases[list(OF_CASE)]))
    if seen.empty:
        return []
    labels = with_results(cases)[["device", "label", "implementation"]]
    drawn = [render(draw, task.also) for draw in search_plots(seen, labels)]
    return [*drawn, agreement_table(seen), tables.choice_table(seen)]


def _tables(derived: pd.DataFrame, once: pd.DataFrame, baseline: str | None) -> _Blocks:
    """Give the tables of a sweep: those of means from the cases that count ``once``, the others from all."""
    blocks: _Blocks = []
    if baseline:
        blocks += [*tables.mean_tables(once, baseline), tables.break_even_table(once, baseline)]
        blocks.append(best_other_table(once))
    blocks += [variant_table(once), cost_model_table(once), extrapolated_table(once)]
    if derived["device_kind"].iloc[0] == DeviceKind.HOST_SIMT.value:
        blocks.append(tables.checked_table(derived))
    blocks += [tables.failure_groups(derived), tables.failure_table(derived), tables.case_table(derived)]
    blocks += [
        roof_table(derived),
        tables.part_table(derived),
        tables.build_table(derived, baseline),
        tables.flag_table(derived),
    ]
    return [*blocks, tables.matrix_facts(derived)]
