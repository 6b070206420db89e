"""The figures of cost models: predicted and measured times, and the bucket width of least cost and of least time.

Predicted times are those of plans that searches saw, and of single tiles, as in figure 14 of Fang, Shen, Wang and Chen,
"STile", SIGMOD 2024. Costs over bucket widths are those of figure 11 of Peng, Thomadakis, Pienaar and Kestor,
"LiteForm", HPDC 2025, which shows one matrix; the second panel counts over all matrices how far the width of least cost
is from that of least time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import nan

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from spmark.report.analysis.cases import in_panel_order, panels_of
from spmark.report.analysis.statistics import mean_of
from spmark.report.analysis.tiles import TileAgreement
from spmark.report.figures.findings import sentence
from spmark.report.figures.panels import by_panel, grid, log_ticks, panel_room_in, scattered, value_ticks, wrapped
from spmark.report.figures.plot import Plot, looks_of, not_drawn
from spmark.report.figures.style import WIDTH_IN, Look, in_style
from spmark.report.tables.table import Table

_PROBLEM = ["op", "dtype", "matrix", "width", "cost_by"]
_DEFAULT = "default"
_LOOKS = {"cost": Look("#0072b2", "o", "////"), "time": Look("#d55e00", "s")}
_PREDICTED = "predicted_us"
"""Key of a candidate's config under which a search tells a predicted time; other scores only order configs."""
_CASE = ["op", "dtype", "matrix", "matrix_kind", "width", "seed", "label", "implementation"]
_AGREEMENT = [
    "op", "dtype", "label", "cases", "plans", "pearson_score", "log_pearson_score", "spearman_score", "rmse_us",
    "bias_ratio",
]  # fmt: skip
_FEWEST = 3


def predicted(seen: pd.DataFrame) -> pd.DataFrame:
    """Give every plan whose time was predicted and measured.

    Parameters
    ----------
    seen : DataFrame
        As `spmark.report.candidates.measured` gives it.

    Returns
    -------
    DataFrame
        ``op, dtype, matrix, matrix_kind, width, seed, label, implementation, predicted_us, measured_us``; of plans of
        one case that share a prediction, and differ in what the model does not see, the fastest.
    """
    times = seen["candidate"].map(lambda config: float(config.get(_PREDICTED) or nan)).astype(float)
    told = seen.assign(predicted_us=times)[times > 0]
    fastest = told.groupby([*_CASE, _PREDICTED], sort=True)["seen_us"].min()
    return fastest.rename("measured_us").reset_index()


def agreement(plans: pd.DataFrame) -> pd.DataFrame:
    """Give how well predictions agree with times, for each op, dtype and label.

    Parameters
    ----------
    plans : DataFrame
        As `predicted` gives it.

    Returns
    -------
    DataFrame
        ``op, dtype, label, cases, plans, pearson_score, log_pearson_score, spearman_score, rmse_us, bias_ratio``:
        correlations of times, of their logarithms and of their ranks; the root mean square error; and the geometric
        mean of predicted over measured. Fewer than three plans are left out.
    """
    rows = []
    for (op, dtype), panel in panels_of(plans):
        for label, part in panel.groupby("label"):
            x, y = part[_PREDICTED].to_numpy(np.float64), part["measured_us"].to_numpy(np.float64)
            if min(np.unique(x).size, np.unique(y).size) < _FEWEST:
                continue
            ranks = part[[_PREDICTED, "measured_us"]].rank().to_numpy().T
            scores = [np.corrcoef(*of)[0, 1] for of in ((x, y), np.log((x, y)), ranks)]
            error, bias = np.sqrt(np.mean((x - y) ** 2)), mean_of(x / y)
            rows.append((op, dtype, label, part.groupby(_CASE).ngroups, len(part), *scores, error, bias))
    return pd.DataFrame(rows, columns=_AGREEMENT)


def agreement_table(seen: pd.DataFrame) -> Table:
    """Give `agreement` of what searches saw."""
    note = (
        "Times that a cost model predicted for whole plans beside those that the search measured, a few samples each "
        "from a cold L2: Pearson's correlation of times and of their logarithms, Spearman's of ranks, the root mean "
        "square error, and the geometric mean of predicted over measured."
    )
    return Table("agreement", "Cost models: predicted and measured plans", note, agreement(predicted(seen)))


@in_style
def predicted_times(plans: pd.DataFrame, derived: pd.DataFrame, width_in: float = WIDTH_IN) -> Plot:
    """Draw the measured time of every plan against the predicted one.

    Parameters
    ----------
    plans : DataFrame
        As `predicted` gives it; it must not be empty.
    derived : DataFrame
        The cases that searched, as `spmark.report.analysis.cases.derive` gives them, for the looks of labels.
    width_in : float
        Width of the figure in inches.
    """
    what = "a plan against what the search measured, a point for each prediction of a case, the fastest"
    return _against(plans, looks_of(plans, derived), ("predicted-times", "plans", what), width_in)


