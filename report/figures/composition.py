"""The composition of a plan: which store serves the non-zeros of each place of a matrix, beside the spy plot.

Below stand bars of the stores' shares: of the non-zeros, of what is stored with its padding, and of the time where a
cost model prices each store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter
from numpy.typing import NDArray

from spmark.impls.core.stores import Store, StoreKind, Stores
from spmark.report.figures.plot import Plot
from spmark.report.figures.spy import binned, draw_bins, share_of_cells, slimness_of
from spmark.report.figures.style import COLUMN_IN, DPI, WIDTH_IN, in_style

MOST_BINS = 96
"""Bins of the longer side: more would make a page of several pictures heavy."""
_MAPS: Mapping[StoreKind, tuple[str, float, float]] = {
    StoreKind.BLOCK: ("Blues", 0.95, 0.6),
    StoreKind.BUCKET: ("YlOrRd", 0.6, 1.0),
    StoreKind.ROW: ("Greens", 0.68, 0.95),
    StoreKind.LITERAL: ("RdPu", 0.65, 0.95),
}
"""Of each kind a colour map, and where the shades of its first and last store stand in the map; no shade is pale."""
_PADDING: Any = {"facecolor": "white", "edgecolor": "#8a8a8a", "hatch": "////"}
_SHADES = 8
_BAR_IN = 0.27
_LEGEND_IN = 0.2
_LETTER_IN = 0.075


def store_counts(
    shape: tuple[int, int],
    indptr: NDArray[np.int32],
    indices: NDArray[np.int32],
    stores: Stores,
    most: int = MOST_BINS,
) -> NDArray[np.int64]:
    """Count the non-zeros of each store in bins of a grid.

    Parameters
    ----------
    shape, indptr, indices, most
        As `spmark.report.figures.spy.spy_counts` takes them; ``indices`` in the order of ``stores.store_of``.
    stores : Stores

    Returns
    -------
    (r, c, s) int64
        The sum over the s stores is `spmark.report.figures.spy.spy_counts`. O(nnz + r c s).
    """
    across, each = min(shape[1], most), len(stores.parts)
    rows = [
        np.bincount(bins.astype(np.int64) * each + stores.store_of[span], minlength=across * each)
        for span, bins in binned(shape, indptr, indices, most)
    ]
    return np.array(rows, np.int64).reshape(len(rows), across, each)


@in_style
def composition(
    name: str,
    stores: Stores,
    counts: NDArray[np.int64],
    shape: tuple[int, int],
    width_in: float = WIDTH_IN,
) -> Plot:
    """Draw the spy plot, the composition and the bars of shares.

    Parameters
    ----------
    name : str
        Of the implementation, for the caption and the name of the files.
    stores : Stores
    counts : (r, c, s) int64
        As `store_counts` gives them.
    shape : tuple of int
        (I, K).
    width_in : float
        Width of the figure in inches.
    """
    data, colours = shares_of(stores), store_colours(stores.parts)
    narrow = width_in <= COLUMN_IN
    bars = ["nnz_share", "stored_share", *(["time_share"] if data["time_share"].notna().any() else [])]
    longest = max(map(len, [*data["store"], "padding"]))
    columns = max(1, int(width_in / (0.35 + _LETTER_IN * longest)))
    lines = -(-(len(data) + 1) // columns)
    side_in = (width_in - 0.9) if narrow else (width_in - 1.6) / 2
    heights = [side_in * min(1.0, slimness_of(shape))] * (2 if narrow else 1)
    heights = [*heights, _BAR_IN * len(bars), _LEGEND_IN * lines]
    figure = Figure(figsize=(width_in, sum(heights) + 0.55 * len(heights)), dpi=DPI, layout="constrained")
    grid = GridSpec(len(heights), 1 if narrow else 2, figure, height_ratios=heights)
    spy, drawn = figure.add_subplot(grid[0, 0]), figure.add_subplot(grid[1, 0] if narrow else grid[0, 1])
    draw_bins(spy, share_of_cells(counts.sum(axis=2), shape), shape, shades=_SHADES)
    draw_bins(drawn, _painted(counts, colours), shape)
    spy.set_title("non-zeros, darker where denser")
    drawn.set_title("served by")
    for ax in (spy, drawn):
        ax.set_box_aspect(slimness_of(shape) if slimness_of(shape) <= 1 else None)
    if not narrow:
        drawn.set_ylabel("")
        drawn.tick_params(axis="y", labelleft=False)
    _draw_bars(figure.add_subplot(grid[-2, :]), data, bars, colours)
    legend = figure.add_subplot(grid[-1, :])
    legend.axis("off")
    handles = [Patch(color=colour, label=store) for colour, store in zip(colours, data["store"], strict=True)]
    if stores.padding > 0:
        handles.append(Patch(label="padding", **_PADDING))
    legend.legend(handles=handles, ncols=columns, loc="center", borderaxespad=0, handlelength=1.2, columnspacing=1.2)
    caption = (
        f"{name}: {stores.nnz:,} non-zeros in {counts.shape[0]} x {counts.shape[1]} bins. A bin has the colour of the "
        f"store that serves most of its non-zeros. Stored are {stores.stored:,} elements, a padding of "
        f"{stores.padding:.1%}."
    )
    if "time_share" not in bars:
        caption += " No model tells the time of each store." if len(stores.parts) > 1 else " One store takes all time."
    finding = ""
    if stores.nnz:
        most = data[data["nnz"] == data["nnz"].max()]
        tie = ", a tie" if len(most) > 1 else ""
        finding = f"Most non-zeros, {most['nnz_share'].iloc[0]:.0%}, are in {' and '.join(most['store'])}{tie}."
    return Plot(f"composition-{name}", caption, figure, data, f"Which store of {name} serves which non-zeros", finding)


def shares_of(stores: Stores) -> pd.DataFrame:
    """Give the numbers of the bars.

    Returns
    -------
    DataFrame
        A row for each store: ``kind, store, nnz, nnz_share, stored, stored_share, padding, predicted_s, time_share``.
        Shares are of the sums over all stores; ``padding`` is padded elements over non-zeros, infinite without these.
        Times are NaN where no model prices a store.
    """
    nnz, stored = max(stores.nnz, 1), max(stores.stored, 1)
    priced = [np.nan if part.predicted_s is None else part.predicted_s for part in stores.parts]
    spent_s = float(np.sum(priced)) or np.nan
    rows = [
        {
            "kind": str(part.kind), "store": part.name, "nnz": part.nnz, "nnz_share": part.nnz / nnz,
            "stored": part.stored, "stored_share": part.stored / stored,
            "padding": part.stored / part.nnz - 1 if part.nnz else np.inf,
            "predicted_s": seconds, "time_share": seconds / spent_s,
        }
        for part, seconds in zip(stores.parts, priced, strict=True)
    ]  # fmt: skip
    columns = (
        "kind", "store", "nnz", "nnz_share", "stored", "stored_share", "padding", "predicted_s", "time_share",
    )  # fmt: skip
    return pd.DataFrame(rows, columns=list(columns))


def store_colours(parts: Sequence[Store]) -> list[str]:
    """Give each store a shade of its kind's colour, in hex."""
    colours = []
    for part in parts:
        name, first, last = _MAPS[part.kind]
        alike = [other for other in parts if other.kind is part.kind]
        step = alike.index(part) / max(len(alike) - 1, 1)
        colours.append(to_hex(colormaps[name](first + (last - first) * step)))
    return colours


