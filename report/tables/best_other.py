"""The table of speed-ups over the best of the others: what an implementation is worth where all others are at hand."""

from __future__ import annotations

import pandas as pd

from spmark.report.analysis.cases import PROBLEM, beside, each_problem_once
from spmark.report.analysis.groups import ALL, group_of
from spmark.report.analysis.means import kinds, over_matrices
from spmark.report.tables.table import Table


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
    second = second.drop_duplicates(list(PROBLEM))
    best, next_best = beside(rows, first, *columns), beside(rows, second, *columns)
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
    layers = rows[pools != rows["matrix"]].assign(of=pools[pools != rows["matrix"]])
    widths = rows.assign(of=[f"J = {width}" for width in rows["width"]])
    several = widths[widths.groupby(["op", "dtype"])["of"].transform("nunique") > 1] if len(widths) else widths
    parts = [_means(part) for part in (rows.assign(of=ALL), several, layers) if len(part)]
    shown = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    return Table("over-best-other", "Speed-up over the best of the others", note, shown)


def _means(rows: pd.DataFrame) -> pd.DataFrame:
    keys = ["op", "dtype", "of", "label"]
    made = [
        dict(zip(keys, key, strict=True))
        | {"kinds": kinds(part)}
        | over_matrices(part, "over_best").columns("over_best_speedup")
        | {"cases": len(part), "most_often": part["best_other"].mode().iloc[0]}
        | {"fastest_share": (part["over_best"] > 1).mean()}
        for key, part in rows.groupby(keys, sort=False)
    ]
    frame = pd.DataFrame(made).assign(order=lambda means: means["of"].map(_order))
    return frame.sort_values(["op", "dtype", "order", "label"]).drop(columns="order")


def _order(of: str) -> tuple[int, str, float]:
    """Everything first, then J by size, then pools by source and sparsity."""
    if of == ALL:
        return 0, "", 0.0
    if of.startswith("J = "):
        return 1, "", float(of.removeprefix("J = "))
    source, sparsity, _ = of.rsplit(" ", 2)
    return 2, source, float(sparsity)
