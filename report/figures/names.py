"""Names in figures: shortened where they stay apart, and broken or turned where they would touch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import cos, radians, sin

from matplotlib.axes import Axes
from matplotlib.font_manager import FontProperties

from spmark.report.figures.ruler import measured
from spmark.report.figures.style import RC

NAME_POINTS = 8.0
_TURNED_POINTS = 7.0
_SLANT = 28
_UPRIGHT = 90
_LINE_IN = 0.13
_GAP_IN = 0.06
_LONGEST_SLANT_IN = 1.3
_PARTS = re.compile(r"(?:[^-_/@, ]| (?=[%=])|(?<==) )*[-_/@, ]?")
"""Parts that a name may be broken between: ``90 %``, ``J = 32`` and ``0.5`` stay whole."""


def text_in(text: str, points: float) -> float:
    """Give the width of a text's longest line in inches."""
    font = FontProperties(family=RC["font.family"], size=points)
    return max(measured(line, font)[0] for line in text.split("\n")) / 72


def broken(text: str, room_in: float, points: float = NAME_POINTS) -> str:
    """Break a text after its separators into lines of at most ``room_in`` inches, as far as separators allow."""
    lines = [""]
    for part in _PARTS.findall(text):
        if lines[-1] and text_in((lines[-1] + part).rstrip(), points) > room_in:
            lines.append("")
        lines[-1] += part
    return "\n".join(filter(None, map(str.strip, lines)))


def short_names(matrices: Sequence[str]) -> list[str]:
    """Leave the source out of ids where the names alone differ."""
    bare = [matrix.split("/", 1)[-1] for matrix in matrices]
    return bare if len(set(bare)) == len(bare) else list(matrices)


def names_in(matrices: Sequence[str], below: Sequence[str], room_in: float) -> float:
    """Give the height in inches that `name_groups` needs below its axes."""
    texts, turn = _texts(matrices, below, room_in)
    if not turn:
        return _LINE_IN * (1 + max((text.count("\n") for text in texts), default=0))
    return _LINE_IN + sin(radians(turn)) * max(text_in(text, _TURNED_POINTS) for text in texts)


def name_groups(ax: Axes, matrices: Sequence[str], below: Sequence[str], room_in: float) -> None:
    """Write the matrices' names, with texts below, under groups that stand ``room_in`` inches apart."""
    texts, turn = _texts(matrices, below, room_in)
    if turn:
        ax.set_xticks(
            range(len(texts)), texts, rotation=turn, ha="right", rotation_mode="anchor", fontsize=_TURNED_POINTS,
            # The last letters of a slanted name would cross the axis if their baseline ended at it.
            va="center" if turn == _UPRIGHT else "top",
        )  # fmt: skip
    else:
        ax.set_xticks(range(len(texts)), texts, fontsize=NAME_POINTS)
    ax.tick_params(axis="x", length=0)


def _texts(matrices: Sequence[str], below: Sequence[str], room_in: float) -> tuple[list[str], int]:
    """Give the names with the texts below them, and the degrees by which they must be turned."""
    names, below = short_names(matrices), [*below] or [""] * len(matrices)
    level = [broken(name, room_in - _GAP_IN) for name in names]
    if all(text_in(text, NAME_POINTS) <= room_in - _GAP_IN for text in [*level, *below]):
        lines = max((name.count("\n") for name in level), default=0) + 1
        gaps = ["\n" * (lines - name.count("\n")) for name in level]
        return ["".join(parts).rstrip("\n") for parts in zip(level, gaps, below, strict=True)], 0
    texts = [", ".join(filter(None, parts)) for parts in zip(names, below, strict=True)]
    reach_in = cos(radians(_SLANT)) * max(text_in(text, _TURNED_POINTS) for text in texts)
    fits = room_in * sin(radians(_SLANT)) >= _LINE_IN and reach_in <= _LONGEST_SLANT_IN
    return texts, _SLANT if fits else _UPRIGHT
