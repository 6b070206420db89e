"""How figures look: fonts, sizes and one fixed colour, marker and hatch for every implementation.

Colours of implementations that are drawn together can be told apart with the common forms of colour blindness (tested
with the simulation of Machado, Oliveira and Fernandes, IEEE TVCG 2009); markers and the order of bars say it again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import wraps
from types import MappingProxyType
from typing import Any, ParamSpec, TypeVar

from matplotlib import rc_context
from matplotlib.colors import to_hex, to_rgb

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
WIDTH_IN = 7.0
"""Width of a page's text block: two columns of a paper."""
COLUMN_IN = 3.5
"""Width of one column of a paper, and of a telephone: letters of 8 points are 13 pixels high where it is 400 wide."""
DPI = 200
RC: Any = MappingProxyType(
    {
        "font.family": "DejaVu Sans", "font.size": 8.5, "axes.titlesize": 9, "axes.labelsize": 8.5,
        "xtick.labelsize": 8, "ytick.labelsize": 8, "legend.fontsize": 8.5, "axes.linewidth": 0.6,
        "xtick.major.width": 0.6, "ytick.major.width": 0.6, "axes.spines.top": False, "axes.spines.right": False,
        "axes.axisbelow": True, "axes.titley": 1.0, "grid.linewidth": 0.4, "grid.color": "#d5d5d5",
        "hatch.linewidth": 0.6,
        "lines.linewidth": 1.2, "lines.markersize": 4.5, "legend.frameon": False, "figure.facecolor": "white",
        "savefig.facecolor": "white", "svg.fonttype": "path", "svg.hashsalt": "spmark", "path.simplify": False,
        "text.parse_math": False,
    }
)  # fmt: skip
"""Settings of matplotlib; fonts are those that it brings along. A title's height is given: looking for one that is free
of tick labels, which stand below, takes a tenth of the time."""


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


LOOKS: Mapping[str, Look] = MappingProxyType(
    {
        "cusparse_best": Look("#4d4d4d", "s"),
        "cusparse": Look("#c8c8c8", "D"),
        "cublas": Look("#f0e442", "P"),
        "gespmm": Look("#56b4e9", "o"),
        "dgl": Look("#7b3f00", "X"),
        "sparsetir": Look("#e69f00", "v"),
        "stile": Look("#0072b2", "^"),
        "liteform": Look("#009e73", "<"),
        "lo_spmm": Look("#cc79a7", ">"),
        "dash": Look("#d55e00", "d"),
        "auto": Look("#000000", "*"),
        "rowsplit": Look("#ff00ff", "8"),
        "nnzbalanced": Look("#b2df8a", "p"),
        "triton_blocksparse": Look("#000080", "h"),
        "cusparse_bell": Look("#9a9a9a", "D", "////"),
        "cusparse_bsr": Look("#e3e3e3", "d", "...."),
        "sparsetir_nohyb": Look("#f7d9a0", "<", "////"),
        "sparsetir_bsr": Look("#ffc14d", "p", "...."),
        "sparsetir_dbsr": Look("#b37700", "h", "xxxx"),
        "sparsetir_srbcrs": Look("#805500", "8", "----"),
        "sparsetir_composed": Look("#523700", "H", "||||"),
        "scipy_cpu": Look("#8c8c8c", "s"),
        "numba_cpu": Look("#332288", "o"),
        "blas_cpu": Look("#ddcc77", "P"),
    }
)
"""Implementations in the order of legends; baselines are grey, and those of one family have shades and hatches of one
colour."""
_SPARE = tuple(
    Look(colour, marker)
    for colour, marker in (
        ("#882255", "h"),
        ("#88ccee", "p"),
        ("#117733", "8"),
        ("#ff9da7", "H"),
        ("#999933", "o"),
        ("#aa4499", "^"),
    )
)
_HATCHES = ("", "////", "....", "xxxx", "----", "||||")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
"""Of further labels of one implementation."""
DASHES: Mapping[str, Any] = MappingProxyType(
    dict(zip(_HATCHES, ("-", "--", ":", "-.", (0, (6, 1, 1, 1, 1, 1)), (0, (1, 3))), strict=True))
)
"""How a line is drawn, by the hatch of its look."""


def looks(series: Iterable[tuple[str, str]]) -> dict[str, Look]:
    """Give every label its look, in the order of legends.

    Parameters
    ----------
    series : iterable of (label, implementation)
        What a figure shows. Further labels of one implementation are paler and hatched, with markers and dashes of
        their own; an implementation that `LOOKS` does not know takes a spare look by the digest of its name, the next
        free one where two meet.

    Returns
    -------
    dict
        Look by label: known implementations first, as in `LOOKS`, the others by name; labels of one by name, the
        implementation's own name first.
    """
    by_implementation: dict[str, set[str]] = {}
    for label, implementation in series:
        by_implementation.setdefault(implementation, set()).add(label)
    unknown = sorted(by_implementation.keys() - LOOKS.keys())
    base = {name: LOOKS[name] for name in LOOKS if name in by_implementation} | _spare(unknown)
    return {
        label: _variant(look, position)
        for name, look in base.items()
        for position, label in enumerate(_own_name_first(name, by_implementation[name]))
    }


def _own_name_first(name: str, labels: set[str]) -> list[str]:
    return [name] * (name in labels) + sorted(labels - {name})


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
    paleness = 1 - 0.7 ** min(position, 4)
    red, green, blue = (channel + (1 - channel) * paleness for channel in to_rgb(look.colour))
    others = [marker for marker in _MARKERS if marker != look.marker]
    return Look(to_hex((red, green, blue)), others[position % len(others)], _HATCHES[position % len(_HATCHES)])
