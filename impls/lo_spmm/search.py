"""From the space to one tile size: reordering for each M1, the constraints, and an estimate of what is left."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.interfaces import Candidate, Search
from spmark.impls.core.problem import Problem
from spmark.impls.lo_spmm.constraints import Limits, Survivors, cov_row, survivors
from spmark.impls.lo_spmm.features import count_tiles
from spmark.impls.lo_spmm.reorder import Order, deal_rows
from spmark.impls.lo_spmm.select import estimate
from spmark.impls.lo_spmm.space import COLUMNS_PER_THREAD, THREADS, TILE_ROWS, TileSize, tile_sizes


@dataclass(frozen=True, eq=False)
class Dealt:
    """The row tiles of one M1."""

    rows: list[NDArray[np.int32]]
    nnz: NDArray[np.int64]
    """(tiles,)"""
    nnc: NDArray[np.int64]
    """(tiles,)"""

    @property
    def cov_row(self) -> float:
        """Imbalance of the non-zeros."""
        return cov_row(self.nnz)


@dataclass(frozen=True, eq=False)
class Found:
    """What a search chose and saw."""

    size: TileSize
    dealt: Dealt
    survivors: Survivors
    record: Search


@dataclass(frozen=True)
class Pins:
    """Parts of the answer that are given; 0 is searched."""

    tile_rows: int = 0
    threads: int = 0
    cpt: int = 0


def deal(problem: Problem, tile_rows: int, order: Order) -> Dealt:
    """Deal rows to tiles and count what they hold."""
    rows = deal_rows(problem.matrix, tile_rows, order)
    return Dealt(rows, *count_tiles(problem.matrix, rows))


def search(problem: Problem, device: DeviceSpec, order: Order, prefetch: int, pins: Pins) -> Found:
    """Choose a tile size without running anything.

    Parameters
    ----------
    problem : Problem
        SpMM with at least one non-zero.
    device : DeviceSpec
        The target; it need not be here.
    order : Order
    prefetch : int
        `spmark.impls.lo_spmm.kernel.Schedule.prefetch` of every candidate.
    pins : Pins
        With all three given, nothing is left to search.

    Raises
    ------
    ValueError
        The pinned ``cpt`` does not divide J.
    """
    num_rows = int(np.count_nonzero(problem.matrix.row_lengths))
    sizes = list(
        tile_sizes(
            num_rows,
            problem.width,
            (pins.tile_rows,) if pins.tile_rows else TILE_ROWS,
            (pins.threads,) if pins.threads else THREADS,
            (pins.cpt,) if pins.cpt else COLUMNS_PER_THREAD,
        )
    )
    if not sizes:
        raise ValueError(f"expected a cpt that divides J = {problem.width}, found {pins.cpt}")
    held: dict[int, Dealt] = {}

    def dealt(tile_rows: int) -> Dealt:
        if tile_rows not in held:
            held[tile_rows] = deal(problem, tile_rows, order)
        return held[tile_rows]

    left = survivors(
        sizes, num_rows, problem.width, Limits.of(device), prefetch=prefetch, tile_nnz=lambda rows: dealt(rows).nnz
    )
    cycles = []
    for size in left.sizes:
        counts = dealt(size.tile_rows)
        cycles.append(estimate(size, problem.width, counts.nnz, counts.nnc, device).cycles)
    seen = tuple(
        Candidate({"tile_rows": size.tile_rows, "threads": size.threads, "cpt": size.cpt}, predicted=predicted)
        for size, predicted in zip(left.sizes, cycles, strict=True)
    )
    size = left.sizes[int(np.argmin(cycles))]
    return Found(size, dealt(size.tile_rows), left, Search(len(sizes), seen=seen))
