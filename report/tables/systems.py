"""The table of the systems whose papers are reproduced: a row each for every operator and dtype."""

from __future__ import annotations

from collections.abc import Mapping
from math import nan

import pandas as pd

from spmark.report.analysis.cases import PROBLEM
from spmark.report.analysis.groups import panels_of
from spmark.report.analysis.means import over_matrices
from spmark.report.analysis.statistics import NOTHING
from spmark.report.tables.best_other import over_best_other
from spmark.report.tables.cells import heading
from spmark.report.tables.table import Table
from spmark.report.tables.terms import explained

_MET = 0.5
"""Least share of a row's cases on which the system meets another one, for the columns that rank it."""


def systems_table(derived: pd.DataFrame, baseline: str, systems: Mapping[str, str]) -> Table:
    """Give each system's geometric means over the baseline and over the best of the others.

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
        "cases that some other system of this table solved, too. The last two columns are blank where these are fewer "
        "than half of the row's cases: there the system met libraries alone most often. Variants of a system are left "
        "out."
    )
    rows = over_best_other(derived)
    of_system = {title: _of_system(rows, name) for name, title in systems.items()}
    solved = {title: pd.MultiIndex.from_frame(of[list(PROBLEM)]) for title, of in of_system.items()}
    made = []
    for title, of in of_system.items():
        others = [solved[other] for other in solved if other != title]
        met = pd.Series(False, of.index)
        for problems in others:
            met |= solved[title].isin(problems)
        for (op, dtype), part in panels_of(of.assign(met=met)):
            row = {"system": title, "op": op, "dtype": dtype, "matrices": part["matrix"].nunique(), "cases": len(part)}
            made.append(row | {"met_cases": int(part["met"].sum())} | _means(part))
    heads = {"speedup": f"speed-up over {baseline}"}
    return Table("systems", "The systems", note, pd.DataFrame(made), heads=heads)


def _means(part: pd.DataFrame) -> dict[str, float]:
    """Give the means of one row; nothing is said of ranks where other systems solved too few of its cases."""
    ranked = part["met"].mean() >= _MET
    over_best = over_matrices(part, "over_best") if ranked else NOTHING
    return (
        over_matrices(part, "speedup").columns("speedup")
        | over_best.columns("over_best_speedup")
        | {"fastest_share": (part["over_best"] > 1).mean() if ranked else nan}
    )


def _of_system(rows: pd.DataFrame, name: str) -> pd.DataFrame:
    named = rows[rows["label"] == name]
    return named if len(named) else rows[(rows["implementation"] == name) & (rows["requested"].map(len) == 0)]
