"""The figure of memory: the bytes of a plan on the device over those of the baseline's plan.

After figures 8 and 10 of Fang, Shen, Wang and Chen, "STile", SIGMOD 2024.
"""

from __future__ import annotations

import pandas as pd

from spmark.impls.core.record import Status
from spmark.report.analysis.cases import beside
from spmark.report.analysis.groups import MOST_POOLED, beside_baseline, groups_of, in_panel_order
from spmark.report.analysis.statistics import mean_of
from spmark.report.figures.findings import leading
from spmark.report.figures.panels import by_group, curves, said_ratio
from spmark.report.figures.plot import Plot, looks_of, not_drawn
from spmark.report.figures.style import WIDTH_IN, in_style


def memory_ratios(derived: pd.DataFrame) -> pd.DataFrame:
    """Give the cases for which both the plan and the baseline's own plan report their bytes.

    Parameters
    ----------
    derived : DataFrame
        As `spmark.report.analysis.cases.derive` gives it.

    Returns
    -------
    DataFrame
        The rows with ``memory_ratio``, device bytes over the baseline's; the baseline's own are left out.
    """
    known = derived[(derived["status"] == Status.OK.value) & (derived["device_bytes"] > 0)]
    rivals = known[~known["is_baseline"]]
    against = beside(rivals, known[known["is_baseline"]], "device_bytes")["device_bytes"]
    rivals = rivals.assign(memory_ratio=rivals["device_bytes"] / against.astype(float))
    return rivals[rivals["memory_ratio"].notna()]


@in_style
def memory_per_matrix(derived: pd.DataFrame, baseline: str, width_in: float = WIDTH_IN) -> Plot:
    """Draw each plan's device bytes over the baseline's: bars, or sorted curves where matrices are many.

    Parameters
    ----------
    derived : DataFrame
        As `spmark.report.analysis.cases.derive` gives it; `memory_ratios` of it must not be empty.
    baseline : str
        For captions and axes.
    width_in : float
        Width of the figure in inches.
    """
    rows = memory_ratios(derived)
    groups, order = groups_of(rows)
    keys = ["op", "dtype", "group", "label", "implementation"]
    ratios = rows.assign(group=groups).groupby(keys)["memory_ratio"]
    data = ratios.agg(memory_ratio=mean_of, least="min", greatest="max", cases="size").reset_index()
    data = in_panel_order(data)
    cases = beside_baseline(rows, baseline, "memory_ratio")
    finding = leading(cases, "memory_ratio", "takes the least memory", said_ratio, less=True)
    series = looks_of(data, derived, finding.labels)
    axis = f"bytes over\n{baseline}'s"
    if len(order) > MOST_POOLED:
        figure = curves(data, "memory_ratio", series, width_in, axis=axis)
        ends = ""
    else:
        figure = by_group(data, series, ("memory_ratio", "least", "greatest"), order, width_in, axis=axis)
        ends = "; whiskers reach from the least to the greatest"
    caption = (
        f"Device memory of a plan (its format, workspaces and code, without the dense operands) over that of "
        f"{baseline}'s, geometric mean over the cases of a matrix or a pool of layers{ends}{not_drawn(data, series)}."
    )
    heading = f"Memory of a plan over that of {baseline}"
    return Plot("memory-per-matrix", caption, figure, data, heading, finding.text)
