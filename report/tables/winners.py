"""Who is fastest: the map of winners, speed-ups over the best of the others, and the systems that are reproduced.

Layers that are pooled in figures are pooled here: the winner is what is fastest on most of the pool's matrices. A
second that is as fast stands beside the winner, since another run might swap the two.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import nan
from typing import Any

import pandas as pd

from spmark.records.schema import MatrixKind
from spmark.report.analysis.cases import (
    ALL,
    PROBLEM,
    beside,
    beside_baseline,
    each_problem_once,
    group_of,
    groups_of,
    in_panel_order,
    panels_of,
    source_and_sparsity,
)
from spmark.report.analysis.means import by_group, kinds, over_matrices
from spmark.report.analysis.statistics import NOTHING, mean_of
from spmark.report.tables.table import TWIN, Table, explained, heading, number

COLUMNS = (
    "op", "dtype", "matrix", "width", "implementation", "speedup", "wins", "matrices", "next", "next_speedup", "tried",
)  # fmt: skip
CLOSE = 0.02
"""Share of the winner's speed-up by which the second may be slower, and still count as fast."""
_ROW = ["op", "dtype", "matrix"]
_PLACE = ["op", "dtype", "place", "width"]
_RIVALS = 3
"""Implementations that were tried on a matrix of the map, where any matrix has so many."""
_MET = 0.5
"""Least share of a row's cases on which a system meets another one, for the columns that rank it."""


@dataclass(frozen=True)
class WinnerMap(Table):
    """`winners` as a table, which a page shows as one grid of matrices and J for each operator and dtype."""


@dataclass(frozen=True)
class WinnerPlace:
    """One place of the grid, as text."""

    winner: str
    speedup: str
    second: str
    """Who is as fast as the winner; empty where nobody is."""
    told: str
    """The second with its speed-up, and how many implementations there are, for a reader who points at the place."""


def place_of(row: Mapping[Any, Any]) -> WinnerPlace:
    """Give the text of a row of `winners`."""
    close = row["next_speedup"] >= (1 - CLOSE) * row["speedup"]
    told = f"Second: {row['next']}, {number('speedup', row['next_speedup'])}. "
    told += f"Fastest on {row['wins']} of {row['matrices']} matrices. " if row["matrices"] > 1 else ""
    told += f"{row['tried']} implementations have a time here."
    return WinnerPlace(row["implementation"], number("speedup", row["speedup"]), row["next"] if close else "", told)


