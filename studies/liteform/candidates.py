"""The schedules of CELL that are measured for a table of a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from spmark.impls.core.problem import DType
from spmark.impls.kernels.ell_buckets import LANES, LONG_ROWS, NEVER, WORK
from spmark.impls.kernels.family import tiles_of
from spmark.impls.liteform.schedule import CellSchedule, widest_vector

_TILE = 128
"""Columns of a tile of C; tiles down to half as wide are measured."""
_WORKS = tuple(sorted(WORK))
_SMALL, _LARGE = 4_000_000, 32_000_000
"""Loads of elements of B below which a problem starts up more than it computes, and from which it fills a GPU."""


def tiles(width: int, dtype: DType, small: bool = False) -> list[tuple[int, int, int]]:
    """List the (vector, vectors, lanes) to measure: tiles of columns that J fills, and not much narrower than J.

    Parameters
    ----------
    width : int
        J.
    dtype : DType
    small : bool
        Add loads half as wide, which give small problems more threads.
    """
    widest = widest_vector(width, dtype)
    fitting = [tuple(tile.values()) for tile in tiles_of(width, (widest,), LANES, (1, 2))]
    shapes = [(v, count, n) for v, count, n in fitting if min(width, _TILE) <= 2 * v * count * n]
    if small and widest > 1:
        shapes += [(widest // 2, 1, lanes) for lanes in LANES if widest // 2 * lanes == min(width, _TILE // 2)]
    return shapes


def candidates(width: int, dtype: DType, loads: int, max_width: int) -> Iterator[CellSchedule]:
    """List the schedules that are measured for a table.

    Parameters
    ----------
    width : int
        J.
    dtype : DType
    loads : int
        nnz J: large problems are not cut into the smallest blocks, small ones not into the largest.
    max_width : int
    """
    works = _WORKS[:3] if loads < _SMALL else _WORKS[1:4] if loads < _LARGE else _WORKS[1:]
    longs = [pair for pair in LONG_ROWS if all(least <= max_width or least == NEVER for least in pair)]
    for (vector, vectors, lanes), work, (spread, together) in product(
        tiles(width, dtype, loads < _SMALL), works, longs
    ):
        if lanes == max(LANES) and spread != NEVER:
            continue  # a group is a whole warp: the warp has no other group to share a row
        yield CellSchedule(vector, lanes, work, vectors, spread, together)
