"""What a matrix looks like: a binned spy plot, and histograms of the lengths of rows and columns.

Both work on arrays, so that a user can draw any pattern; counting walks the non-zeros once.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray

from spmark.report.figures.findings import counted
from spmark.report.figures.names import broken
from spmark.report.figures.panels import log_ticks, said
from spmark.report.figures.plot import Plot
from spmark.report.figures.style import DPI, WIDTH_IN, in_style

MOST_BINS = 320
"""Bins of the longer side."""
_SLIMMEST = 1 / 4
"""Least ratio of the drawn sides: slimmer matrices are drawn with this ratio."""
_LEAST_IN = 1.9
"""Least height of a spy plot: the name of its colours has room there."""
_PALEST = 0.41
"""Where the colours of bins begin in their map: paler ones would fade into the white of empty bins."""
_ROWS: Any = {"color": "#0072b2", "marker": "o", "markeredgecolor": "black", "markeredgewidth": 0.4}
_COLS: Any = {"color": "#d55e00", "marker": "s", "markerfacecolor": "none", "markersize": 7, "linestyle": "--"}


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
    rows = [np.bincount(bins, minlength=across) for _, bins in binned(shape, indptr, indices, most)]
    return np.array(rows, np.int64)


def binned(
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
    rows, cols = (_edges(length, bins) for length, bins in zip(shape, counts.shape, strict=True))
    share = share_of_cells(counts, shape)
    slimness = slimness_of(shape)
    side_in = min(width_in, 5.0) - 1.4
    width, height = (side_in, side_in * slimness) if slimness <= 1 else (side_in / slimness, side_in)
    figure = Figure(figsize=(min(width_in, width + 1.7), max(height + 0.7, _LEAST_IN)), dpi=DPI, layout="constrained")
    ax = figure.subplots()
    lowest = float(share[share > 0].min(initial=1.0))
    drawn = draw_bins(ax, share, shape)
    ax.set_box_aspect(height / width)
    bar = figure.colorbar(drawn, ax=ax, shrink=0.9, pad=0.02)
    log_ticks(bar.ax.yaxis, [min(lowest, 0.5), 1.0])
    bar.set_label(broken("share of cells that are non-zero", 0.8 * (figure.get_figheight() - 0.5)))
    bar.outline.set_visible(False)
    down, across = np.nonzero(counts)
    data = pd.DataFrame(
        {
            "row": rows[down], "row_end": rows[down + 1], "col": cols[across], "col_end": cols[across + 1],
            "nnz": counts[down, across],
        }
    )  # fmt: skip
    caption = (
        f"Non-zeros of {shape[0]:,} x {shape[1]:,} in {counts.shape[0]} x {counts.shape[1]} bins; white bins are empty."
    )
    empty, cells = float((counts == 0).mean()), int(shape[0]) * int(shape[1])
    finding = f"{counts.sum() / cells:.2g} of all cells are non-zero, and {empty:.0%} of the bins are empty."
    return Plot("spy", caption, figure, data, "Where the non-zeros are", finding)


def share_of_cells(counts: NDArray[np.int64], shape: tuple[int, int]) -> NDArray[np.float64]:
    """Give the share of the cells of each bin that are non-zero, like ``counts`` (r, c)."""
    rows, cols = (np.diff(_edges(length, bins)) for length, bins in zip(shape, counts.shape, strict=True))
    share: NDArray[np.float64] = counts / np.outer(rows, cols)
    return share


def slimness_of(shape: tuple[int, int]) -> float:
    """Give height over width of a drawn matrix (I, K)."""
    return float(np.clip(shape[0] / shape[1], _SLIMMEST, 1 / _SLIMMEST))


def draw_bins(ax: Axes, image: NDArray[Any], shape: tuple[int, int], shades: int = 0) -> AxesImage:
    """Draw bins of a matrix with rows and columns at its axes.

    Parameters
    ----------
    ax : Axes
    image : (r, c) float64, or (r, c, 3) float64
        Shares of cells that are non-zero, 0 drawn white; or colours.
    shape : tuple of int
        (I, K).
    shades : int
        Colours between the least share and the greatest, where few make a small file; 0 has all, up to a share of 1.
    """
    look: dict[str, Any] = {}
    if image.ndim == 2:
        lowest = min(float(image[image > 0].min(initial=1.0)), 0.5)
        greatest = max(float(image.max(initial=0)), 1.01 * lowest) if shades else 1.0
        colours = ListedColormap(colormaps["viridis_r"](np.linspace(_PALEST, 1, shades or 256)))
        look = {"cmap": colours, "norm": LogNorm(lowest, greatest)}
        image = np.where(image > 0, image, np.nan)
    extent = (0, shape[1], shape[0], 0)
    # An SVG then holds a pixel for each bin, and the viewer enlarges it without smoothing.
    drawn = ax.imshow(image, aspect="auto", extent=extent, interpolation="none", **look)
    ax.spines[["top", "right"]].set_visible(True)
    ax.set_xlabel("column")
    ax.set_ylabel("row")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda place, _: said(place)))
    slimness = slimness_of(shape)
    ax.locator_params(axis="x", nbins=5 if slimness < 2 else 2)
    ax.locator_params(axis="y", nbins=5 if slimness > 1 / 2 else 2)
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
    # Columns are hollow and dashed: in a symmetric pattern they stand where the rows stand.
    for side, look in (("rows", _ROWS), ("columns", _COLS)):
        part = data[(data["of"] == side) & (data["count"] > 0)]
        # Empty rows stand left of 1, where a logarithmic axis has no zero.
        place = np.where(part["longest"] == 0, 0.5, np.sqrt(np.maximum(part["shortest"], 1) * part["longest"]))
        ax.plot(place, part["count"], label=side, **look)
    ax.set_xscale("log")
    ax.set_yscale("log")
    log_ticks(ax.xaxis, ax.get_xlim())
    log_ticks(ax.yaxis, ax.get_ylim())
    if (data.loc[data["longest"] == 0, "count"] > 0).any():
        ax.axvspan(ax.get_xlim()[0], 0.71, color="#f3f3f3", zorder=-1, linewidth=0)
        ax.text(0.5, 1.01, "empty", transform=ax.get_xaxis_transform(), ha="center", va="bottom", fontsize=7)
    ax.grid()
    ax.set_xlabel("non-zeros in it")
    ax.set_ylabel("number")
    figure.legend(loc="outside upper center", ncols=2)
    caption = (
        "Rows and columns by their non-zeros, in bins from a power of two to the next; empty ones stand on their own."
    )
    finding = " ".join(
        f"The longest {one} has {counted(int(lengths.max()), 'non-zero')}, the median one {np.median(lengths):g}."
        for one, lengths in (("row", row_lengths), ("column", col_lengths))
        if lengths.size
    )
    return Plot("degrees", caption, figure, data, "Lengths of rows and columns", finding)


def _doubling(side: str, lengths: NDArray[np.integer]) -> pd.DataFrame:
    """Count lengths of 0, 1, 2 to 3, 4 to 7 and so on."""
    exponents = np.frexp(lengths.astype(np.float64))[1]
    counts = np.bincount(exponents, minlength=1)
    bins = np.arange(counts.size)
    shortest = np.where(bins > 0, 2 ** np.maximum(bins - 1, 0), 0)
    return pd.DataFrame({"of": side, "shortest": shortest, "longest": 2**bins - 1, "count": counts})
