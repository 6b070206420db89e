"""The costs of light tiles: by the roofline's line, or by a small network that was trained on measured tiles.

Fang, Shen, Wang and Chen, "STile", SIGMOD 2024, section 3.2, table 3, and section 5.6 for the network. Both models
depend on a tile's shape and on how many rows and columns the tile names. A search therefore reads tables and takes
equally long with either model.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from spmark.impls.stile.calibration import SECTOR, Calibration

ONE_DIMENSION = 32
"""Non-zeros of a one-dimensional tile, as in the public code."""
ROWS_OF_BUCKET = 8
"""Rows of the widest ELL tile; ELL tiles of all widths hold equally many elements."""


class Price(NamedTuple):
    """Costs of light tiles, by shape and by how many rows and columns they name."""

    height: Any
    """(S,) int64 rows."""
    width: Any
    """(S,) int64 non-zeros of a row."""
    plain_ms: Any
    """(S, rows + 1, columns + 1) float64 milliseconds without atomic additions; (S, 1, columns + 1) where rows make no
    difference. Costs at 0 rows or columns are 0: no tile names so few."""
    atomic_ms: Any
    """Milliseconds with atomic additions, in the shape of ``plain_ms``."""


class Pricing(StrEnum):
    """The model that predicts the time of light tiles."""

    LINE = "line"
    """The roofline: a straight line through measured tiles."""
    MLP = "mlp"
    """A network: layers of 64 and 32, as in the public code."""


def sectors(size_bytes: int) -> int:
    """Round up to whole sectors, in bytes."""
    return -(-size_bytes // SECTOR) * SECTOR


def ell_bytes(
    tile: tuple[int, int, ArrayLike, int], itemsize: int, peak: float, atomic: bool, read_bytes: float = SECTOR
) -> NDArray[np.float64]:
    """Give R of an ELL tile of table 3, in sectors of 32 bytes as the public code counts them.

    The least bytes of a read are our own addition: a row of B of half a cache line costs as much as a whole line.

    Parameters
    ----------
    tile : tuple
        Its rows and their width, the different columns that it names (a number, or (n,)), and the columns of the dense
        operand.
    itemsize : int
        Bytes of an element.
    peak : float
        Flops for each byte.
    atomic : bool
        Whether the result is added atomically.
    read_bytes : float
        Least bytes that count for a row of B.
    """
    rows, width, columns, part = tile
    line = sectors(part * itemsize)
    read = np.asarray(columns, np.float64) * max(line, read_bytes)
    moved = sectors(rows * width * itemsize) + read + rows * (1 + atomic) * line
    return np.maximum(moved, 2.0 * rows * width * part / peak)


def run_bytes(rows: ArrayLike, columns: ArrayLike, width: int, itemsize: int, peak: float) -> NDArray[np.float64]:
    """Give R of a one-dimensional tile of table 3 that names so many rows and columns, for J = ``width``."""
    named = np.asarray(rows, np.float64) + np.asarray(columns, np.float64)
    return np.maximum((named * width + ONE_DIMENSION) * itemsize, 2.0 * ONE_DIMENSION * width / peak)


def features(  # noqa: PLR0917
    height: ArrayLike, width: ArrayLike, rows: ArrayLike, columns: ArrayLike, part: ArrayLike, roof_bytes: ArrayLike
) -> NDArray[np.float64]:
    """Give the network's inputs, (n, 6): logarithms of a tile's shape, of its rows and columns, of J and of R.

    Parameters
    ----------
    height, width : int, or (n,)
        Shape; 1 and 32 of a one-dimensional tile.
    rows, columns : (n,)
        Different ones that the tile names.
    part : int, or (n,)
        Columns of the dense operand (SpMM), or J (SDDMM).
    roof_bytes : (n,)
        `ell_bytes` or `run_bytes`.
    """
    given = np.broadcast_arrays(height, width, rows, columns, part, roof_bytes)
    return np.log2(np.stack([np.asarray(one, np.float64).reshape(-1) for one in given], axis=1))


def ell_price(calibration: Calibration, part: int, widest: int) -> Price:
    """Price ELL tiles of all widths by the columns that they name, the widest first. O(e log e) for e elements a tile.

    Parameters
    ----------
    calibration : Calibration
        Its networks predict, where it has any; otherwise its line.
    part : int
        Columns of the dense operand.
    widest : int
        Most non-zeros of a row, a power of two.
    """
    widths = np.array([1 << power for power in range(widest.bit_length() - 1, -1, -1)], np.int64)
    elements, line = widest * ROWS_OF_BUCKET, calibration.line
    columns = np.arange(1, elements + 1)
    costs = np.zeros((2, widths.size, 1, elements + 1))
    for s, width in enumerate(widths.tolist()):
        rows = elements // width
        shape, itemsize = (rows, width, columns, part), calibration.dtype.itemsize
        roof = [ell_bytes(shape, itemsize, line.peak, atomic, line.read_bytes) for atomic in (False, True)]
        costs[:, s, 0, 1:] = _costs(calibration, roof, (rows, width, rows, columns, part))
    return Price(elements // widths, widths, costs[0], costs[1])


def run_price(calibration: Calibration, width: int) -> Price:
    """Price the one-dimensional tile by the rows and columns that it names, for J = ``width``."""
    rows, columns = (axis.reshape(-1) for axis in np.indices((ONE_DIMENSION, ONE_DIMENSION)) + 1)
    roof = run_bytes(rows, columns, width, calibration.dtype.itemsize, calibration.line.peak)
    costs = np.zeros((1, ONE_DIMENSION + 1, ONE_DIMENSION + 1))
    plain, _ = _costs(calibration, [roof], (1, ONE_DIMENSION, rows, columns, width))
    costs[0, 1:, 1:] = plain.reshape(ONE_DIMENSION, ONE_DIMENSION)
    return Price(np.ones(1, np.int64), np.full(1, ONE_DIMENSION, np.int64), costs, costs)


def _costs(
    calibration: Calibration, roofs: list[NDArray[np.float64]], tile: tuple[int, int, ArrayLike, ArrayLike, int]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Give milliseconds without and with atomic additions, which never make a tile cheaper.

    ``roofs`` are R without and (SpMM) with atomic additions, ``tile`` the other arguments of `features`.
    """
    line, nets = calibration.line, calibration.nets
    if nets:
        by_net = [net.milliseconds(features(*tile, roof)) for net, roof in zip(nets, roofs, strict=True)]
        return by_net[0], np.maximum(by_net[0], by_net[-1])
    plain = line.a * roofs[0] + line.b
    return plain, plain * np.maximum(1.0, line.c * roofs[-1] / roofs[0] + line.d)


def cheapest_ms(price: Price) -> float:
    """Bound every tile's cost for each non-zero from below: its rows and columns bound the non-zeros of a tile."""
    by_columns = price.plain_ms.shape[1] == 1
    height, width = price.height[:, None, None], price.width[:, None, None]
    costs = price.plain_ms[:, 0 if by_columns else 1 :, 1:]
    rows, columns = (1 + np.arange(size) for size in costs.shape[1:])
    most = np.minimum(height * width, (height if by_columns else rows[:, None]) * np.minimum(columns, width))
    return float(np.min(costs / most))
