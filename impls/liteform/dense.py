"""Windows of rows in dense pieces on the matrix unit: where rows that stand together share many columns, in float16.

LiteForm names buckets that are dense, which tensor cores would compute faster, as its first limitation (Peng,
Thomadakis, Pienaar and Kestor, HPDC 2025). Here a window is 16 rows that stand together, and a piece has 16 of the
window's columns: the window reads a row of B once for all of its rows. A matrix is in pieces as a whole. Plans with
some windows in pieces and the other rows in buckets were slower than buckets alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.problem import Csr, DType, Problem
from spmark.impls.formats.nearness import near_order
from spmark.impls.formats.threads import SHARE, cores, run_all, with_scratch
from spmark.impls.formats.tile_loops import count_panel_columns
from spmark.impls.formats.tiles import BLOCK, GROUP, Selection
from spmark.impls.kernels.tile_spmm import HEIGHT
from spmark.impls.liteform.composition import BucketOrder
from spmark.impls.runtime.target import ceil_div

MOST_TRIED: Final = 0.5
"""Most rows of B that windows read for a non-zero where both ways are run; buckets read one."""
MOST_READS: Final = 0.25
"""Most rows of B that windows read for a non-zero where pieces are expected to win."""
LEAST_LOADS: Final = 1 << 23
"""Least non-zeros times J where pieces are expected to win: a smaller product starts up more than it computes.

