"""The table of the systems whose papers are reproduced: a row each for every operator and dtype."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from spmark.report.derive.groups import panels_of
from spmark.report.derive.means import over_matrices
from spmark.report.tables.peers import over_best_other
from spmark.report.tables.table import Table


def systems_table(derived: pd.DataFrame, baseline: str, systems: Mapping[str, str]) -> Table:
    """Give each system's geometric means over the baseline and over the best of the others.

    Parameters
    ----------
    derived : DataFrame
        As `spmark.report.derive.cases.derive` gives it.
    baseline : str
        What the speed-ups are over, for the note.
    systems : mapping of str to str
        Names of implementations to names of systems, in the order of the rows. A system stands with the label of its
        implementation's name or, where no row has this label, with what runs where nothing is requested.
    """
    note = (
        f"Geometric means with 95 % intervals over matrices, of all cases that the system solved: over {baseline}, and "
        "over the fastest of all other implementations, chosen anew for every case. Variants of a system are left out."
    )
    rows = over_best_other(derived)
    made = [
        {"system": title, "op": op, "dtype": dtype, "matrices": part["matrix"].nunique(), "cases": len(part)}
        | over_matrices(part, "speedup").columns("speedup")
        | over_matrices(part, "over_best").columns("over_best_speedup")
        | {"fastest_share": (part["over_best"] > 1).mean()}
        for name, title in systems.items()
        for (op, dtype), part in panels_of(_of_system(rows, name))
    ]
    return Table("systems", "The systems", note, pd.DataFrame(made))


def _of_system(rows: pd.DataFrame, name: str) -> pd.DataFrame:
    named = rows[rows["label"] == name]
    return named if len(named) else rows[(rows["implementation"] == name) & (rows["requested"].map(len) == 0)]