def winners(derived: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """Give the fastest implementation of every matrix and J.

    Parameters
    ----------
    derived : DataFrame
        As `spmark.report.analysis.cases.derive` gives it.
    baseline : str
        What the speed-ups are over. It is at 1 wherever another one has a speed-up, whatever became of its own record.

    Returns
    -------
    DataFrame
        `COLUMNS`, by op, dtype, matrix (in the order of figures, `groups_of`) and J. An implementation counts with its
        fastest label. ``wins`` of the ``matrices`` of a pool are the winner's, and ``speedup`` is the geometric mean of
        its speed-ups over these matrices; ``next`` is the second on the same terms, and ``tried`` is the number of
        implementations that have a speed-up there.

        Matrices on which fewer than three implementations were tried, as in studies of one system, are left out where
        others are there; so is each J with one implementation alone.
    """
    tried = derived.groupby(["op", "dtype", "matrix"])["implementation"].transform("nunique")
    rivals = derived[~derived["is_baseline"] & (tried >= min(_RIVALS, tried.max()))]
    rows = beside_baseline(rivals, baseline, "speedup")
    named = derived.loc[derived["is_baseline"], "implementation"]
    rows.loc[rows["label"] == baseline, "implementation"] = named.iloc[0] if len(named) else baseline
    rows = rows[rows.groupby(list(PROBLEM))["implementation"].transform("nunique") > 1]
    if rows.empty:
        return pd.DataFrame(columns=list(COLUMNS))
    ranked = rows.sort_values(["speedup", "label"], ascending=[False, True], kind="stable")
    ranked = ranked.drop_duplicates([*PROBLEM, "implementation"])
    group, order = groups_of(derived)
    places = dict(zip(derived["matrix"], group.map({name: place for place, name in enumerate(order)}), strict=True))
    ranked = ranked.assign(place=ranked["matrix"].map(places), first=~ranked.duplicated(list(PROBLEM)))
    made = in_panel_order(_standing(ranked).sort_values(["place", "width"], kind="stable"))
    return made.assign(matrix=made["place"].map(dict(enumerate(order))))[list(COLUMNS)]


def winner_map(derived: pd.DataFrame, baseline: str, systems: Collection[str] = ()) -> WinnerMap:
    """Give `winners` as a block of a page, with a note for the reader.

    Parameters
    ----------
    derived : DataFrame
        As `spmark.report.analysis.cases.derive` gives it.
    baseline : str
        What the speed-ups are over, for the note.
    systems : collection of str
        Names of implementations; one whose name goes on behind such a name and ``_`` is of the same system. Rows of the
        map without a record of any system are left out where any row has one: there, libraries meet libraries alone.
    """
    note = (
        f"The fastest implementation for each matrix and J, with its speed-up over {baseline}, which was timed in turn "
        f"with each case: two absolute times may have another ratio. A name behind ≈ is at most {100 * CLOSE:.0f} % "
        f"slower: another run may swap the two. Where matrices are many, layers of one source and sparsity are pooled, "
        "and the winner is what wins on most of them."
    )
    found = winners(derived, baseline)
    kept = _with_systems(found, derived, systems)
    if len(kept) < len(found):
        rows = len(found[_ROW].drop_duplicates()) - len(kept[_ROW].drop_duplicates())
        note += f" Rows left out in which none of the systems has a record: {rows}."
    if kept["matrix"].isin(derived.loc[derived["matrix_kind"] == MatrixKind.TWIN.value, "matrix"]).any():
        note += f" {TWIN}"
    return WinnerMap("winners", "Which implementation is fastest", note, kept)


def over_best_other(derived: pd.DataFrame) -> pd.DataFrame:
    """Give each label's speed-up over the fastest label of any other implementation, case by case.

    Parameters
    ----------
    derived : DataFrame
        As `spmark.report.analysis.cases.derive` gives it.

    Returns
    -------
    DataFrame
        The rows that have a speed-up beside another implementation's, each problem once, with ``best_other`` (its
        label) and ``over_best``. Both ratios are over the interleaved baseline, so that drift between cases cancels.
    """
    rows = each_problem_once(derived[derived["speedup"].notna()]).reset_index(drop=True)
    if rows["implementation"].nunique() < 2:
        return rows.iloc[:0].assign(best_other="", over_best=0.0)
    ranked = rows.sort_values("speedup", ascending=False, kind="stable")
    columns = ("implementation", "label", "speedup")
    first = ranked.drop_duplicates(list(PROBLEM))
    # The fastest label of another implementation than that of the fastest label.
    second = ranked[ranked["implementation"] != beside(ranked, first, "implementation")["implementation"]]
    best, next_best = beside(rows, first, *columns), beside(rows, second.drop_duplicates(list(PROBLEM)), *columns)
    other = best.where(best["implementation"] != rows["implementation"], next_best)
    rows = rows.assign(best_other=other["label"], over_best=rows["speedup"] / other["speedup"].astype(float))
    return rows.dropna(subset="over_best")


def best_other_table(derived: pd.DataFrame) -> Table:
    """Give geometric means of `over_best_other` over everything, by J, and by source and sparsity of pruned layers."""
    note = (
        "Speed-up over the fastest of all other implementations, chosen anew for every case: geometric means with 95 % "
        "intervals over matrices, over the cases that the implementation solved. Where other implementations failed, "
        "the best of the rest counts. Configs of one implementation are not compared with each other: several of "
        "them may be faster than every other implementation."
    )
    rows = over_best_other(derived)
    pools = rows["matrix"].map(group_of)
    layers = rows.assign(of=pools)[pools != rows["matrix"]]
    widths = rows.assign(of=[f"J = {width}" for width in rows["width"]])
    several = widths[widths.groupby(["op", "dtype"])["of"].transform("nunique") > 1] if len(widths) else widths
    keys = ["op", "dtype", "of", "label"]
    shown = by_group(pd.concat([rows.assign(of=ALL), several, layers]), keys, _beside_others)
    if len(shown):
        order = [ALL, *(f"J = {width}" for width in sorted(set(rows["width"])))]
        order += sorted(set(layers["of"]), key=source_and_sparsity)
        shown = shown.assign(place=shown["of"].map(order.index)).sort_values(["op", "dtype", "place", "label"])
        shown = shown.drop(columns="place")
    return Table("over-best-other", "Speed-up over the best of the others", note, shown)


def systems_table(derived: pd.DataFrame, baseline: str, systems: Mapping[str, str]) -> Table:
    """Give each system's geometric means over the baseline and over the best of the others, by op and dtype.

    Parameters
    ----------
    derived : DataFrame
        As `spmark.report.analysis.cases.derive` gives it.
    baseline : str
        What the speed-ups are over, for heading and note.
    systems : mapping of str to str
        Names of implementations to names of systems, in the order of the rows. A system stands with the label of its
        implementation's name or, where no row has this label, with what runs where nothing is requested.

    Returns
    -------
    Table
        ``over_best_speedup`` and ``fastest_share`` are NaN where other systems solved fewer than half of the cases.
    """
    note = (
        f"Geometric means with 95 % intervals over matrices, of all cases that the system solved: over "
        f"{explained(baseline)}, and over the fastest of all other implementations, chosen anew for every case. Each "
        f"row has matrices of its own: do not compare one row with another. ‘{heading('met_cases')}’ counts the row's "
        "cases that some other system of this table solved, too; where these are fewer than half, the last two columns "
        "are blank. Variants of a system are left out."
    )
    rows = over_best_other(derived)
    of_system = {title: _of_system(rows, name) for name, title in systems.items()}
    solved = {title: pd.MultiIndex.from_frame(of[list(PROBLEM)]) for title, of in of_system.items()}
    made = []
    for title, of in of_system.items():
        met = pd.Series(False, of.index)
        for other in solved.keys() - {title}:
            met |= solved[title].isin(solved[other])
        for (op, dtype), part in panels_of(of.assign(met=met)):
            # Where other systems solved few of its cases, the system met libraries alone: its rank says nothing.
            ranked = part["met"].mean() >= _MET
            made.append(
                {"system": title, "op": op, "dtype": dtype, "matrices": part["matrix"].nunique(), "cases": len(part)}
                | {"met_cases": int(part["met"].sum())}
                | over_matrices(part, "speedup").columns("speedup")
                | (over_matrices(part, "over_best") if ranked else NOTHING).columns("over_best_speedup")
                | {"fastest_share": (part["over_best"] > 1).mean() if ranked else nan}
            )
    heads = {"speedup": f"speed-up over {baseline}"}
    return Table("systems", "The systems", note, pd.DataFrame(made), heads=heads)


def _standing(rows: pd.DataFrame) -> pd.DataFrame:
    """Give each place's winner and second with their speed-ups, its wins, the matrices, and who was tried."""
    by = rows.groupby([*_PLACE, "implementation"], sort=True)
    standing = pd.DataFrame({"wins": by["first"].sum(), "speedup": by["speedup"].agg(mean_of)})
    standing = standing.sort_values(["wins", "speedup"], ascending=False, kind="stable").reset_index()
    best, others = standing.drop_duplicates(_PLACE), standing[standing.duplicated(_PLACE)]
    second = others.drop_duplicates(_PLACE).rename(columns={"implementation": "next", "speedup": "next_speedup"})
    of_place = rows.groupby(_PLACE)
    counts = {"matrices": of_place["matrix"].nunique(), "tried": of_place["implementation"].nunique()}
    made = best.merge(second.drop(columns="wins"), on=_PLACE, validate="one_to_one")
    return made.merge(pd.DataFrame(counts), left_on=_PLACE, right_index=True, validate="one_to_one")


def _with_systems(found: pd.DataFrame, derived: pd.DataFrame, systems: Collection[str]) -> pd.DataFrame:
    of_system = derived["implementation"].map(
        lambda name: any(f"{name}_".startswith(f"{system}_") for system in systems)
    )
    rows = derived[["op", "dtype"]].assign(matrix=groups_of(derived)[0])[of_system]
    kept = found[pd.MultiIndex.from_frame(found[_ROW]).isin(pd.MultiIndex.from_frame(rows))]
    return kept.reset_index(drop=True) if len(kept) else found


def _beside_others(rows: pd.DataFrame) -> dict[str, Any]:
    return (
        {"kinds": kinds(rows)}
        | over_matrices(rows, "over_best").columns("over_best_speedup")
        | {"cases": len(rows), "most_often": rows["best_other"].mode().iloc[0]}
        | {"fastest_share": (rows["over_best"] > 1).mean()}
    )


def _of_system(rows: pd.DataFrame, name: str) -> pd.DataFrame:
    named = rows[rows["label"] == name]
    return named if len(named) else rows[(rows["implementation"] == name) & (rows["requested"].map(len) == 0)]
