"""What a matrix and a plan of it look like: a spy plot, lengths of rows and columns, and which store serves what.

All work on arrays, so that a user can draw any pattern; counting walks the non-zeros once. Below a plan's picture stand
bars of the stores' shares: of the non-zeros, of what is stored with its padding, and of the time where a cost model
prices each store.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps, colors, ticker
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Patch
from numpy.typing import NDArray

from spmark.impls.core.problem import Csr
from spmark.impls.core.stores import Store, StoreKind, Stores
from spmark.report.figures.findings import counted
from spmark.report.figures.panels import LETTER_IN, log_ticks, said, wrapped
from spmark.report.figures.plot import Plot
from spmark.report.figures.style import COLUMN_IN, DPI, WIDTH_IN, in_style

MOST_BINS = 320
"""Bins of the longer side of a spy plot."""
MOST_STORE_BINS = 96
"""Bins of the longer side of a composition: more would make a page of several pictures heavy."""
_SLIMMEST = 1 / 4
"""Least ratio of the drawn sides: slimmer matrices are drawn with this ratio."""
_LEAST_IN = 1.9
"""Least height of a spy plot: the name of its colours has room there."""
_PALEST = 0.41
"""Where the colours of bins begin in their map: paler ones would fade into the white of empty bins."""
_SIDES: Mapping[str, Any] = {
    "rows": {"color": "#0072b2", "marker": "o", "markeredgecolor": "black", "markeredgewidth": 0.4},
    # Columns are hollow and dashed: in a symmetric pattern they stand where the rows stand.
    "columns": {"color": "#d55e00", "marker": "s", "markerfacecolor": "none", "markersize": 7, "linestyle": "--"},
}
_MAPS: Mapping[StoreKind, tuple[str, float, float]] = {
    StoreKind.BLOCK: ("Blues", 0.95, 0.6),
    StoreKind.BUCKET: ("YlOrRd", 0.6, 1.0),
    StoreKind.ROW: ("Greens", 0.68, 0.95),
    StoreKind.LITERAL: ("RdPu", 0.65, 0.95),
}
"""Of each kind a colour map, and where the shades of its first and last store stand in the map; no shade is pale."""
_PADDING: Any = {"facecolor": "white", "edgecolor": "#8a8a8a", "hatch": "////"}
_BARS = {"nnz_share": "non-zeros", "stored_share": "stored"}


def spy_counts(
    shape: tuple[int, int], indptr: NDArray[np.int32], indices: NDArray[np.int32], most: int = MOST_BINS
) -> NDArray[np.int64]:
    """Count non-zeros in bins of a grid.

    Parameters
    ----------
    shape : tuple of int
        (I, K).
    indptr, indices : (I + 1,) and (nnz,) int32
        A CSR's. Any order of columns in a row.
    most : int
        Bins of a side; a shorter side has one per row or column.

    Returns
    -------
    (r, c) int64
        Row bin b holds the rows from ``b I // r`` to ``(b + 1) I // r``, columns alike. O(nnz + K) time; scratch
        memory is that of one row bin's non-zeros.
    """
    across = min(shape[1], most)
    return np.array(
        [np.bincount(bins, minlength=across) for _, bins in _binned(shape, indptr, indices, most)], np.int64
    )


def store_counts(matrix: Csr, stores: Stores, most: int = MOST_STORE_BINS) -> NDArray[np.int64]:
    """Count the non-zeros of each store in bins of a grid.

    Parameters
    ----------
    matrix : Csr
        Its non-zeros are in the order of ``stores.store_of``.
    stores : Stores
    most : int
        As `spy_counts` takes it.

    Returns
    -------
    (r, c, s) int64
        The sum over the s stores is `spy_counts`. O(nnz + r c s).
    """
    across, each = min(matrix.num_cols, most), len(stores.parts)
    rows = [
        np.bincount(bins.astype(np.int64) * each + stores.store_of[span], minlength=across * each)
        for span, bins in _binned(matrix.shape, matrix.indptr, matrix.indices, most)
    ]
    return np.array(rows, np.int64).reshape(len(rows), across, each)


def _binned(
    shape: tuple[int, int], indptr: NDArray[np.int32], indices: NDArray[np.int32], most: int
) -> Iterator[tuple[slice, NDArray[np.int16]]]:
    """Give, for each row bin of `spy_counts`, the span of its non-zeros in CSR order, and the column bin of each."""
    (num_rows, num_cols), (down, across) = shape, (min(n, most) for n in shape)
    # A row bin's non-zeros are contiguous. A table gives the bin of a column, which is faster than a division.
    bin_of = np.repeat(np.arange(across, dtype=np.int16), np.diff(_edges(num_cols, across)))
    for start, stop in pairwise(indptr[_edges(num_rows, down)]):
        yield slice(start, stop), bin_of[indices[start:stop]]


def _edges(length: int, bins: int) -> NDArray[np.int64]:
    return np.arange(bins + 1, dtype=np.int64) * length // bins


@in_style
def spy(counts: NDArray[np.int64], shape: tuple[int, int], width_in: float = WIDTH_IN) -> Plot:
    """Draw where the non-zeros are.

    Parameters
    ----------
    counts : (r, c) int64
        As `spy_counts` gives them.
    shape : tuple of int
        (I, K).
    width_in : float
        Width of the figure in inches.
    """
    slimness, side_in = _slimness(shape), min(width_in, 5.0) - 1.4
    width, height = side_in / max(slimness, 1), side_in * min(slimness, 1)
    figure = Figure(figsize=(min(width_in, width + 1.7), max(height + 0.7, _LEAST_IN)), dpi=DPI, layout="constrained")
    ax = figure.subplots()
    drawn = _draw_bins(ax, counts, shape)
    bar = figure.colorbar(drawn, ax=ax, shrink=0.9, pad=0.02)
    log_ticks(bar.ax.yaxis)
    bar.set_label(wrapped("share of cells that are non-zero", 0.8 * (figure.get_figheight() - 0.5)))
    bar.outline.set_visible(False)
    rows, cols = (_edges(length, bins) for length, bins in zip(shape, counts.shape, strict=True))
    down, across = np.nonzero(counts)
    ends = {"row": rows[down], "row_end": rows[down + 1], "col": cols[across], "col_end": cols[across + 1]}
    data = pd.DataFrame(ends | {"nnz": counts[down, across]})
    caption = f"Non-zeros of {shape[0]:,} x {shape[1]:,} in {counts.shape[0]} x {counts.shape[1]} bins (white: empty)."
    empty, cells = float((counts == 0).mean()), int(shape[0]) * int(shape[1])
    finding = f"{counts.sum() / cells:.2g} of all cells are non-zero, and {empty:.0%} of the bins are empty."
    return Plot("spy", caption, figure, data, "Where the non-zeros are", finding)


def _slimness(shape: tuple[int, int]) -> float:
    """Give height over width of a drawn matrix (I, K)."""
    return float(np.clip(shape[0] / shape[1], _SLIMMEST, 1 / _SLIMMEST))


def _draw_bins(ax: Axes, counts: NDArray[np.int64], shape: tuple[int, int], shades: int = 256) -> AxesImage:
    """Draw the share of the cells of each bin that are non-zero, in as many shades: few make a small file."""
    rows, cols = (np.diff(_edges(length, bins)) for length, bins in zip(shape, counts.shape, strict=True))
    share = np.where(counts > 0, counts / np.outer(rows, cols), np.nan)
    lowest = float(np.nanmin(share, initial=0.5))
    colours = colors.ListedColormap(colormaps["viridis_r"](np.linspace(_PALEST, 1, shades)))
    greatest = max(float(np.nanmax(share, initial=0)), 2 * lowest)
    return _show(ax, share, shape, cmap=colours, norm=colors.LogNorm(lowest, greatest))


def _show(ax: Axes, image: NDArray[Any], shape: tuple[int, int], **look: Any) -> AxesImage:
    """Draw an image of a matrix (I, K) with rows and columns at its axes."""
    # An SVG then holds a pixel for each bin, and the viewer enlarges it without smoothing.
    drawn = ax.imshow(image, aspect="auto", extent=(0, shape[1], shape[0], 0), interpolation="none", **look)
    ax.spines[["top", "right"]].set_visible(True)
    ax.set(xlabel="column", ylabel="row")
    for axis, slim in ((ax.xaxis, _slimness(shape) >= 2), (ax.yaxis, _slimness(shape) <= 1 / 2)):
        axis.set_major_locator(ticker.MaxNLocator(2 if slim else 5))
        axis.set_major_formatter(ticker.FuncFormatter(lambda place, _: said(place)))
    return drawn


@in_style
def degree_histogram(
    row_lengths: NDArray[np.integer], col_lengths: NDArray[np.integer], width_in: float = WIDTH_IN
) -> Plot:
    """Draw histograms of the lengths of rows and columns, in bins that double.

    Parameters
    ----------
    row_lengths, col_lengths : (I,) and (K,) integers
        Non-zeros of each row and column.
    width_in : float
        Width of the figure in inches.
    """
    data = pd.concat([_doubling("rows", row_lengths), _doubling("columns", col_lengths)], ignore_index=True)
    figure = Figure(figsize=(width_in, min(2.6, width_in * 0.7)), dpi=DPI, layout="constrained")
    ax = figure.subplots()
    for side, look in _SIDES.items():
        part = data[(data["of"] == side) & (data["count"] > 0)]
        # Empty rows stand left of 1, where a logarithmic axis has no zero.
        place = np.where(part["longest"] == 0, 0.5, np.sqrt(np.maximum(part["shortest"], 1) * part["longest"]))
        ax.plot(place, part["count"], label=side, **look)
    ax.set(xscale="log", yscale="log", xlabel="non-zeros in it", ylabel="number")
    for axis in (ax.xaxis, ax.yaxis):
        log_ticks(axis)
    if (data.loc[data["longest"] == 0, "count"] > 0).any():
        ax.axvspan(ax.get_xlim()[0], 0.71, color="#f3f3f3", zorder=-1, linewidth=0)
        ax.text(0.5, 1.01, "empty", transform=ax.get_xaxis_transform(), ha="center", va="bottom", fontsize=7)
    ax.grid()
    figure.legend(loc="outside upper center", ncols=2)
    caption = "Rows and columns by their non-zeros, in bins from a power of two to the next (grey: empty ones)."
    finding = " ".join(
        f"The longest {one} has {counted(int(lengths.max()), 'non-zero')}, the median one {np.median(lengths):g}."
        for one, lengths in (("row", row_lengths), ("column", col_lengths))
        if lengths.size
    )
    return Plot("degrees", caption, figure, data, "Lengths of rows and columns", finding)


def _doubling(side: str, lengths: NDArray[np.integer]) -> pd.DataFrame:
    """Count lengths of 0, 1, 2 to 3, 4 to 7 and so on."""
    counts = np.bincount(np.frexp(lengths.astype(np.float64))[1], minlength=1)
    bins = np.arange(counts.size)
    shortest = np.where(bins > 0, 2 ** np.maximum(bins - 1, 0), 0)
    return pd.DataFrame({"of": side, "shortest": shortest, "longest": 2**bins - 1, "count": counts})


@in_style
def composition(
    name: str, stores: Stores, counts: NDArray[np.int64], shape: tuple[int, int], width_in: float = WIDTH_IN
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
    narrow, slimness = width_in <= COLUMN_IN, min(1.0, _slimness(shape))
    side_in = slimness * ((width_in - 0.9) if narrow else (width_in - 1.6) / 2)
    heights = [*[side_in] * (2 if narrow else 1), 0.27 * len(_BARS)]
    handles = [Patch(color=colour, label=store) for colour, store in zip(colours, data["store"], strict=True)]
    handles += [Patch(label="padding", **_PADDING)] * bool(stores.padding > 0)
    columns = max(1, int(width_in / (0.5 + LETTER_IN * max(map(len, [*data["store"], "padding"])))))
    legend_in = 0.2 * -(-len(handles) // columns)
    figure = Figure(figsize=(width_in, sum(heights) + 0.55 * len(heights) + legend_in), dpi=DPI, layout="constrained")
    panels: Any = [["spy"], ["served"], ["bars"]] if narrow else [["spy", "served"], ["bars", "bars"]]
    axes = figure.subplot_mosaic(panels, height_ratios=heights)
    _draw_bins(axes["spy"], counts.sum(axis=2), shape, shades=8)
    # A bin has the colour of the store with most of its non-zeros; empty bins are white.
    table = np.array([(1.0, 1.0, 1.0), *map(colors.to_rgb, colours)])
    most_of = counts.argmax(axis=2) + 1 if colours else 0
    _show(axes["served"], table[np.where(counts.any(axis=2), most_of, 0)], shape)
    axes["spy"].set_title("non-zeros, darker where denser")
    axes["served"].set_title("served by")
    if not narrow:
        axes["served"].set_ylabel("")
        axes["served"].tick_params(axis="y", labelleft=False)
    _draw_bars(axes["bars"], data, colours)
    figure.legend(handles=handles, ncols=columns, loc="outside lower center", handlelength=1.2, columnspacing=1.2)
    caption = (
        f"{name}: {stores.nnz:,} non-zeros in {counts.shape[0]} x {counts.shape[1]} bins, each in the colour of the "
        f"store that serves most of it, as {stores.stored:,} stored elements, a padding of "
        f"{stores.padding:.1%}."
    )
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
        A row for each store: ``kind, store, nnz, nnz_share, stored, stored_share, padding``.
        Shares are of the sums over all stores; ``padding`` is padded elements over non-zeros, infinite without these.
    """
    parts = [(str(part.kind), part.name, part.nnz, part.stored) for part in stores.parts]
    data = pd.DataFrame(parts, columns=["kind", "store", "nnz", "stored"])
    data.insert(3, "nnz_share", data["nnz"] / max(stores.nnz, 1))
    data.insert(5, "stored_share", data["stored"] / max(stores.stored, 1))
    return data.assign(padding=data["stored"] / data["nnz"] - 1)


