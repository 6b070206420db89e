"""From the space to the tile sizes that are left: reordering for each M1, then the constraints."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.problem import Problem
from spmark.impls.lo_spmm.constraints import Limits, Survivors, cov_row, survivors
from spmark.impls.lo_spmm.features import candidate_features, count_tiles
from spmark.impls.lo_spmm.reorder import Order, deal_rows
from spmark.impls.lo_spmm.select import estimate
from spmark.impls.lo_spmm.space import (
    COLUMNS_PER_THREAD,
    MOST_THREADS,
    THREADS,
    TILE_ROWS,
    TILES_PER_BLOCK,
    TileSize,
    tile_sizes,
)

_FEW_ROWS = 8
"""M1 up to which a thread has registers for twice as many loads."""


def loads_in_flight(tile_rows: int, cpt: int) -> int:
    """Give the columns of a tile in flight (b of algorithm 2) where nothing pins them; the paper gives no values."""
    if cpt > 1:
        return 8
    return 32 if tile_rows <= _FEW_ROWS else 16


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


@dataclass(frozen=True)
class Pins:
    """Parts of the answer that are given; 0 is searched, and of ``prefetch`` is `loads_in_flight`."""

    tile_rows: int = 0
    threads: int = 0
    cpt: int = 0
    tiles_per_block: int = 0
    prefetch: int = 0

    def depth(self, tile_rows: int, cpt: int) -> int:
        """Give the loads in flight of a thread with so many sums of so many columns."""
        return self.prefetch or loads_in_flight(tile_rows, cpt)


@dataclass(eq=False)
class Space:
    """One problem's tile sizes on one device; rows are dealt for an M1 when it is first asked for."""

    problem: Problem
    device: DeviceSpec
    order: Order
    pins: Pins
    considered: int = 0
    """Tile sizes before the constraints."""
    survivors: Survivors = field(default_factory=lambda: Survivors((), {}))
    _dealt: dict[int, Dealt] = field(default_factory=dict)

    def dealt(self, tile_rows: int) -> Dealt:
        """Give the row tiles of an M1."""
        if tile_rows not in self._dealt:
            rows = deal_rows(self.problem.matrix, tile_rows, self.order)
            self._dealt[tile_rows] = Dealt(rows, *count_tiles(self.problem.matrix, rows))
        return self._dealt[tile_rows]

    def cycles(self, size: TileSize) -> float:
        """Estimate what a candidate takes."""
        dealt, matrix = self.dealt(size.tile_rows), self.problem.matrix
        depth = self.pins.depth(size.tile_rows, size.cpt)
        return estimate(
            size, matrix.shape, self.problem.width, (dealt.nnz, dealt.nnc), prefetch=depth, device=self.device
        ).cycles

    def features(self, size: TileSize) -> NDArray[np.float64]:
        """Give what the rank model sees of a candidate (`spmark.impls.lo_spmm.features.FEATURES`)."""
        dealt = self.dealt(size.tile_rows)
        return candidate_features(self.problem.matrix, self.problem.width, size, dealt.nnz, dealt.nnc)


def explore(problem: Problem, device: DeviceSpec, order: Order, pins: Pins) -> Space:
    """Apply the constraints to the space of a problem; nothing is compiled or run.

    Parameters
    ----------
    problem : Problem
        SpMM with at least one non-zero.
    device : DeviceSpec
        The target; it need not be here.
    order : Order
    pins : Pins
        With all sizes given, nothing is left to search.

    Raises
    ------
    ValueError
        The pinned ``cpt`` does not divide J, or a thread block has no threads for so many tiles.
    """
    num_rows = int(np.count_nonzero(problem.matrix.row_lengths))
    sizes = list(
        tile_sizes(
            num_rows,
            problem.width,
            (pins.tile_rows,) if pins.tile_rows else TILE_ROWS,
            (pins.threads,) if pins.threads else THREADS,
            (pins.cpt,) if pins.cpt else COLUMNS_PER_THREAD,
            tiles_per_block=(pins.tiles_per_block,) if pins.tiles_per_block else TILES_PER_BLOCK,
        )
    )
    if not sizes:
        raise ValueError(
            f"expected a cpt that divides J = {problem.width} and tiles_per_block whose threads are at most "
            f"{MOST_THREADS}, found {pins}"
        )
    space = Space(problem, device, order, pins, len(sizes))
    space.survivors = survivors(
        sizes,
        num_rows,
        problem.width,
        Limits.of(device),
        depth=pins.depth,
        tile_nnz=lambda rows: space.dealt(rows).nnz,
    )
    return space
