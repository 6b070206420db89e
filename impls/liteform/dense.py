"""Dense pieces of CELL on the matrix unit: where rows that stand together share many columns, in float16.

LiteForm names buckets that are dense, which tensor cores would compute faster, as its first limitation (Peng,
Thomadakis, Pienaar and Kestor, HPDC 2025). Here a piece is 16 rows that stand together by 16 of the columns that most
of these rows share. Pieces that are full enough leave the buckets, and one grid computes both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.problem import Csr, DType, Problem
from spmark.impls.formats.decompose import split
from spmark.impls.formats.tiles import BLOCK, ELL, GROUP, Selection
from spmark.impls.kernels.tile_spmm import HEIGHT, SPMM_TILES
from spmark.impls.liteform.schedule import CellSchedule

LEAST_FULL: Final = 0.25
"""A piece with a smaller share of non-zeros stays in buckets: it would read a row of B for less than four non-zeros."""
LEAST_SHARE: Final = 0.1
"""Least share of all non-zeros in dense pieces for which pieces are tried: with less, a second kind of work in the grid
gains nothing."""
_HALF_FULL, _MOST = 0.5, 0.5
"""How full a piece must be to pay, and the least share of the non-zeros in such pieces. On an H200 three masks above
this share gained 1.5 to 4.3 times, while each of three matrices below it lost at some J."""
_SAMPLED = 32
"""Windows of rows that `pays` looks at."""
_COLUMNS = 8
"""J is a multiple of this where the matrix unit computes."""
_NARROW = 32


class Dense(StrEnum):
    """Whether dense pieces leave the buckets."""

    NEVER = "never"
    PREDICTED = "predicted"
    """Where `pays` says so."""
    MEASURED = "measured"
    """Where both ways, run on the GPU while building, say that it is faster; nowhere without a GPU."""
    ALWAYS = "always"


@dataclass(frozen=True, eq=False)
class DensePieces:
    """Non-zeros in dense pieces, for one order of rows."""

    taken: NDArray[np.bool_]
    """(nnz,) whether a non-zero, in CSR order, is in a dense piece."""
    window_of: NDArray[np.int32]
    """(I,) the window of `HEIGHT` rows that each row stands in."""
    window_rows: NDArray[np.int32]
    """(windows, `HEIGHT`) rows of each window, -1 after the last."""

    @property
    def share(self) -> float:
        """Share of all non-zeros that is in dense pieces; 0 for a matrix without non-zeros."""
        return float(self.taken.mean()) if self.taken.size else 0.0


def refusal(problem: Problem) -> str | None:
    """Say why dense pieces cannot be computed, or None: matrix units take float16 and eight columns at a time."""
    if problem.dtype is DType.FLOAT16 and problem.width % _COLUMNS == 0:
        return None
    return f"expected float16 and J a multiple of {_COLUMNS} for dense pieces, found {problem.dtype}, {problem.width}"


def dense_pieces(matrix: Csr, order: NDArray[np.int32] | None = None, least_full: float = LEAST_FULL) -> DensePieces:
    """Find the pieces of 16 rows by 16 columns that are full enough.

    Parameters
    ----------
    matrix : Csr
    order : (I,) int32, optional
        Row of A at every place; by default A's order.
    least_full : float
        Least share of non-zeros in a piece.

    Returns
    -------
    DensePieces
        In each window of 16 places the 16 columns with most non-zeros make the first piece, the next 16 the second.
        O(nnz log nnz) time, 40 bytes a non-zero of scratch.
    """
    num_rows, num_cols = matrix.shape
    if order is None:
        order = np.arange(num_rows, dtype=np.int32)
    window_of = np.empty(num_rows, np.int32)
    window_of[order] = np.arange(num_rows, dtype=np.int32) // HEIGHT
    window_rows = np.append(order, np.full(-num_rows % HEIGHT, -1, np.int32)).reshape(-1, HEIGHT)

    keys = window_of[matrix.rows_of_entries()].astype(np.int64) * num_cols + matrix.indices
    columns, column_of, counts = np.unique(keys, return_inverse=True, return_counts=True)
    windows = columns // num_cols
    fullest = np.lexsort((-counts, windows))  # stable, so that the result is the same everywhere
    starts = np.flatnonzero(np.diff(windows, prepend=-1))
    place = np.arange(columns.size) - np.repeat(starts, np.diff(starts, append=columns.size))
    piece = np.cumsum(place % GROUP == 0) - 1
    sizes = np.bincount(piece, counts[fullest])
    full = np.empty(columns.size, np.bool_)
    full[fullest] = sizes[piece] >= least_full * HEIGHT * GROUP
    return DensePieces(full[column_of], window_of, window_rows)


def pays(matrix: Csr) -> bool:
    """Tell from evenly spread windows of rows, in A's order, whether most non-zeros are in pieces that are half full.

    Parameters
    ----------
    matrix : Csr
        O(I) time, and O(n log n) for the n non-zeros of at most 32 windows.
    """
    windows = -(-matrix.num_rows // HEIGHT)
    chosen = np.unique(np.linspace(0, windows - 1, min(windows, _SAMPLED)).astype(np.int64))
    rows = (chosen[:, np.newaxis] * HEIGHT + np.arange(HEIGHT)).ravel()
    rows = rows[rows < matrix.num_rows]  # only the last window can be cut off, so that the others stay whole
    some, _ = matrix.of_rows(rows)
    return dense_pieces(some, least_full=_HALF_FULL).share >= _MOST


def rest_of(matrix: Csr, pieces: DensePieces) -> Csr:
    """Give the non-zeros that stay in buckets, in the shape of the whole matrix. O(nnz)."""
    return split(matrix, pieces.taken)[1]


def dense_selection(matrix: Csr, pieces: DensePieces, max_width: int, tail_in_last: bool) -> Selection:
    """Say which non-zero stands in which tile: dense pieces in blocks, the rest in CELL's buckets in one partition.

    Parameters
    ----------
    matrix : Csr
    pieces : DensePieces
    max_width : int
        Widest bucket of the rest, a power of two.
    tail_in_last : bool
        Whether the rest of a folded row stays in the widest bucket.

    Returns
    -------
    Selection
        Input of `spmark.impls.formats.tiles.TileFormat.from_csr`; buckets keep the order of the windows.
        O(nnz log nnz).
    """
    row_of = matrix.rows_of_entries()
    window = pieces.window_of[row_of].astype(np.int64)
    lengths = np.bincount(row_of[~pieces.taken], minlength=matrix.num_rows)
    firsts = np.cumsum(lengths) - lengths
    # Place among those non-zeros of the row that stay in buckets; without meaning for the others.
    place = np.cumsum(~pieces.taken) - 1 - firsts[row_of]
    whole = lengths // max_width * max_width
    last = lengths - whole
    width_of_last = np.left_shift(1, np.ceil(np.log2(np.maximum(last, 1))).astype(np.int64))
    if tail_in_last:
        width_of_last = np.where(whole > 0, max_width, width_of_last)
    width = np.where(place < whole[row_of], max_width, width_of_last[row_of])
    # One tile for each window and width; blocks count as width 0.
    span = max_width.bit_length() + 1
    kinds = np.where(pieces.taken, 0, np.log2(np.maximum(width, 1)).astype(np.int64) + 1)
    tiles, owner = np.unique(window * span + kinds, return_inverse=True)
    power = tiles % span
    is_block = power == 0
    widths = np.where(is_block, GROUP, np.left_shift(1, np.maximum(power - 1, 0)))
    return Selection(
        owner=owner.astype(np.int32),
        kind=np.where(is_block, BLOCK, ELL).astype(np.int8),
        height=np.where(is_block, HEIGHT, np.iinfo(np.int32).max).astype(np.int32),
        width=widths.astype(np.int32),
        window=np.where(is_block, tiles // span, -1).astype(np.int32),
        window_rows=pieces.window_rows,
    )


def tile_arguments(schedule: CellSchedule, width: int) -> Mapping[str, Any]:
    """Turn a schedule of buckets into arguments of `spmark.impls.kernels.tile_spmm.TileSpmmPlan` that its kernels have.

    Parameters
    ----------
    schedule : CellSchedule
    width : int
        J.
    """
    arguments = schedule.arguments()
    del arguments["by_row"]
    known = {name: tuple(map(int, SPMM_TILES.space[name])) for name in ("vector", "vectors", "lanes")}
    if width <= _NARROW:
        arguments |= {"vectors": 1, "lanes": min(known["lanes"])}
    else:
        arguments |= {"vector": max(known["vector"])}
    return arguments | {name: min(max(arguments[name], min(values)), max(values)) for name, values in known.items()}