Both bounds are from `liteform_dense_fit`, 34 matrices of the tuning half, seeded ones and masks at three J."""
_FULL: Final = 8
"""Warps of a multiprocessor from which on one warp takes a window by itself; before, four warps share long windows."""
_FEW, _MANY = 4, 16
"""Pieces that one warp takes by itself in either case."""
_SAMPLED = 32
"""Windows of rows that `pays` looks at first."""
_COLUMNS = 8
"""J is a multiple of this where the matrix unit computes."""
_NARROW, _ACROSS = 32, 64
"""J up to which a warp has half as many columns of C, and how many it has beyond."""


class Dense(StrEnum):
    """Whether the matrix unit computes windows of rows in dense pieces."""

    NEVER = "never"
    PREDICTED = "predicted"
    """Where `pays` says so."""
    MEASURED = "measured"
    """Where both ways, run on the GPU while building, say that it is faster; nowhere without a GPU."""
    ALWAYS = "always"


@dataclass(frozen=True, eq=False)
class RowWindows:
    """The windows of a matrix, for one order of rows."""

    order: BucketOrder
    """Given or gathered."""
    of: NDArray[np.int32]
    """(I,) the window that each row stands in."""
    rows: NDArray[np.int32]
    """(windows, `HEIGHT`) rows of each window, -1 after the last."""
    reads: float
    """Rows of B that all windows read for a non-zero, 1 for a matrix without non-zeros."""


def refusal(problem: Problem) -> str | None:
    """Say why dense pieces cannot be computed, or None: matrix units take float16 and eight columns at a time."""
    if problem.dtype is DType.FLOAT16 and problem.width % _COLUMNS == 0:
        return None
    return f"expected float16 and J a multiple of {_COLUMNS} for dense pieces, found {problem.dtype}, {problem.width}"


def windows_of(matrix: Csr, order: BucketOrder = BucketOrder.AUTO) -> RowWindows:
    """Cut the rows into windows, in A's order or the gathered one.

    Parameters
    ----------
    matrix : Csr
    order : BucketOrder
        `BucketOrder.AUTO` takes the order in which windows read fewer rows of B.

    Returns
    -------
    RowWindows
        O(nnz + K) time in A's order, and 4 nnz bytes of scratch beside 4 K a core; gathering rows costs more
        (`spmark.impls.formats.nearness`).
    """
    if order is BucketOrder.AUTO:
        return min(
            (windows_of(matrix, one) for one in (BucketOrder.GIVEN, BucketOrder.GATHERED)), key=lambda each: each.reads
        )
    num_rows = matrix.num_rows
    places = np.arange(num_rows, dtype=np.int32)
    row_at = places if order is BucketOrder.GIVEN else near_order(matrix).rows
    of = np.empty(num_rows, np.int32)
    of[row_at] = places // HEIGHT
    rows = np.append(row_at, np.full(-num_rows % HEIGHT, -1, np.int32)).reshape(-1, HEIGHT)
    placed = matrix if order is BucketOrder.GIVEN else matrix.of_rows(row_at)[0]
    pieces = -(-_columns_of_windows(placed) // GROUP)
    return RowWindows(order, of, rows, float(pieces.sum()) * GROUP / matrix.nnz if matrix.nnz else 1.0)


def _columns_of_windows(matrix: Csr) -> NDArray[np.int64]:
    """Count the distinct columns of each window, in the order of the matrix."""
    windows = ceil_div(matrix.num_rows, HEIGHT)
    ptr = np.append(matrix.indptr[:-1:HEIGHT], matrix.nnz).astype(np.int64)
    every = np.arange(matrix.nnz, dtype=np.int32)
    columns = np.zeros(windows, np.int64)
    tasks = with_scratch(min(cores(), ceil_div(matrix.nnz, SHARE)), 4 * matrix.num_cols)
    bounds = np.linspace(0, windows, tasks + 1).astype(np.int64).tolist()

    def counted(first: int, stop: int) -> None:
        seen = np.full(matrix.num_cols, -1, np.int32)
        count_panel_columns(matrix.indices, every, ptr, first, stop, seen, columns)

    run_all(counted, pairwise(bounds))
    return columns


def pays(matrix: Csr, width: int) -> bool:
    """Tell whether windows in A's order read few rows of B, in a product that is large enough.

    Parameters
    ----------
    matrix : Csr
        Evenly spread windows are asked first: O(I + K) time for most matrices, O(nnz + K) where these read little.
    width : int
        J.
    """
    if matrix.nnz * width < LEAST_LOADS:
        return False
    windows = ceil_div(matrix.num_rows, HEIGHT)
    chosen = np.unique(np.linspace(0, windows - 1, min(windows, _SAMPLED)).astype(np.int64))
    rows = (chosen[:, np.newaxis] * HEIGHT + np.arange(HEIGHT)).ravel()
    some, _ = matrix.of_rows(rows[rows < matrix.num_rows])  # only the last window can be cut off
    return all(windows_of(part, BucketOrder.GIVEN).reads <= MOST_READS for part in (some, matrix))


def selection_of(matrix: Csr, windows: RowWindows) -> Selection:
    """Say that the non-zeros of a window stand in its tile of blocks.

    Parameters
    ----------
    matrix : Csr
    windows : RowWindows

    Returns
    -------
    Selection
        Input of `spmark.impls.formats.tiles.TileFormat.from_csr`. O(nnz + windows).
    """
    held = np.bincount(windows.of, matrix.row_lengths, windows.rows.shape[0])
    used = np.flatnonzero(held)
    tile = np.zeros(held.size, np.int32)
    tile[used] = np.arange(used.size, dtype=np.int32)
    return Selection(
        owner=np.repeat(tile[windows.of], matrix.row_lengths),
        kind=np.full(used.size, BLOCK, np.int8),
        height=np.full(used.size, HEIGHT, np.int32),
        width=np.full(used.size, GROUP, np.int32),
        window=used.astype(np.int32),
        window_rows=windows.rows,
    )


def alone_of(windows: int, width: int, num_sms: int) -> int:
    """Give how many pieces of a window one warp takes by itself: many where windows alone keep a GPU busy.

    Parameters
    ----------
    windows : int
    width : int
        J.
    num_sms : int
    """
    warps = windows * ceil_div(width, _NARROW if width <= _NARROW else _ACROSS)
    return _MANY if warps >= _FULL * num_sms else _FEW