def _painted(counts: NDArray[np.int64], colours: Sequence[str]) -> NDArray[np.float64]:
    """Give each bin the colour of the store with most of its non-zeros, (r, c, 3); empty bins are white."""
    table = np.array([[1.0, 1.0, 1.0], *([int(c[at : at + 2], 16) / 255 for at in (1, 3, 5)] for c in colours)])
    if not colours:
        return np.ones((*counts.shape[:2], 3))
    image: NDArray[np.float64] = table[np.where(counts.any(axis=2), counts.argmax(axis=2) + 1, 0)]
    return image


def _draw_bars(ax: Axes, data: pd.DataFrame, bars: Sequence[str], colours: Sequence[str]) -> None:
    """Draw a bar for each share, the stores side by side; padding stands behind the store that it belongs to."""
    names = {"nnz_share": "non-zeros", "stored_share": "stored", "time_share": "predicted time"}
    for place, bar in enumerate(bars):
        left = 0.0
        for share, real, colour in zip(data[bar], data["nnz"] / data["stored"], colours, strict=True):
            filled = share * real if bar == "stored_share" else share
            ax.barh(place, filled, left=left, color=colour, height=0.7)
            if filled < share:
                ax.barh(place, share - filled, left=left + filled, height=0.7, linewidth=0, **_PADDING)
            left += share
    ax.set_yticks(range(len(bars)), [names[bar] for bar in bars])
    ax.invert_yaxis()
    ax.set_xlim(0, 1)
    ax.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    ax.tick_params(axis="y", length=0)
