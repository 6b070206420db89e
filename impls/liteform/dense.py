"""Dense windows of CELL on the matrix unit: where rows that stand together share many columns, in float16.

LiteForm names buckets that are dense, which tensor cores would compute faster, as its first limitation (Peng,
Thomadakis, Pienaar and Kestor, HPDC 2025). Here a window is 16 rows that stand together. Pieces of 16 of its columns
read each row of B once for all rows of the window. A window whose pieces read few rows of B leaves the buckets whole, so
that no row is summed in two places, and one grid computes both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.problem import Csr, DType, Problem
from spmark.impls.formats.decompose import split
from spmark.impls.formats.threads import SHARE, cores, run_all, with_scratch
from spmark.impls.formats.tiles import BLOCK, ELL, GROUP, Selection
from spmark.impls.kernels.tile_spmm import HEIGHT, SPMM_TILES
from spmark.impls.kernels.tile_tasks import ALONE
from spmark.impls.liteform.loops import count_windows
from spmark.impls.liteform.schedule import CellSchedule
from spmark.impls.runtime.target import ceil_div

MOST_READS: Final = 0.5
"""Most rows of B that the pieces of a dense window read for each of its non-zeros; buckets read one."""
LEAST_SHARE: Final = 0.1
"""Least share of all non-zeros in dense windows for which they are tried: with less, a second kind of work in the grid
gains nothing."""
_LEAST_PREDICTED = 0.5
"""Least share of the non-zeros in dense windows that `pays` asks for."""
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
    """Non-zeros in the pieces of dense windows, for one order of rows."""

    taken: NDArray[np.bool_]
    """(nnz,) whether a non-zero, in CSR order, is in a dense window."""
    window_of: NDArray[np.int32]
    """(I,) the window of `HEIGHT` rows that each row stands in."""
    window_rows: NDArray[np.int32]
    """(windows, `HEIGHT`) rows of each window, -1 after the last."""

    @property
    def share(self) -> float:
        """Share of all non-zeros that is in dense windows; 0 for a matrix without non-zeros."""
        return float(self.taken.mean()) if self.taken.size else 0.0


def refusal(problem: Problem) -> str | None:
    """Say why dense pieces cannot be computed, or None: matrix units take float16 and eight columns at a time."""
    if problem.dtype is DType.FLOAT16 and problem.width % _COLUMNS == 0:
        return None
    return f"expected float16 and J a multiple of {_COLUMNS} for dense pieces, found {problem.dtype}, {problem.width}"


def dense_pieces(
    matrix: Csr, order: NDArray[np.int32] | None = None, most_reads: float = MOST_READS
) -> DensePieces:
    """Find the windows of 16 rows whose pieces read few rows of B.

    Parameters
    ----------
    matrix : Csr
    order : (I,) int32, optional
        Row of A at every place; by default A's order.
    most_reads : float
        Most rows of B that a dense window reads for each of its non-zeros.

    Returns
    -------
    DensePieces
        All non-zeros of a dense window are taken. O(nnz + K) time, and 4 K bytes of scratch a core.
    """
    num_rows = matrix.num_rows
    if order is None:
        order = np.arange(num_rows, dtype=np.int32)
    window_of = np.empty(num_rows, np.int32)
    window_of[order] = np.arange(num_rows, dtype=np.int32) // HEIGHT
    window_rows = np.append(order, np.full(-num_rows % HEIGHT, -1, np.int32)).reshape(-1, HEIGHT)
    held = np.bincount(window_of, matrix.row_lengths, window_rows.shape[0])
    reads = -(-_columns_of_windows(matrix, order) // GROUP) * GROUP
    dense = reads <= most_reads * held
    return DensePieces(np.repeat(dense[window_of], matrix.row_lengths), window_of, window_rows)


def _columns_of_windows(matrix: Csr, order: NDArray[np.int32]) -> NDArray[np.int64]:
    """Count the distinct columns of each window of `HEIGHT` places."""
    windows = ceil_div(matrix.num_rows, HEIGHT)
    columns = np.zeros(windows, np.int64)
    tasks = with_scratch(min(cores(), ceil_div(matrix.nnz, SHARE)), 4 * matrix.num_cols)
    bounds = np.linspace(0, windows, tasks + 1).astype(np.int64).tolist()

    def counted(first: int, stop: int) -> None:
        seen = np.full(matrix.num_cols, -1, np.int32)
        count_windows(matrix.indptr, matrix.indices, order, HEIGHT, first, stop, seen, columns)

    run_all(counted, pairwise(bounds))
    return columns


def pays(matrix: Csr) -> bool:
    """Tell from evenly spread windows of rows, in A's order, whether most non-zeros are in dense windows.

    Parameters
    ----------
    matrix : Csr
        O(I + K) time, and O(n) for the n non-zeros of at most 32 windows.
    """
    windows = ceil_div(matrix.num_rows, HEIGHT)
    chosen = np.unique(np.linspace(0, windows - 1, min(windows, _SAMPLED)).astype(np.int64))
    rows = (chosen[:, np.newaxis] * HEIGHT + np.arange(HEIGHT)).ravel()
    rows = rows[rows < matrix.num_rows]  # only the last window can be cut off, so that the others stay whole
    some, _ = matrix.of_rows(rows)
    return dense_pieces(some).share >= _LEAST_PREDICTED


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


def tile_arguments(schedule: CellSchedule, width: int, alone: int = ALONE[0]) -> Mapping[str, Any]:
    """Turn a schedule of buckets into arguments of `spmark.impls.kernels.tile_spmm.TileSpmmPlan` that its kernels have.

    Parameters
    ----------
    schedule : CellSchedule
    width : int
        J.
    alone : int
        Pieces of a window that one warp takes by itself.
    """
    arguments = schedule.arguments()
    del arguments["by_row"]
    known = {name: tuple(map(int, SPMM_TILES.space[name])) for name in ("vector", "vectors", "lanes")}
    if width <= _NARROW:
        arguments |= {"vectors": 1, "lanes": min(known["lanes"])}
    else:
        arguments |= {"vector": max(known["vector"])}
    return arguments | {"alone": alone} | {name: min(max(arguments[name], min(values)), max(values)) for name, values in known.items()}
