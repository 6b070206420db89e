"""What every figure is made with: the plot and its numbers, its files, and what panels, colours and orders are.

A plot keeps matplotlib's `Figure` and the frame of what it shows, so that a user can change the one and test the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from math import inf

import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from spmark.report.spreadsheet import csv_of
from spmark.report.style import COLUMN_IN, WIDTH_IN, Look, in_style, looks

_OPS = ("spmm", "sddmm", "sddmm-scaled", "spmm-scaled")


@dataclass(frozen=True, eq=False)
class Plot:
    """A figure with the numbers that are drawn in it."""

    name: str
    """Stem of its files."""
    caption: str
    figure: Figure
    data: pd.DataFrame
    """One row per bar, point or step, at full precision."""


@dataclass(frozen=True)
class Drawing:
    """A finished figure as files: the same records give the same bytes."""

    name: str
    """Stem of its files."""
    caption: str
    png: bytes
    svg: bytes
    narrow_svg: bytes
    """The same numbers laid out for one column of a paper, or a telephone."""
    csv: str
    """What is drawn."""


@in_style
def render(draw: Callable[[float], Plot]) -> Drawing:
    """Draw a plot at both widths.

    Parameters
    ----------
    draw : callable
        Gives the plot for a width in inches.
    """
    wide, narrow = draw(WIDTH_IN), draw(COLUMN_IN)
    # The canvases are asked, not `Figure.savefig`, which draws every figure once more to lay it out before.
    png = BytesIO()
    FigureCanvasAgg(wide.figure).print_png(png, metadata={"Software": None})  # type: ignore[no-untyped-call]
    # Laid out once: finding room for every label takes longer than drawing.
    wide.figure.set_layout_engine("none")
    return Drawing(wide.name, wide.caption, png.getvalue(), _svg(wide), _svg(narrow), csv_of(wide.data))


def _svg(plot: Plot) -> bytes:
    file = BytesIO()
    FigureCanvasSVG(plot.figure).print_svg(file, metadata={"Date": None, "Creator": None})  # type: ignore[no-untyped-call]
    return file.getvalue()


def looks_of(frame: pd.DataFrame) -> dict[str, Look]:
    """Give the look of every label of a frame."""
    return looks(set(zip(frame["label"], frame["implementation"], strict=True)))


def panels_of(frame: pd.DataFrame) -> list[tuple[tuple[str, str], pd.DataFrame]]:
    """Split a frame by op and dtype, in the order of panels."""
    panels = [((str(op), str(dtype)), part) for (op, dtype), part in frame.groupby(["op", "dtype"])]
    return sorted(panels, key=lambda panel: (_OPS.index(panel[0][0]), -int(panel[0][1].removeprefix("float"))))


def by_size(frame: pd.DataFrame) -> list[str]:
    """Give the matrices from few to many non-zeros."""
    sizes = frame.groupby("matrix")["nnz"].max().fillna(inf)
    return sorted((str(matrix) for matrix in sizes.index), key=lambda matrix: (float(sizes[matrix]), matrix))


def in_panel_order(frame: pd.DataFrame) -> pd.DataFrame:
    """Order the rows of a plot's data by op and dtype as its panels are; rows of one panel keep their order."""
    return pd.concat([part for _, part in panels_of(frame)], ignore_index=True) if len(frame) else frame
