"""The search space: which tiles are candidates and by which rules they are picked, for the paper and its public code.

Fang, Shen, Wang and Chen, "STile", SIGMOD 2024, section 3.1. Paper and code differ: see `SearchMode`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.errors import check_choices
from spmark.impls.core.problem import Op
from spmark.impls.formats.tiles import GROUP
from spmark.impls.stile.calibration import Calibration
from spmark.impls.stile.prices import ONE_DIMENSION, ROWS_OF_BUCKET, Price, cheapest_ms, ell_price, run_price

_THREADS_PER_BLOCK = 256
_THREADS_PER_SM = 2048
_WORKLOADS = (256, 128, 64, 32)


class SearchMode(StrEnum):
    """Whose search space."""

    CODE = "code"
    """The public code's: windows of 16 rows, columns never divided, and the largest part of J. Block candidates are
    made once; blocks that beat any ELL tile are picked window by window beforehand."""
    PAPER = "paper"
    """The paper's: windows of every calibrated height, columns divided where that is cheaper, and every part of J.
    Block candidates are made anew at every level, and the local search takes tiles of every shape."""


class Formats(StrEnum):
    """Which basic formats a plan may mix."""

    MIXED = "mixed"
    BLOCKS = "blocks"
    OTHER = "other"
    """ELL for SpMM, one-dimensional for SDDMM."""


class ResultOrder(StrEnum):
    """The order in which SDDMM leaves its result."""

    CSR = "csr"
    TILES = "tiles"
    """Tile after tile, as in the public code, but without the zeros of blocks; without blocks the order is `CSR`."""


@dataclass(frozen=True)
class Rules:
    """How to search: the tunables of `spmark.impls.stile.plan.Stile` that the search reads."""

    mode: str = SearchMode.CODE
    """Whose search space: that of the public ``code`` or that of the ``paper``."""
    formats: str = Formats.MIXED
    """``mixed`` compares mixtures with either format alone; ``blocks`` or ``other`` (ELL, one-dimensional) pins one."""
    levels: int = 0
    """Most levels of regrouping; 0 for no limit, as published."""
    withdraw: bool = True
    """Let whole windows replace the tiles that were picked in them."""
    local_search: float = 0.2
    """r - 1: how much more than the best candidate others may cost to be picked with it; 0 picks one a round."""
    rearrange: bool = True
    """Search the non-zeros that blocks leave once more where another order of rows makes them much denser."""
    keep_mixture: bool = False
    """Keep the mixture that the search finds, with all of its levels, however fast it is: neither format alone, nor
    wider rows compete. The device then chooses the schedule alone."""

    def __post_init__(self) -> None:
        check_choices(self, mode=SearchMode, formats=Formats)
        if not self.local_search >= 0:
            raise ValueError(f"expected local_search of at least 0, found {self.local_search}")
        if self.levels < 0:
            raise ValueError(f"expected a number of levels, or 0 for no limit, found {self.levels}")
        if self.keep_mixture and self.formats != Formats.MIXED:
            raise ValueError(f"expected formats: mixed with keep_mixture, found {self.formats}")


@dataclass(frozen=True, eq=False)
class Shapes:
    """Tiles for one part of J, and their costs."""

    ell: bool
    """SpMM: light tiles are ELL, and windows can be held whole. Else SDDMM, whose light tiles are one-dimensional."""
    part: int
    """Columns of the dense operand that a tile multiplies by (SpMM), slice of J that is summed at once (SDDMM)."""
    repeats: int
    """How often every tile is run: ceil(J / part) for SpMM; 1 for SDDMM, whose costs include all of J."""
    heights: tuple[int, ...]
    """Rows of a block tile, highest first; empty without blocks."""
    single_ms: NDArray[np.float64]
    """(heights, shapes) cost of a single block tile of (s + 1) 16 columns; infinite where it was not measured."""
    plain_ms: NDArray[np.float64]
    """(heights, shapes) its cost where no other tile adds into its rows."""
    price: Price
    """Costs of light tiles: of ELL tiles, widest first, or of the one-dimensional tile."""
    cheapest_ms: float
    """Least cost for each non-zero that a light tile can have."""

    @property
    def widest(self) -> int:
        """Most non-zeros of a row of an ELL tile."""
        return int(self.price.width[0])


def widest_bucket(nnz: int, num_sms: int) -> int:
    """Give the widest ELL tile: so wide that enough thread blocks remain, as the public code estimates it.

    Parameters
    ----------
    nnz : int
    num_sms : int

    Returns
    -------
    int
        4, 8, 16 or 32; a tile holds eight times as many elements.
    """
    least = 0.5 * _THREADS_PER_SM / _THREADS_PER_BLOCK
    for workload in _WORKLOADS:
        if nnz / (workload / 2) / num_sms >= least:
            return workload // ROWS_OF_BUCKET
    return _WORKLOADS[-1] // ROWS_OF_BUCKET


def parts_of(calibration: Calibration, width: int, mode: str) -> tuple[int, ...]:
    """Give the widths of the parts of J that are tried (the paper's task partition).

    Parameters
    ----------
    calibration : Calibration
    width : int
        J.
    mode : SearchMode
        The code takes the largest calibrated part up to J (the smallest if all are larger), the paper tries all.
    """
    parts = sorted({block.part for block in calibration.blocks}) or [ONE_DIMENSION]
    if mode == SearchMode.PAPER:
        return tuple(parts)
    fitting = [part for part in parts if part <= width]
    return (fitting[-1] if fitting else parts[0],)


def shapes_of(  # noqa: PLR0917
    calibration: Calibration, width: int, part: int, nnz: int, mode: str, widest: int = 0
) -> Shapes:
    """Price every tile shape.

    Parameters
    ----------
    calibration : Calibration
    width : int
        J.
    part : int
        One of `parts_of`.
    nnz : int
        Non-zeros of the matrix, for `widest_bucket`.
    mode : SearchMode
        The code has blocks of 16 rows only.
    widest : int
        Widest ELL tile; 0 for `widest_bucket`.
    """
    spmm, slices = calibration.op is Op.SPMM, -(-width // part)
    blocks = [
        block
        for block in calibration.blocks
        if block.part == part and block.cols % GROUP == 0 and (mode == SearchMode.PAPER or block.rows == GROUP)
    ]
    heights = tuple(sorted({block.rows for block in blocks}, reverse=True))
    single, plain = np.full((2, len(heights), max((block.cols // GROUP for block in blocks), default=0)), np.inf)
    for block in blocks:
        at = heights.index(block.rows), block.cols // GROUP - 1
        single[at], plain[at] = block.atomic_ms, block.plain_ms
    if not spmm:
        single, plain = single * slices, plain * slices
    widest = widest or widest_bucket(nnz, calibration.num_sms)
    price = ell_price(calibration, part, widest) if spmm else run_price(calibration, width)
    return Shapes(spmm, part, slices if spmm else 1, heights, single, plain, price, cheapest_ms(price))
