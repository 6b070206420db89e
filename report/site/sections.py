"""The sections of a report's sweeps: figures and tables of one device's cases, by the processes of a pool."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest

import pandas as pd

from spmark.impls.core.cores import allowed_cores
from spmark.impls.core.devicespec import DeviceKind
from spmark.report.analysis.cases import each_problem_once
from spmark.report.analysis.remember import remembering
from spmark.report.candidates import measured_each
from spmark.report.figures.ablation import variant_table
from spmark.report.figures.all import plots, search_plots, with_results
from spmark.report.figures.plot import Drawing, Form, render
from spmark.report.figures.predictions import agreement_table, cost_model_table
from spmark.report.figures.roof import roof_table
from spmark.report.parallel import each
from spmark.report.site.chart_data import points_of
from spmark.report.site.model import Section
from spmark.report.site.run_metadata import MEASURED, facts_of, notices_of, versions_of
from spmark.report.site.sweep_records import SweepCases
from spmark.report.tables import results as tables
from spmark.report.tables.extrapolated import extrapolated_table
from spmark.report.tables.table import Table
from spmark.report.tables.winners import best_other_table

_log = logging.getLogger(__name__)
_Blocks = list[Drawing | Table]


def begin_sections(
    of_sweeps: Sequence[SweepCases],
    done: AbstractSet[str],
    *,
    seen: Callable[[], pd.DataFrame],
    wanted: str | None,
    pool: Executor | None,
    also: AbstractSet[Form],
) -> Iterator[Section]:
    """Give the section of each device's cases of each sweep; a pool begins at once.

    Parameters
    ----------
    of_sweeps : sequence of SweepCases
        With derived columns.
    done : set of str
        Sweeps whose sections are empty, since the report's folder has their pages.
    seen : callable
        Gives what searches saw, as `spmark.report.candidates.load_candidates` does; called where any section is
        made.
    wanted : str or None
        The baseline that was asked for.
    pool : Executor, optional
        Processes that draw; this process does by default.
    also : set of Form
        Further forms that figures are drawn in.
    """
    asked = [of for of in of_sweeps if of.sweep not in done]
    shares = _shares([len(of.cases) for of in asked], len(allowed_cores()) if pool else 1)
    tasks = [(of.without_samples(), which) for of, parts in zip(asked, shares, strict=True) for which in parts]
    sizes = [len(of.cases) // which.step for of, which in tasks]
    made = each([partial(_drawn, of, wanted, also, which) for of, which in tasks], sizes, pool)
    if asked:
        _log.info("reading what searches saw")  # a pool draws meanwhile
    saw = measured_each([each_problem_once(of.cases) for of in asked], seen()) if asked else []
    searches = [partial(_of_searches, one, _labels(of.cases), also) for of, one in zip(asked, saw, strict=True)]
    of_searches = each(searches, list(map(len, saw)), pool)
    counts = iter(map(len, shares))
    return (
        Section(of.device, "", [], [], [], of.sweep)
        if of.sweep in done
        else _whole([next(made) for _ in range(next(counts))], named(next(of_searches), of.prefix))
        for of in of_sweeps
    )


def named(blocks: Sequence[Drawing | Table], prefix: str) -> _Blocks:
    """Keep the blocks that say something, and put a prefix before their names."""
    said = [block for block in blocks if isinstance(block, Drawing) or not block.frame.empty]
    return [replace(block, name=f"{prefix}-{block.name}") for block in said]


def _shares(rows: Sequence[int], cores: int) -> list[list[slice]]:
    """Deal the figures of each sweep out to processes: several draw what is more than a core's part of all sweeps.

    Each process makes the means that the figures share, so that no more processes than these are worth it.
    """
    counts = (max(1, round(count * cores / sum(rows))) if cores > 1 else 1 for count in rows)
    return [[slice(place, None, count) for place in range(count)] for count in counts]


@dataclass(frozen=True)
class _Drawn:
    """What one process makes of a sweep."""

    figures: _Blocks
    section: Section | None = None
    """Made with the first figures alone, with the table that stands before these."""
    tables: _Blocks = field(default_factory=list)
    """Stand behind the figures."""


def _drawn(of: SweepCases, wanted: str | None, also: AbstractSet[Form], which: slice) -> _Drawn:
    """Draw some figures of a sweep; all but figures is made with the first of them."""
    with remembering():
        once = each_problem_once(of.cases)
        drawn = [render(draw, also) for draw in plots(once, of.baseline, every=True)[which]]
        figures = named(drawn, of.prefix)
        if which.start:
            return _Drawn(figures)
        return _Drawn(figures, _section(of, wanted), named(_tables(of.cases, once, of.baseline), of.prefix))


def _section(of: SweepCases, wanted: str | None) -> Section:
    kind = DeviceKind(of.cases["device_kind"].iloc[0])
    facts = [*facts_of(of.cases, kind, of.baseline), ("Versions", versions_of(of.cases))]
    notices = notices_of(of.cases, of.baseline, wanted, of.older, of.sweep)
    # The times come first: figures show what is made of them, and can be many.
    times = named([tables.times_table(of.cases)], of.prefix)
    return Section(of.device, MEASURED[kind], facts, notices, times, of.sweep, points_of(of.cases))


def _tables(derived: pd.DataFrame, once: pd.DataFrame, baseline: str | None) -> _Blocks:
    """Give the tables of a sweep: those of means from the cases that count ``once``, the others from all."""
    blocks: _Blocks = []
    if baseline:
        blocks += [*tables.mean_tables(once, baseline), tables.break_even_table(once, baseline)]
        blocks.append(best_other_table(once))
    blocks += [variant_table(once), cost_model_table(once), extrapolated_table(once)]
    if derived["device_kind"].iloc[0] == DeviceKind.HOST_SIMT.value:
        blocks.append(tables.checked_table(derived))
    blocks += [
        tables.failure_groups(derived),
        tables.failure_table(derived),
        tables.case_table(derived),
        roof_table(derived),
    ]
    return [*blocks, tables.build_table(derived, baseline), tables.flag_table(derived), tables.matrix_facts(derived)]


def _whole(drawn: Sequence[_Drawn], of_searches: _Blocks) -> Section:
    """Put together what several processes have made of a sweep."""
    section, tables_behind = drawn[0].section, drawn[0].tables
    assert section is not None
    rounds = zip_longest(*(of.figures for of in drawn))
    figures = [figure for of_round in rounds for figure in of_round if figure]
    return replace(section, blocks=[*section.blocks, *figures, *of_searches, *tables_behind])


def _labels(cases: pd.DataFrame) -> pd.DataFrame:
    """Give what pictures of searches need to know of a page's cases."""
    return with_results(cases)[["device", "label", "implementation"]]


def _of_searches(seen: pd.DataFrame, labels: pd.DataFrame, also: AbstractSet[Form]) -> _Blocks:
    """Give what a section says of its searches."""
    with remembering():
        return [*(render(draw, also) for draw in search_plots(seen, labels)), agreement_table(seen), tables.choice_table(seen)]
