"""Widths of texts, measured once: figures of a report have most of their labels in common."""

from __future__ import annotations

from functools import lru_cache
from io import StringIO
from typing import Any

from matplotlib.backend_bases import RendererBase
from matplotlib.backends.backend_svg import RendererSVG
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextToPath

_POINTS_AN_INCH = 72
Extent = tuple[float, float, float]
"""Width, height and descent."""


@lru_cache(maxsize=1 << 15)
def measured(text: str, font: FontProperties, ismath: Any = False) -> Extent:
    """Give the extent of a line in points, as an SVG has it."""
    width, height, descent = TextToPath().get_text_width_height_descent(text, font, ismath)
    return float(width), float(height), float(descent)


class Ruler(RendererBase):
    """Measures texts and draws nothing: what finds room for labels needs no more."""

    def __init__(self, dpi: float) -> None:
        super().__init__()
        self._scale = dpi / _POINTS_AN_INCH

    def points_to_pixels(self, points: Any) -> Any:
        """Give pixels."""
        return points * self._scale

    def get_text_width_height_descent(self, s: str, prop: FontProperties, ismath: Any) -> Extent:
        """Give the extent of a line in pixels."""
        width, height, descent = measured(s, prop, ismath)
        return width * self._scale, height * self._scale, descent * self._scale


class RememberingSVG(RendererSVG):
    """Writes an SVG and measures a text only if no figure before had the same."""

    def __init__(self, width: float, height: float, file: StringIO, dpi: float) -> None:
        metadata = {"Date": None, "Creator": None}
        super().__init__(width, height, file, image_dpi=dpi, metadata=metadata)  # type: ignore[no-untyped-call]

    def get_text_width_height_descent(self, s: str, prop: FontProperties, ismath: Any) -> Extent:
        """Give the extent of a line in points."""
        return measured(s, prop, ismath)