def store_colours(parts: Sequence[Store]) -> list[str]:
    """Give each store a shade of its kind's colour, in hex."""
    colours = []
    for part in parts:
        name, first, last = _MAPS[part.kind]
        alike = [other for other in parts if other.kind is part.kind]
        step = alike.index(part) / max(len(alike) - 1, 1)
        colours.append(colors.to_hex(colormaps[name](first + (last - first) * step)))
    return colours


def _draw_bars(ax: Axes, data: pd.DataFrame, colours: Sequence[str]) -> None:
    """Draw a bar for each share, the stores side by side; padding stands behind the store that it belongs to."""
    for place, bar in enumerate(_BARS):
        left = data[bar].cumsum() - data[bar]
        filled = data[bar] * (data["nnz"] / data["stored"] if bar == "stored_share" else 1)
        padded = filled < data[bar]
        ax.barh(place, data[bar][padded], left=left[padded], height=0.7, linewidth=0, **_PADDING)
        ax.barh(place, filled, left=left, height=0.7, color=list(colours))
    ax.set_yticks(range(len(_BARS)), list(_BARS.values()))
    ax.invert_yaxis()
    ax.set_xlim(0, 1)
    ax.xaxis.set_major_formatter(ticker.PercentFormatter(1, decimals=0))
    ax.tick_params(axis="y", length=0)
