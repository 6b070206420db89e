"""The search space: which tiles are candidates, in the paper's way and in its public code's.

Fang, Shen, Wang and Chen, "STile", SIGMOD 2024, section 3.1. The two differ: see `Mode`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.problem import Op
from spmark.impls.stile.calibration import BlockCost, Calibration
from spmark.impls.stile.state import GROUP, Price

ONE_DIMENSION = 32
"""Non-zeros of a one-dimensional tile, as in the public code."""
_SECTOR = 32
_THREADS_PER_BLOCK = 256
_THREADS_PER_SM = 2048
_WORKLOADS = (256, 128, 64, 32)
_ROWS_OF_BUCKET = 8


class Mode(StrEnum):
    """Whose search space."""

    CODE = "code"
    """The public code's: windows of 16 rows, columns never divided, block candidates made once, blocks that beat any
    ELL tile picked window by window beforehand, and the largest part of J."""
    PAPER = "paper"
    """The paper's: windows of every calibrated height, columns divided where that is cheaper, block candidates made
    anew at every level, every part of J tried."""


class Formats(StrEnum):
    """Which basic formats a plan may mix."""

    MIXED = "mixed"
    BLOCKS = "blocks"
    OTHER = "other"
    """ELL for SpMM, one-dimensional for SDDMM."""


@dataclass(frozen=True, eq=False)
class Shapes:
    """Tiles for one part of J, and what they cost."""

    part: int
    """Columns of the dense operand that a tile multiplies by (SpMM), slice of J that is summed at once (SDDMM)."""
    repeats: int
    """How often every tile is run: ceil(J / part) for SpMM; 1 for SDDMM, whose costs hold all of J."""
    heights: tuple[int, ...]
    """Rows of a block tile, highest first; empty without blocks."""
    single_ms: NDArray[np.float64]
    """(heights, shapes) a single block tile of (s + 1) 16 columns; infinite where there is none."""
    plain_ms: NDArray[np.float64]
    """(heights, shapes) the same, where nothing else adds into its rows."""
    price: Price
    """Of ELL tiles, widest first, or of the one-dimensional tile."""
    cheapest_ms: float
    """No tile that is no block costs less for each non-zero."""

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
            return workload // _ROWS_OF_BUCKET
    return _WORKLOADS[-1] // _ROWS_OF_BUCKET


def parts_of(calibration: Calibration, width: int, mode: Mode) -> tuple[int, ...]:
    """Give the task partition ways over J that are tried.

    Parameters
    ----------
    calibration : Calibration
    width : int
        J.
    mode : Mode
        The code takes the largest calibrated part up to J (the smallest if all are larger), the paper tries all.
    """
    parts = sorted({block.part for block in calibration.blocks}) or [ONE_DIMENSION]
    if mode is Mode.PAPER:
        return tuple(parts)
    fitting = [part for part in parts if part <= width]
    return (fitting[-1] if fitting else parts[0],)


def shapes_of(  # noqa: PLR0917
    calibration: Calibration, width: int, part: int, nnz: int, mode: Mode, widest: int = 0
) -> Shapes:
    """Price every tile shape.

    Parameters
    ----------
    calibration : Calibration
    width : int
        J.
    part : int
        Of `parts_of`.
    nnz : int
        Non-zeros of the matrix, for `widest_bucket`.
    mode : Mode
        The code has blocks of 16 rows only.
    widest : int
        Of ELL tiles; 0 for `widest_bucket`.
    """
    spmm = calibration.op is Op.SPMM
    held = [
        block
        for block in calibration.blocks
        if block.part == part and block.cols % GROUP == 0 and (mode is Mode.PAPER or block.rows == GROUP)
    ]
    slices = -(-width // part)
    heights = tuple(sorted({block.rows for block in held}, reverse=True))
    single = _table(held, heights, [block.atomic_ms for block in held])
    plain = _table(held, heights, [block.plain_ms for block in held])
    if not spmm:
        single, plain = single * slices, plain * slices
    itemsize = calibration.dtype.itemsize
    widest = widest or widest_bucket(nnz, calibration.num_sms)
    price = _ell(calibration, part, widest, itemsize) if spmm else _lines(calibration, width, itemsize)
    return Shapes(part, slices if spmm else 1, heights, single, plain, price, _cheapest(price))


def _table(held: list[BlockCost], heights: tuple[int, ...], costs: list[float]) -> NDArray[np.float64]:
    most = max((block.cols // GROUP for block in held), default=0)
    table = np.full((len(heights), most), np.inf)
    for block, cost in zip(held, costs, strict=True):
        table[heights.index(block.rows), block.cols // GROUP - 1] = cost
    return table


def _ell(calibration: Calibration, part: int, widest: int, itemsize: int) -> Price:
    """Price ELL tiles as table 3 does, in sectors of 32 bytes as the public code counts them."""
    widths = np.array([1 << power for power in range(widest.bit_length() - 1, -1, -1)], np.int64)
    elements = widest * _ROWS_OF_BUCKET
    rows = elements // widths
    line = sectors(part * itemsize)
    fixed = sectors(elements * itemsize) + rows * line
    flops = 2.0 * elements * part
    constants = calibration.line
    return Price(
        rows,
        widths,
        fixed.astype(np.float64),
        (rows * line).astype(np.float64),
        np.full(widths.size, flops / constants.peak),
        np.array([line, 0.0, constants.a, constants.b, constants.c, constants.d]),
    )


def _lines(calibration: Calibration, width: int, itemsize: int) -> Price:
    """Price the one-dimensional tile as table 3 does."""
    constants = calibration.line
    return Price(
        np.ones(1, np.int64),
        np.full(1, ONE_DIMENSION, np.int64),
        np.full(1, float(ONE_DIMENSION * itemsize)),
        np.zeros(1),
        np.full(1, 2.0 * ONE_DIMENSION * width / constants.peak),
        np.array([width * itemsize, width * itemsize, constants.a, constants.b, constants.c, constants.d]),
    )


def sectors(size_bytes: int) -> int:
    """Round up to whole sectors, in bytes."""
    return -(-size_bytes // _SECTOR) * _SECTOR


def _cheapest(price: Price) -> float:
    """Bound the average cost from below: full tiles whose rows have their columns in common, or a single row."""
    column_bytes, row_bytes, a, b, _, _ = price.line
    if row_bytes:
        columns = np.sqrt(price.width)  # fewest rows and columns that hold so many non-zeros
        moved = price.fixed + 2 * columns * column_bytes
    else:
        moved = price.fixed + price.width * column_bytes
    return float(np.min((a * np.maximum(moved, price.least) + b) / (price.height * price.width)))
