"""The map of winners: which implementation is fastest for a matrix at a J, and by how much over the baseline.

Layers that are pooled in figures are pooled here: the winner is what is fastest on most of the pool's matrices.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from spmark.report.derive.cases import PROBLEM
from spmark.report.derive.groups import groups_of, panels_of
from spmark.report.derive.statistics import mean_of
from spmark.report.tables.table import Table

COLUMNS = (
    "op", "dtype", "matrix", "width", "implementation", "speedup", "wins", "matrices", "next", "next_speedup",
)  # fmt: skip
_RIVALS = 3
"""Implementations that were tried on a matrix of the map, where any matrix has so many."""


@dataclass(frozen=True)
class WinnerMap(Table):
    """`winners` as a table, which a page shows as one grid of matrices and J for each operator and dtype."""


def winners(derived: pd.DataFrame) -> pd.DataFrame:
    """Give the fastest implementation of every matrix and J.

    Parameters
    ----------
    derived : DataFrame
        As `spmark.report.derive.cases.derive` gives it.

    Returns
    -------
    DataFrame
        `COLUMNS`, by op, dtype, matrix (in the order of figures, `groups_of`) and J. An implementation counts with its
        fastest label. ``wins`` of the ``matrices`` of a pool are the winner's, and ``speedup`` is the geometric mean of
        its speed-ups over these matrices; ``next`` is the second on the same terms.

        Matrices on which fewer than three implementations were tried, as in studies of one system, are left out where
        others are there; so is each J with one implementation alone.
    """
    tried = derived.groupby(["op", "dtype", "matrix"])["implementation"].transform("nunique")
    rows = derived[derived["speedup"].notna() & (tried >= min(_RIVALS, tried.max()))]
    rows = rows[rows.groupby(list(PROBLEM))["implementation"].transform("nunique") > 1]
    if rows.empty:
        return pd.DataFrame(columns=list(COLUMNS))
    ranked = rows.sort_values(["speedup", "label"], ascending=[False, True], kind="stable")
    ranked = ranked.drop_duplicates([*PROBLEM, "implementation"])
    group, order = groups_of(derived)
    ranked = ranked.assign(group=group.reindex(ranked.index), first=~ranked.duplicated(list(PROBLEM)))
    ranked = ranked.assign(place=ranked["group"].map({name: place for place, name in enumerate(order)}))
    made = [
        (*panel, part["group"].iloc[0], width, *_winner(part))
        for panel, of_panel in panels_of(ranked)
        for (_, width), part in of_panel.groupby(["place", "width"])
    ]
    return pd.DataFrame(made, columns=list(COLUMNS))


def winner_map(derived: pd.DataFrame, baseline: str) -> WinnerMap:
    """Give `winners` as a block of a page, with a note for the reader."""
    note = (
        f"The fastest implementation for each matrix and J, with its speed-up over {baseline}, which is 1× itself. "
        f"Matrices on which fewer than {_RIVALS} implementations were tried are left out where others are there. "
        "Where matrices are many, layers of one source and sparsity are pooled: the name is that of the implementation "
        "that wins on most of them."
    )
    return WinnerMap("winners", "Which implementation is fastest", note, winners(derived))


def _winner(rows: pd.DataFrame) -> tuple[object, ...]:
    """Give implementation, speed-up and wins of the winner, matrices, and the second with its speed-up."""
    by = rows.groupby("implementation", sort=True)
    standing = pd.DataFrame({"wins": by["first"].sum(), "speedup": by["speedup"].agg(mean_of)})
    standing = standing.sort_values(["wins", "speedup"], ascending=False, kind="stable")
    best, others = standing.iloc[0], standing.iloc[1:]
    wins, matrices = int(best["wins"]), rows["matrix"].nunique()
    return standing.index[0], best["speedup"], wins, matrices, others.index[0], others["speedup"].iloc[0]
