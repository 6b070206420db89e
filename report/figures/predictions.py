"""The figures of predicted and measured times: what a cost model predicts beside what was measured.

One figure is about plans that searches saw, the other about single tiles, as in figure 14 of Fang, Shen, Wang and Chen,
"STile", SIGMOD 2024.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import nan

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray

from spmark.report.analysis.groups import in_panel_order, panels_of
from spmark.report.analysis.statistics import mean_of
from spmark.report.analysis.tiles import TileAgreement
from spmark.report.figures.panels import grid, log_ticks, scattered, titled
from spmark.report.figures.plot import Plot, looks_of, not_drawn
from spmark.report.figures.style import WIDTH_IN, Look, in_style
from spmark.report.tables.table import Table

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
            scores = np.corrcoef(x, y)[0, 1], np.corrcoef(np.log(x), np.log(y))[0, 1], _rank_correlation(x, y)
            error, bias = np.sqrt(np.mean((x - y) ** 2)), mean_of(x / y)
            rows.append((op, dtype, label, part.groupby(_CASE).ngroups, len(part), *scores, error, bias))
    return pd.DataFrame(rows, columns=_AGREEMENT)


def _rank_correlation(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Give Spearman's correlation. To import SciPy's statistics takes as long as to draw a figure."""
    return float(np.corrcoef(pd.Series(x).rank().to_numpy(), pd.Series(y).rank().to_numpy())[0, 1])


def agreement_table(seen: pd.DataFrame) -> Table:
    """Give `agreement` of what searches saw."""
    note = (
        "Times that a cost model predicted for whole plans beside those that the search measured, a few samples each "
        "from a cold L2: Pearson's correlation of times and of their logarithms, Spearman's of ranks, the root mean "
        "square error, and the geometric mean of predicted over measured."
    )
    return Table("agreement", "Cost models: predicted and measured plans", note, agreement(predicted(seen)))


@in_style
def predicted_times(seen: pd.DataFrame, derived: pd.DataFrame, width_in: float = WIDTH_IN) -> Plot:
    """Draw the measured time of every plan against the predicted one.

    Parameters
    ----------
    seen : DataFrame
        As `spmark.report.candidates.measured` gives it; `predicted` of it must not be empty.
    derived : DataFrame
        The cases that searched, as `spmark.report.analysis.cases.derive` gives them, for the looks of labels.
    width_in : float
        Width of the figure in inches.
    """
    data = in_panel_order(predicted(seen))
    series = looks_of(data, derived)
    said = "; ".join(
        f"{row['label']}, {row['op']}, {row['dtype']}: {row['pearson_score']:z.3f} and {row['rmse_us'] * 1e-3:.2g} ms "
        f"over {row['plans']} plans of {row['cases']} cases"
        for row in agreement(data).to_dict("records")
    )
    caption = (
        "Time that a cost model predicts for a plan against what the search measured; plans of one case with the same "
        "prediction are one point, the fastest. Dotted: as predicted." + not_drawn(data, series)
    )
    finding = f"Pearson's correlation and root mean square error are for {said}." if said else ""
    figure = _against(data, series, width_in)
    return Plot("predicted-times", caption, figure, data, "Predicted and measured times", finding)


def tiles_held_out(seen: pd.DataFrame, agreements: Sequence[TileAgreement]) -> pd.DataFrame:
    """Give the single tiles of a device's calibration that the cost model was not fitted to.

    Parameters
    ----------
    seen : DataFrame
        As `spmark.report.candidates.measured` gives it, of the system that the calibration belongs to.
    agreements : sequence of TileAgreement
        As `spmark.report.analysis.tiles.published_agreement` gives them.

    Returns
    -------
    DataFrame
        ``op, dtype, label, implementation, predicted_us, measured_us``, of the operators and dtypes whose plans have
        predicted times in ``seen``; empty where there are none.
    """
    plans = predicted(seen)
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
    data = in_panel_order(tiles)
    said = "; ".join(
        f"{op}, {dtype}: {np.corrcoef(part[_PREDICTED], part['measured_us'])[0, 1]:z.3f} over {len(part)} tiles"
        for (op, dtype), part in panels_of(data)
    )
    caption = (
        "Time that a cost model predicts for a single tile on one multiprocessor against what the calibration of this "
        "device measured; the model was fitted to other tiles. Dotted: as predicted."
    )
    finding, heading = f"Pearson's correlation is for {said}.", "Predicted and measured times of single tiles"
    return Plot("tile-times", caption, _against(data, looks_of(data, data), width_in), data, heading, finding)


def _against(data: pd.DataFrame, series: Mapping[str, Look], width_in: float) -> Figure:
    """Draw ``measured_us`` against ``predicted_us``, a panel for each op and dtype."""
    drawn = data[data["label"].isin(series)]
    figure, axes = grid(len(panels_of(drawn)), series, "points", width_in, 2.3)
    for ax, part in titled(axes, drawn):
        scattered(ax, part, _PREDICTED, "measured_us", series, markersize=3, alpha=0.7, markeredgewidth=0.2)
        values = part[[_PREDICTED, "measured_us"]].to_numpy(np.float64)
        ends = [float(values.min()) / 1.3, float(values.max()) * 1.3]
        ax.plot(ends, ends, ":", color="#808080", linewidth=0.8, zorder=1)
        for limits, axis in ((ax.set_xlim, ax.xaxis), (ax.set_ylim, ax.yaxis)):
            limits(*ends)
            log_ticks(axis, ends, 5)
        ax.set_xlabel("predicted (µs)")
        ax.set_ylabel("measured (µs)")
        ax.grid(axis="both")
    return figure
