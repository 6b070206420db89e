"""What every figure is made with: the plot and its numbers, its files, and the looks of its labels.

A plot keeps matplotlib's `Figure` and the frame of what it shows, so that a user can change the figure and test the
frame.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import StrEnum
from io import BytesIO, StringIO

import numpy as np
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from PIL import Image

from spmark.report.figures.style import COLUMN_IN, WIDTH_IN, Look, in_style, looks
from spmark.report.tables.table import csv_of

MOST_SERIES = 12
"""Labels that one figure shows: a legend of more hides the plot, and colours of more look alike."""
_NAMES = ["label", "implementation"]
_COLOURS = 256
"""Of a palette."""


@dataclass(frozen=True, eq=False)
class Plot:
    """A figure with the numbers that are drawn in it."""

    name: str
    """Stem of its files."""
    caption: str
    figure: Figure
    data: pd.DataFrame
    """One row per bar, point or step, at full precision."""
    heading: str = ""
    """What the figure shows, in a few words."""
    finding: str = ""
    """Who is ahead and by how much, in one sentence that follows from the data."""

    @in_style
    def _repr_svg_(self) -> str:
        """Show the plot in a notebook."""
        return _svg(self).decode()


class Form(StrEnum):
    """What a figure is drawn as beside its SVG for a page, where this is asked for."""

    NARROW = "narrow"
    """SVG of the same numbers, laid out for one column of a paper, or a telephone."""
    PNG = "png"
    """In pixels."""


@dataclass(frozen=True)
class Drawing:
    """A finished figure as files: the same records give the same bytes."""

    name: str
    """Stem of its files."""
    caption: str
    svg: bytes
    csv: str
    """The numbers that are drawn."""
    heading: str = ""
    """What the figure shows, in a few words."""
    finding: str = ""
    """Who is ahead and by how much, in one sentence."""
    narrow_svg: bytes = b""
    """`Form.NARROW`; empty where none was asked for."""
    png: bytes = b""
    """`Form.PNG`; empty where none was asked for."""


@in_style
def render(draw: Callable[[float], Plot], also: AbstractSet[Form] = frozenset()) -> Drawing:
    """Draw a plot for a page, and in further forms.

    Parameters
    ----------
    draw : callable
        Gives the plot for a width in inches.
    also : set of Form
        The further forms.
    """
    wide = draw(WIDTH_IN)
    svg, pixels = _svg(wide), _png(wide) if Form.PNG in also else b""
    narrow = _svg(draw(COLUMN_IN)) if Form.NARROW in also else b""
    return Drawing(wide.name, wide.caption, svg, csv_of(wide.data), wide.heading, wide.finding, narrow, pixels)


def _png(plot: Plot) -> bytes:
    """Draw pixels of a palette: a third of the bytes of true colour, and no difference that an eye sees."""
    canvas = FigureCanvasAgg(plot.figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    pixels = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")  # type: ignore[no-untyped-call]
    file = BytesIO()
    pixels.quantize(_COLOURS, dither=Image.Dither.NONE).save(file, "PNG", optimize=True)
    return file.getvalue()


def _svg(plot: Plot) -> bytes:
    # The canvas prints: `Figure.savefig` draws every figure once more to lay it out first.
    file, dpi = StringIO(), plot.figure.dpi
    plot.figure.dpi = 72
    canvas = FigureCanvasSVG(plot.figure)
    canvas.print_svg(file, metadata={"Date": None, "Creator": None})  # type: ignore[no-untyped-call]
    plot.figure.dpi = dpi
    return file.getvalue().encode()


def looks_of(frame: pd.DataFrame, sweep: pd.DataFrame | None = None, named: Sequence[str] = ()) -> dict[str, Look]:
    """Give the look of every label of a frame that is drawn: of `MOST_SERIES` at most.

    Where labels are more, those that the figure's finding names come first. Of the others, those that bear their
    implementation's name come before further configs, and those with more rows before others; the rest are `not_drawn`.

    Parameters
    ----------
    frame : DataFrame
        What the figure draws, with ``label`` and ``implementation``.
    sweep : DataFrame, optional
        All rows of the page, with the same columns: a label then looks alike in all figures of the page.
    named : sequence of str
        The labels that the figure's finding names.
    """
    rows = frame["label"].value_counts()
    of_both = frame[_NAMES] if sweep is None else pd.concat([sweep[_NAMES], frame[_NAMES]])
    every = looks(set(zip(of_both["label"], of_both["implementation"], strict=True)))
    every = {label: look for label, look in every.items() if label in rows}
    own = set(frame.loc[frame["label"] == frame["implementation"], "label"])
    chosen = sorted(every, key=lambda label: (label not in named, label not in own, -int(rows[label])))[:MOST_SERIES]
    return {label: look for label, look in every.items() if label in chosen}


def not_drawn(frame: pd.DataFrame, series: Collection[str]) -> str:
    """Say how many labels of a frame are not among the drawn ones, as the end of a caption; empty without any."""
    left_out = frame.loc[~frame["label"].isin(series), "label"].nunique()
    return f"; {left_out} further label{'s are' if left_out > 1 else ' is'} in the numbers alone" if left_out else ""
