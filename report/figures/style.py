"""How figures look: fonts, sizes, and the colour, marker and hatch that ``looks.yaml`` gives an implementation.

Colours of implementations that are drawn together can be told apart with the common forms of colour blindness (tested
with the simulation of Machado, Oliveira and Fernandes, IEEE TVCG 2009); markers and the order of bars tell them apart,
too.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import wraps
from importlib.resources import files
from typing import Any, ParamSpec, TypeVar

from matplotlib import rc_context, rc_params_from_file
from matplotlib.colors import to_hex, to_rgb

from spmark.impls.core.errors import RecordError
from spmark.impls.core.plainyaml import parse_yaml

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
WIDTH_IN = 7.0
"""Width of a page's text block: two columns of a paper."""
COLUMN_IN = 3.5
"""Width of one column of a paper, and of a telephone: letters of 8 points are 13 pixels high on 400 pixels."""
DPI = 200
LEAST_CONTRAST = 3.0
"""Of every colour against the white of a figure, which pages keep in their dark scheme."""
_DARK = 4.5
"""Contrast against white of a dark colour: a black hatch would not be seen, and there is room for paler shades."""
RC = rc_params_from_file(str(files("spmark.report").joinpath("figures.mplstyle")), use_default_template=False)
"""Settings of matplotlib out of ``figures.mplstyle``, with fonts that come with it."""


def in_style(draw: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Run a drawing function with `RC`, whatever the user's own settings of matplotlib are."""

    @wraps(draw)
    def drawn(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        with rc_context(dict(RC)):
            return draw(*args, **kwargs)

    return drawn


@dataclass(frozen=True)
class Look:
    """Colour (hex), marker and hatch of one series."""

    colour: str
    marker: str
    hatch: str = ""

    @property
    def edge(self) -> str:
        """Give the colour of a bar's edge, which is also its hatch's: white on hatched bars that are dark."""
        return "white" if self.hatch and contrast(self.colour) > _DARK else "black"


_NAMED = files("spmark.report").joinpath("looks.yaml").read_text(encoding="utf-8")
LOOKS: Mapping[str, Look] = {
    name: Look(**look) for name, look in parse_yaml(_NAMED, "report/looks.yaml", RecordError).items()
}
"""Looks of implementations, and of labels with a look of their own, out of ``looks.yaml``, in the order of legends."""
_SPARE = tuple(
    Look(colour, marker)
    for colour, marker in zip(("#882255", "#4a8fb8", "#117733", "#e0607a", "#8a8a2e", "#aa4499"), "hp8Ho^", strict=True)
)
_HATCHES = ("", "////", "\\\\\\\\", "xxxx", "----", "||||")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
"""Hatches and markers of further labels of one implementation."""
DASHES: Mapping[str, Any] = dict(
    zip(_HATCHES, ("-", "--", ":", "-.", (0, (6, 1, 1, 1, 1, 1)), (0, (1, 3))), strict=True)
)
"""How a line is drawn, by the hatch of its look."""


def looks(series: Iterable[tuple[str, str]]) -> dict[str, Look]:
    """Give every label its look, in the order of legends.

    Parameters
    ----------
    series : iterable of (label, implementation)
        What a figure shows. Labels that `LOOKS` does not name are paler or darker than their implementation, and
        hatched, with markers and dashes of their own; an implementation that `LOOKS` does not know takes a spare look
        by the digest of its name, the next free one where two meet.

    Returns
    -------
    dict
        Look by label: known names first, as in `LOOKS`, the others by name; further labels of an implementation by
        name and by the numbers in it, after the implementation's own name.
    """
    by_name: dict[str, set[str]] = {}
    for label, implementation in series:
        by_name.setdefault(label if label in LOOKS else implementation, set()).add(label)
    unknown = sorted(by_name.keys() - LOOKS.keys())
    base = {name: LOOKS[name] for name in LOOKS if name in by_name} | _spare(unknown)
    return {
        label: _variant(look, position)
        for name, look in base.items()
        for position, label in enumerate(_own_name_first(name, by_name[name]))
    }


def _own_name_first(name: str, labels: set[str]) -> list[str]:
    return [name] * (name in labels) + sorted(labels - {name}, key=by_numbers)


def by_numbers(label: str) -> list[tuple[int, str]]:
    """Give the key that sorts numbers within labels by their value: width 2 comes before width 16."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", label)]


def _spare(names: Iterable[str]) -> dict[str, Look]:
    taken: dict[int, str] = {}
    for name in names:
        start = int(hashlib.sha256(name.encode()).hexdigest(), 16)
        slots = [(start + step) % len(_SPARE) for step in range(len(_SPARE))]
        taken.setdefault(next((slot for slot in slots if slot not in taken), start), name)
    return {name: _SPARE[slot % len(_SPARE)] for slot, name in taken.items()}


def _variant(look: Look, position: int) -> Look:
    if position == 0:
        return look
    # Odd positions of a dark colour are paler, as far as the contrast allows; all others are darker.
    dark = contrast(look.colour) > _DARK
    share = 1 - 0.7 ** min(-(-position // 2) if dark else position, 3)
    shades = [_mixed(look.colour, position % 2 if dark else 0, share * step / 10) for step in range(10, -1, -1)]
    colour = next((shade for shade in shades if contrast(shade) >= LEAST_CONTRAST), look.colour)
    others = [marker for marker in _MARKERS if marker != look.marker]
    # The hatch goes one further with every round of markers, so that no two labels share both.
    hatch = position + position // len(others)
    return Look(colour, others[position % len(others)], _HATCHES[hatch % len(_HATCHES)])


def _mixed(colour: str, channel: float, share: float) -> str:
    """Mix a share of black (0) or white (1) into a colour."""
    red, green, blue = (own + (channel - own) * share for own in to_rgb(colour))
    return to_hex((red, green, blue))


def contrast(colour: str, background: str = "#ffffff") -> float:
    """Give the contrast of two colours, from 1 to 21 (WCAG 2.2, success criterion 1.4.11)."""
    low, high = sorted(map(_luminance, (colour, background)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    linear = (own / 12.92 if own <= 0.04045 else ((own + 0.055) / 1.055) ** 2.4 for own in to_rgb(colour))
    return sum(weight * own for weight, own in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
