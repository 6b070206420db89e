"""Bars of a figure, out of the collections that draw them."""

from __future__ import annotations

from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex


class Bar(NamedTuple):
    """One bar: its colour (hex), its centre, and its lower and upper end."""

    colour: str
    x: float
    low: float
    high: float


def bars_of(ax: Axes) -> list[Bar]:
    """Give the bars of a panel, label by label."""
    drawn = [collection for collection in ax.collections if isinstance(collection, PolyCollection)]
    corners = [(to_hex(of.get_facecolor()[0]), path.vertices) for of in drawn for path in of.get_paths()]
    return [Bar(colour, at[:4, 0].mean(), at[:, 1].min(), at[:, 1].max()) for colour, at in corners]
