"""The figure of a cost model: its cost of every bucket width beside the measured time.

After figure 11 of Peng, Thomadakis, Pienaar and Kestor, "LiteForm", HPDC 2025, which shows one matrix; the second panel
counts over all matrices how far the width of least cost is from that of least time.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from spmark.report.analysis.statistics import mean_of
from spmark.report.figures.names import broken
from spmark.report.figures.panels import grid, panel_room_in, value_ticks
from spmark.report.figures.plot import Plot
from spmark.report.figures.style import WIDTH_IN, Look, in_style
from spmark.report.tables.table import Table

_PROBLEM = ["op", "dtype", "matrix", "width", "cost_by"]
_DEFAULT = "default"
_LOOKS = {"cost": Look("#0072b2", "o", "////"), "time": Look("#d55e00", "s")}
_FEWEST = 3
_TITLE_POINTS = 9.0


def priced(derived: pd.DataFrame) -> pd.DataFrame:
    """Give the timed rows whose plan was pinned to a bucket width and reports its cost.

    Returns
    -------
    DataFrame
        ``op, dtype, matrix, width, cost_by, nnz, max_width, cost, median_us`` of the problems with at least three
        widths. ``cost_by`` names the cost model that a sweep has asked for, or is ``default``. A width beyond the
        longest row gives the same plan as the width before, and is left out.
    """
    pinned = derived["requested"].map(lambda requested: bool(requested) and "max_width" in requested)
    rows = derived[pinned & derived["median_us"].notna()]
    told = rows["config"].map(lambda config: "cost" in config and "max_width" in config)
    rows = rows[told.astype(bool)]  # without rows the mask has no dtype, and would select columns
    rows = rows.assign(cost_by=[str(requested.get("cost", _DEFAULT)) for requested in rows["requested"]])
    made = rows[[*_PROBLEM, "nnz", "median_us"]].assign(
        max_width=[int(config["max_width"]) for config in rows["config"]],
        cost=[float(config["cost"]) for config in rows["config"]],
    )
    made = made.drop_duplicates([*_PROBLEM, "max_width"])
    several = made.groupby(_PROBLEM)["max_width"].transform("count") >= _FEWEST
    return made[several].sort_values([*_PROBLEM, "max_width"], ignore_index=True)


def least(rows: pd.DataFrame) -> pd.DataFrame:
    """Give for every problem the width of least cost and that of least time, and how much longer the first takes.

    Parameters
    ----------
    rows : DataFrame
        As `priced` gives it.

    Returns
    -------
    DataFrame
        ``op, dtype, matrix, width, cost_by, nnz, by_cost, by_time, steps, regret``; steps are powers of two between
        the widths, negative where the cost prefers the narrower.
    """
    groups = rows.groupby(_PROBLEM)
    cost, time = (rows.loc[groups[column].idxmin()].set_index(_PROBLEM) for column in ("cost", "median_us"))
    steps = np.log2(cost["max_width"] / time["max_width"]).round().astype(int)
    regret = cost["median_us"] / time["median_us"] - 1
    ends = cost[["nnz"]].assign(by_cost=cost["max_width"], by_time=time["max_width"], steps=steps, regret=regret)
    return ends.reset_index()


def cost_model_table(derived: pd.DataFrame) -> Table:
    """Give `least` of every problem, and whether the two widths are equal or neighbours."""
    note = (
        "Width of the widest bucket at which the cost model's cost is least, and at which the measured time is; steps "
        "are powers of two between them, and regret is how much longer the width of least cost takes."
    )
    ends = least(priced(derived))
    shown = ends.assign(near=np.where(ends["steps"].abs() <= 1, "yes", "no"))
    shown = shown.rename(columns={"regret": "regret_share", "near": "equal or neighbours"})
    return Table("cost-model", "Cost model: widths of least cost and of least time", note, shown)


@in_style
def cost_model(derived: pd.DataFrame, width_in: float = WIDTH_IN) -> Plot:
    """Draw cost and time over the bucket width for the largest matrix, and how often they agree.

    Parameters
    ----------
    derived : DataFrame
        As `spmark.report.analysis.cases.derive` gives it; `priced` of it must not be empty.
    width_in : float
        Width of the figure in inches.
    """
    rows = priced(derived)
    ends = least(rows)
    models = list(dict.fromkeys(ends["cost_by"]))
    figure, axes = grid(2 * len(models), _LOOKS, "lines", width_in, 2.1)
    for at, model in enumerate(models):
        own, least_of = rows[rows["cost_by"] == model], ends[ends["cost_by"] == model]
        _draw(axes[2 * at], axes[2 * at + 1], own, least_of, model, panel_room_in(width_in))
    caption = (
        "Cost model and measured time over the width of the widest bucket, each over its least: the largest matrix on "
        "the left; on the right, how far the width of least cost is from that of least time."
    )
    finding = " ".join(_told(ends[ends["cost_by"] == model], model) for model in models)
    data = rows.merge(ends.drop(columns="nnz"), on=_PROBLEM)
    return Plot("cost-model", caption, figure, data, "Widths of least cost and of least time", finding)


def _draw(  # noqa: PLR0917
    curve: Axes, bars: Axes, rows: pd.DataFrame, ends: pd.DataFrame, model: str, room_in: float
) -> None:
    """Draw the two panels of one cost model."""
    largest = ends.sort_values(["nnz", "width"]).iloc[-1]
    shown = rows[(rows[_PROBLEM] == largest[_PROBLEM]).all(axis=1)]
    by = "" if model == _DEFAULT else f", cost: {model}"
    for name, column in (("cost", "cost"), ("time", "median_us")):
        look = _LOOKS[name]
        curve.plot(
            shown["max_width"], shown[column] / shown[column].min(), look.marker, color=look.colour, linestyle="-"
        )
    curve.set_title(broken(f"{largest['matrix']}, J = {largest['width']}{by}", room_in, _TITLE_POINTS), loc="left")
    curve.set_xscale("log", base=2)
    value_ticks(curve.xaxis, list(shown["max_width"]), room_in, log=True)
    curve.set_xlabel("widest bucket")
    curve.set_ylabel("over its least")
    curve.grid(axis="y")
    steps, counts = np.unique(ends["steps"], return_counts=True)
    bars.bar(steps, counts, color=_LOOKS["time"].colour, edgecolor="black", linewidth=0.3, width=0.8)
    bars.set_title(broken(f"all matrices and J{by}", room_in, _TITLE_POINTS), loc="left")
    bars.set_xlabel(broken("powers of two from least time to least cost", room_in))
    bars.set_ylabel("cases")
    bars.xaxis.set_major_locator(MaxNLocator(integer=True))
    bars.yaxis.set_major_locator(MaxNLocator(integer=True))


def _told(ends: pd.DataFrame, model: str) -> str:
    """Say in one sentence how near the widths of least cost and of least time are."""
    close = ends["steps"].abs() <= 1
    near, everywhere = float(close.mean()), float(close.groupby([ends["matrix"]]).all().mean())
    regret = mean_of(1 + ends["regret"]) - 1
    named = "The widths" if model == _DEFAULT else f"With cost: {model} the widths"
    return (
        f"{named} of least cost and of least time are equal or neighbours "
        f"in {near:.0%} of the cases, and at every J on {everywhere:.0%} of "
        f"{ends['matrix'].nunique()} matrices, in {len(ends)} cases; the width of least cost takes {regret:.1%} longer "
        "in the mean."
    )
