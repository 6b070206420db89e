"""Bars of a figure, out of the patches that draw them."""

from __future__ import annotations

from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.colors import to_hex


class Bar(NamedTuple):
    """One bar: its colour (hex), its centre, and its lower and upper end."""

    colour: str
    x: float
    low: float
    high: float


def bars_of(ax: Axes) -> list[Bar]:
    """Give the bars of a panel, label by label."""
    boxes = [(to_hex(patch.get_facecolor()), patch.get_bbox()) for bars in ax.containers for patch in bars]
    return [Bar(colour, (box.x0 + box.x1) / 2, box.ymin, box.ymax) for colour, box in boxes]
