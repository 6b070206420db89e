"""The figure of memory: what a plan holds on the device beside what the baseline's holds.

After figures 8 and 10 of Fang, Shen, Wang and Chen, "STile", SIGMOD 2024.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from spmark.impls.core.record import Status
from spmark.report.derive.cases import problem_key
from spmark.report.derive.groups import MOST_POOLED, groups_of, in_panel_order, panels_of
from spmark.report.derive.statistics import Interval, geometric_mean
from spmark.report.figures.panels import grouped_bars, name_groups, ratio_axis, sorted_curves, stacked
from spmark.report.figures.plot import Plot, looks_of
from spmark.report.figures.style import WIDTH_IN, in_style


def held(derived: pd.DataFrame) -> pd.DataFrame:
    """Give the cases whose plan and whose baseline's own plan both say what they hold.

    Parameters
    ----------
    derived : DataFrame
        As `spmark.report.derive.cases.derive` gives it.

    Returns
    -------
    DataFrame
        The rows with ``memory_ratio``, device bytes over the baseline's; the baseline's own are left out.
    """
    known = derived[(derived["status"] == Status.OK.value) & (derived["device_bytes"] > 0)]
    own = {problem_key(row): row["device_bytes"] for row in known[known["is_baseline"]].to_dict("records")}
    rivals = known[~known["is_baseline"]]
    against = [float(own.get(problem_key(row), np.nan)) for row in rivals.to_dict("records")]
    rivals = rivals.assign(memory_ratio=rivals["device_bytes"].to_numpy(np.float64) / np.array(against, np.float64))
    return rivals[rivals["memory_ratio"].notna()]


@in_style
def memory_per_matrix(derived: pd.DataFrame, baseline: str, width_in: float = WIDTH_IN) -> Plot:
    """Draw each plan's device bytes over the baseline's: bars, or sorted curves where matrices are many.

    Parameters
    ----------
    derived : DataFrame
        As `spmark.report.derive.cases.derive` gives it; `held` of it must not be empty.
    baseline : str
        For captions and axes.
    width_in : float
        Width of the figure in inches.
    """
    rows = held(derived)
    groups, order = groups_of(rows)
    keys = ["op", "dtype", "group", "label", "implementation"]
    data = pd.DataFrame(
        [
            dict(zip(keys, key, strict=True)) | _mean(part["memory_ratio"].to_numpy(np.float64))
            for key, part in rows.assign(group=groups).groupby(keys, sort=True)
        ]
    )
    data = in_panel_order(data)
    series, panels = looks_of(data), panels_of(data)
    curves = len(order) > MOST_POOLED
    figure, axes = stacked(len(panels), series, "lines" if curves else "bars", () if curves else order, width_in)
    for ax, ((op, dtype), part) in zip(axes, panels, strict=True):
        ax.set_title(f"{op}, {dtype}", loc="left")
        ax.set_ylabel(f"bytes over\n{baseline}'s")
        if curves:
            values = {str(k): v.to_numpy(np.float64) for k, v in part.groupby("label")["memory_ratio"]}
            sorted_curves(ax, values, series)
        else:
            here = [group for group in order if group in set(part["group"])]
            bars = {
                (str(row["group"]), str(row["label"])): Interval(row["memory_ratio"], row["least"], row["greatest"])
                for row in part.to_dict("records")
            }
            grouped_bars(ax, bars, here, series, start=1.0, missing=set())
            name_groups(ax, here, (), width_in)
        ratio_axis(ax)
    if curves:
        axes[-1].set_xlabel("matrices, sorted by memory")
    caption = (
        f"Device memory of a plan over that of {baseline}'s (1.0): the matrix in its format, workspaces and code, "
        "without the dense operands, which all share. Geometric mean over the widths of a matrix"
        + ("." if curves else ", or over all layers of a sparsity; whiskers reach from the least to the greatest.")
    )
    return Plot("memory-per-matrix", caption, figure, data)


def _mean(ratios: np.ndarray) -> dict[str, float]:
    mean = geometric_mean(ratios).value
    return {"memory_ratio": mean, "least": ratios.min(), "greatest": ratios.max(), "cases": ratios.size}
