"""Where the time of a network's step goes: its sparse layers, and all else."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
import pandas as pd

from spmark.report.analysis.cases import in_panel_order
from spmark.report.figures import panels
from spmark.report.figures.findings import leading
from spmark.report.figures.plot import Plot
from spmark.report.figures.style import WIDTH_IN, Look, in_style

_CASE = ["op", "dtype", "matrix", "width", "label", "implementation"]
_LOOKS = MappingProxyType({"sparse layers": Look("#0268ab", "o"), "all else": Look("#9a9a9a", "s")})
_BAR_IN = 0.19
_TITLE_SHARE = 0.55
"""Of a panel's width: a title begins behind the labels."""


def steps_of(derived: pd.DataFrame) -> pd.DataFrame:
    """Keep the timed cases of networks, whose sparse layers were timed, too."""
    return derived[derived["median_us"].notna() & derived["sparse_us"].notna()]


@in_style
def step_parts(derived: pd.DataFrame, width_in: float = WIDTH_IN) -> Plot:
    """Draw the time of a step, and in it that of its sparse layers alone, a panel for each network.

    Parameters
    ----------
    derived : DataFrame
        As `spmark.report.analysis.cases.derive` gives it; `steps_of` of it must not be empty.
    width_in : float
        Width of the figure in inches.
    """
    rows = steps_of(derived)
    data = in_panel_order(rows[[*_CASE, "median_us", "sparse_us", "sparse_share"]])
    cells = list(data.groupby(["op", "dtype", "matrix", "width"], sort=False))
    most = max(len(part) for _, part in cells)
    figure, axes = panels.grid(len(cells), _LOOKS, "bars", width_in, 0.7 + _BAR_IN * most)
    for ax, ((op, dtype, matrix, _), part) in zip(axes, cells, strict=True):
        place, sparse = np.arange(len(part)), np.minimum(part["sparse_us"], part["median_us"]) * 1e-3
        for left, length, look in (
            (0.0, sparse, _LOOKS["sparse layers"]),
            (sparse, part["median_us"] * 1e-3 - sparse, _LOOKS["all else"]),
        ):
            ax.barh(place, length, left=left, height=0.8, color=look.colour, edgecolor="black", linewidth=0.3)
        ax.set_yticks(place, part["label"], fontsize=7)
        ax.invert_yaxis()
        ax.set_xlabel("a step (ms)")
        title = panels.wrapped(f"{op}, {dtype}: {matrix}", _TITLE_SHARE * panels.panel_room_in(width_in))
        ax.set_title(title, loc="left", fontsize=8)
    finding = leading(rows, "median_us", "takes the shortest steps", lambda us: f"{us / 1e3:.3g} ms", less=True)
    caption = (
        "Median time of a step, and how much of it the sparse layers take that were timed alone, with their gradients "
        "where the step takes them."
    )
    return Plot("step-parts", caption, figure, data, "Sparse layers in the time of a step", finding.text)
