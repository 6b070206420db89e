"""The map of winners: which implementation is fastest for a matrix at a J, and by how much over the baseline.

Layers that are pooled in figures are pooled here: the winner is what is fastest on most of the pool's matrices. A
second that is as fast stands beside the winner, since another run might swap the two.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from spmark.impls.core.record import MatrixKind
from spmark.report.analysis.cases import PROBLEM
from spmark.report.analysis.groups import beside_baseline, groups_of, in_panel_order, rivals_of
from spmark.report.analysis.statistics import mean_of
from spmark.report.tables.cells import number
from spmark.report.tables.table import Table
from spmark.report.tables.terms import TWIN

COLUMNS = (
    "op", "dtype", "matrix", "width", "implementation", "speedup", "wins", "matrices", "next", "next_speedup", "tried",
)  # fmt: skip
CLOSE = 0.02
"""Share of the winner's speed-up by which the second may be slower, and still count as fast."""
_ROW = ["op", "dtype", "matrix"]
_PLACE = ["op", "dtype", "place", "width"]
_RIVALS = 3
"""Implementations that were tried on a matrix of the map, where any matrix has so many."""


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
    rows = beside_baseline(rivals_of(derived[tried >= min(_RIVALS, tried.max())]), baseline, "speedup")
    named = derived.loc[derived["is_baseline"], "implementation"]
    rows.loc[rows["label"] == baseline, "implementation"] = named.iloc[0] if len(named) else baseline
    rows = rows[rows.groupby(list(PROBLEM))["implementation"].transform("nunique") > 1]
    if rows.empty:
        return pd.DataFrame(columns=list(COLUMNS))
    ranked = rows.sort_values(["speedup", "label"], ascending=[False, True], kind="stable")
    ranked = ranked.drop_duplicates([*PROBLEM, "implementation"])
    group, order = groups_of(derived)
    ranked = ranked.assign(
        group=ranked["matrix"].map(dict(zip(derived["matrix"], group, strict=True))),
        first=~ranked.duplicated(list(PROBLEM)),
    )
    ranked = ranked.assign(place=ranked["group"].map({name: place for place, name in enumerate(order)}))
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
        f"The fastest implementation for each matrix and J, with its speed-up over {baseline}, which is 1× itself. A "
        "speed-up is over the baseline's time in the same run, taken in turn with the case: absolute times of two runs "
        "may have another ratio where the machine was busy. A name behind ≈ is that of the second, where it is at most "
        f"{100 * CLOSE:.0f} % slower: another run may swap the two. Point at a place for the second and for the number "
        f"of implementations. Matrices on which fewer than {_RIVALS} implementations were tried are left out where "
        "others are there. "
    )
    found = winners(derived, baseline)
    kept = _with_systems(found, derived, systems)
    if len(kept) < len(found):
        rows = len(found[_ROW].drop_duplicates()) - len(kept[_ROW].drop_duplicates())
        note += f"Rows left out in which none of the systems has a record: {rows}. "
    if kept["matrix"].isin(derived.loc[derived["matrix_kind"] == MatrixKind.TWIN.value, "matrix"]).any():
        note += f"{TWIN} "
    note += (
        "Where matrices are many, layers of one source and sparsity are pooled: the name is that of the implementation "
        "that wins on most of them."
    )
    return WinnerMap("winners", "Which implementation is fastest", note, kept)


def _with_systems(found: pd.DataFrame, derived: pd.DataFrame, systems: Collection[str]) -> pd.DataFrame:
    of_system = derived["implementation"].map(
        lambda name: any(f"{name}_".startswith(f"{system}_") for system in systems)
    )
    rows = derived[["op", "dtype"]].assign(matrix=groups_of(derived)[0])[of_system]
    kept = found[pd.MultiIndex.from_frame(found[_ROW]).isin(pd.MultiIndex.from_frame(rows))]
    return kept.reset_index(drop=True) if len(kept) else found


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
