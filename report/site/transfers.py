"""The part of a page about studies of moved cost models; its first words are where the subject is not ahead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from math import isnan
from typing import Any

import pandas as pd

from spmark.report.analysis.methods import SAID, known_methods
from spmark.report.analysis.transfers import AHEAD, BEHIND, MISSING, NOT_CLEARLY, Moved, derive_moved, panels_of
from spmark.report.claims.scorecard import scorecard_tables
from spmark.report.figures.plot import Drawing, Form, render
from spmark.report.figures.transfers import moved_plots, undrawn
from spmark.report.records import load_records
from spmark.report.site.model import PaperPage, Report, Section
from spmark.report.site.run_metadata import Facts
from spmark.report.tables.table import Chapter, Table
from spmark.report.tables.transfers import compared_table, cost_table, gain_table, size_table
from spmark.report.transfers import TransferFacts

STUDIES = "moved cost models"
"""Name of the page of studies."""
_MEASURED = (
    "A model learns from many samples of the source platform, then from few of the target platform, and is judged on "
    "matrices that it has not seen. All methods order the same configs. What a method chooses, and the optimum, is "
    "chosen by one half of the samples and valued by the other half."
)
_HARDLY = 1.01
"""Speed-up of the optimum below which shares of the optimum say little."""


def moved_of(facts: TransferFacts, paper: PaperPage | None) -> Moved | None:
    """Derive what studies say, or None where there are no results or the page is of another paper."""
    methods = known_methods()
    if facts.results.empty or (paper is not None and methods.subject not in paper.name.split(", ")):
        return None
    return derive_moved(facts.results, facts.curves, methods)


def studies_alone(
    facts: TransferFacts, moved: Moved, title: str, notices: Sequence[str], also: AbstractSet[Form]
) -> Report:
    """Give the report of studies without any record: they stand on the landing page, with a scorecard of their own."""
    section = moved_section(facts, moved, also)
    cards = scorecard_tables(load_records([]), [known_methods().subject], moved)
    section.blocks.extend(replace(card, chapter=Chapter.SCORECARD) for card in cards)
    title = f"{title}: {STUDIES}" if title == "spmark" else title
    return Report(title, [*standing(moved), *notices], [section])


def moved_section(facts: TransferFacts, moved: Moved, also: AbstractSet[Form] = frozenset()) -> Section:
    """Give the section of studies: figures, then tables."""
    methods = known_methods()
    blocks: list[Drawing | Table] = [render(plot, also) for plot in moved_plots(moved)]
    blocks += [compared_table(moved, methods), gain_table(moved, methods), size_table(moved, methods)]
    blocks += [cost_table(facts.costs, methods)] * (not facts.costs.empty)
    return Section(STUDIES, _MEASURED, _facts(facts, moved), list(_notices(moved)), blocks)


def standing(moved: Moved) -> list[str]:
    """Say how the subject stands beside its baselines: first where it is not ahead, then what is not compared."""
    behind, missing, ahead = [], [], []
    for title, part in panels_of(moved.compared):
        absent = part[part["ahead"] == MISSING]
        beaten = part[~part["ahead"].isin([AHEAD, MISSING])]
        if len(beaten):
            behind.append(_behind(title, beaten))
        if len(absent):
            missing.append(_missing(title, absent, moved))
        if part["ahead"].eq(AHEAD).all():
            ahead.append(f"{_subject()} is ahead of every baseline for {title}.")
    return [*behind, *missing, *ahead]


def _behind(title: str, rows: pd.DataFrame) -> str:
    methods = known_methods()
    told = []
    for ahead, said in ((BEHIND, "not ahead"), (NOT_CLEARLY, "not clearly ahead")):
        listed = [
            f"{methods.title(row['baseline'])}, {SAID[row['choice']]}: {_ratio(row)}"
            for row in rows[rows["ahead"] == ahead].to_dict("records")
        ]
        told += [f"{said} of {'; '.join(listed)}"] if listed else []
    return (
        f"{_subject()} is {', and '.join(told)}, for {title}. A figure is the baseline's time over {_subject()}'s, "
        f"with its interval over {rows['matrices'].iloc[0]} matrices."
    )


def _missing(title: str, rows: pd.DataFrame, moved: Moved) -> str:
    methods = known_methods()
    names = list(dict.fromkeys(rows["baseline"]))
    if methods.subject not in set(moved.gains["method"]):
        names = [methods.subject]
    return f"Nothing is compared for {title} without results of {', '.join(map(methods.title, names))}."


def _ratio(row: Mapping[Any, Any]) -> str:
    value = f"{row['ahead_speedup']:.3f}"
    ends = row["ahead_speedup_low"], row["ahead_speedup_high"]
    return value if any(map(isnan, ends)) else f"{value} [{ends[0]:.3f}, {ends[1]:.3f}]"


def _subject() -> str:
    methods = known_methods()
    return methods.title(methods.subject)


def _notices(moved: Moved) -> Iterator[str]:
    simulated = moved.gains[moved.gains["simulated"].astype(bool)].drop_duplicates("target")
    for one in simulated.to_dict("records"):
        yield f"Nothing was measured on {one['target']}: {one['note']}. A simulated time is in both halves."
    for title, part in panels_of(moved.gains):
        first = part.iloc[0]
        if first["optimum_speedup"] < _HARDLY:
            yield (
                f"There is hardly anything to gain for {title}: the optimum is {first['optimum_speedup']:.3f} times as "
                "fast as the default config, so that shares of the optimum say little."
            )
        single = part.loc[part["headline"].astype(bool) & (part["seeds"] == 1), "method"]
        if len(single):
            names = ", ".join(map(known_methods().title, single))
            yield f"One seed, and so no interval over seeds, for {title}: {names}."
    if moved.left_out:
        yield f"Judged on no more than half of the matrices, so left out: {', '.join(moved.left_out)}."
    if lacking := undrawn(moved):
        yield f"Without results to draw: {', '.join(lacking)}."


def _facts(facts: TransferFacts, moved: Moved) -> Facts:
    gains = moved.gains
    runs = facts.runs
    versions = dict.fromkeys(f"{name} {version}" for run in runs for name, version in run.versions.items())
    return [
        (name, text)
        for name, text in (
            ("Evaluation matrices", _listed(gains["matrices"])),
            ("Configs of a matrix", _listed(gains["configs"].map(lambda count: f"{count:g}"))),
            ("Seeds", _listed(gains["seeds"])),
            ("Times", _listed(gains["note"])),
            ("Commands", "; ".join(dict.fromkeys(run.command for run in runs))),
            ("Samples", "; ".join(dict.fromkeys(f"{n} {d[:12]}" for run in runs for n, d in run.samples.items()))),
            ("Packages", ", ".join([*dict.fromkeys(f"spmark {run.spmark}" for run in runs), *versions])),
            ("Commit", ", ".join(dict.fromkeys(run.commit for run in runs if run.commit))),
        )
        if text
    ]


def _listed(values: pd.Series[Any]) -> str:
    return ", ".join(dict.fromkeys(map(str, values)))