def tiles_held_out(plans: pd.DataFrame, agreements: Sequence[TileAgreement]) -> pd.DataFrame:
    """Give the single tiles of a device's calibration that the cost model was not fitted to.

    Parameters
    ----------
    plans : DataFrame
        As `predicted` gives it, of the system that the calibration belongs to.
    agreements : sequence of TileAgreement
        As `spmark.report.analysis.tiles.published_agreement` gives them.

    Returns
    -------
    DataFrame
        ``op, dtype, label, implementation, predicted_us, measured_us``, of the operators and dtypes whose plans have
        predicted times in ``plans``; empty where there are none.
    """
    of_panel = {panel: part["implementation"].iloc[0] for panel, part in panels_of(plans)}
    rows = [
        (str(one.operator), str(one.dtype), "single tiles", of_panel[str(one.operator), str(one.dtype)], *pair)
        for one in agreements
        if (str(one.operator), str(one.dtype)) in of_panel
        for pair in one.held_out
    ]
    return pd.DataFrame(rows, columns=["op", "dtype", "label", "implementation", _PREDICTED, "measured_us"])


@in_style
def tile_times(tiles: pd.DataFrame, width_in: float = WIDTH_IN) -> Plot:
    """Draw the measured time of every tile that was held out of a fit against the predicted one.

    Parameters
    ----------
    tiles : DataFrame
        As `tiles_held_out` gives it; it must not be empty.
    width_in : float
        Width of the figure in inches.
    """
    what = "a single tile, which it was not fitted to, against what calibrating this device measured"
    return _against(tiles, looks_of(tiles), ("tile-times", "single tiles", what), width_in)


def _against(data: pd.DataFrame, series: Mapping[str, Look], words: tuple[str, str, str], width_in: float) -> Plot:
    """Draw ``measured_us`` against ``predicted_us``; the words are the name, what the times are of, and the caption."""
    data, (name, of, what) = in_panel_order(data), words
    figure, cells = by_panel(data, series, "points", width_in, 2.3)
    told = []
    for ax, part in cells:
        scattered(ax, part, _PREDICTED, "measured_us", series, markersize=3, alpha=0.7, markeredgewidth=0.2)
        values = part[[_PREDICTED, "measured_us"]].to_numpy(np.float64)
        ends = [float(values.min()) / 1.3, float(values.max()) * 1.3]
        ax.plot(ends, ends, ":", color="#808080", linewidth=0.8, zorder=1)
        ax.set(xlim=ends, ylim=ends, xlabel="predicted (µs)", ylabel="measured (µs)")
        for axis in (ax.xaxis, ax.yaxis):
            log_ticks(axis, 5)
        ax.grid(axis="both")
        pearson, error_ms = np.corrcoef(values.T)[0, 1], 1e-3 * np.sqrt(np.mean((values[:, 0] - values[:, 1]) ** 2))
        told.append(f"{ax.get_title('left')}: {pearson:z.3f} and {error_ms:.2g} ms over {len(part)} {of}")
    finding = f"Pearson's correlation and the root mean square error are for {sentence(told)}"
    caption = f"Time that a cost model predicts for {what} (dotted: as predicted{not_drawn(data, series)})."
    return Plot(name, caption, figure, data, f"Predicted and measured times of {of}", finding)


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
        _draw(axes[2 * at], axes[2 * at + 1], own, least_of, panel_room_in(width_in))
    caption = (
        "Cost and measured time of the largest matrix over the width of the widest bucket, each over its least (left), "
        "and how far the width of least cost is from that of least time in all cases (right)."
    )
    finding = " ".join(_told(ends[ends["cost_by"] == model], model) for model in models)
    data = rows.merge(ends.drop(columns="nnz"), on=_PROBLEM)
    return Plot("cost-model", caption, figure, data, "Widths of least cost and of least time", finding)


def _draw(curve: Axes, bars: Axes, rows: pd.DataFrame, ends: pd.DataFrame, room_in: float) -> None:
    """Draw the two panels of one cost model."""
    largest = ends.sort_values(["nnz", "width"]).iloc[-1]
    shown = rows[(rows[_PROBLEM] == largest[_PROBLEM]).all(axis=1)]
    by = "" if largest["cost_by"] == _DEFAULT else f", cost: {largest['cost_by']}"
    for look, column in zip(_LOOKS.values(), ("cost", "median_us"), strict=True):
        curve.plot(shown["max_width"], shown[column] / shown[column].min(), color=look.colour, marker=look.marker)
    curve.set_title(wrapped(f"{largest['matrix']}, J = {largest['width']}{by}", room_in, 9), loc="left")
    curve.set_xscale("log", base=2)
    value_ticks(curve.xaxis, list(shown["max_width"]), room_in, log=True)
    curve.set(xlabel="widest bucket", ylabel="over its least")
    curve.grid(axis="y")
    bars.bar(
        *np.unique(ends["steps"], return_counts=True), color=_LOOKS["time"].colour, edgecolor="black", linewidth=0.3
    )
    bars.set_title(wrapped(f"all matrices and J{by}", room_in, 9), loc="left")
    bars.set(xlabel=wrapped("powers of two from least time to least cost", room_in, 8.5), ylabel="cases")
    for axis in (bars.xaxis, bars.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))


def _told(ends: pd.DataFrame, model: str) -> str:
    """Say in one sentence how near the widths of least cost and of least time are."""
    near, regret = (ends["steps"].abs() <= 1).mean(), mean_of(1 + ends["regret"]) - 1
    return (
        f"{'By default' if model == _DEFAULT else f'With cost: {model}'} the widths of least cost and of least time "
        f"are equal or neighbours in {near:.0%} of {len(ends)} cases, and the width of least cost takes {regret:.1%} "
        "longer in the mean."
    )
