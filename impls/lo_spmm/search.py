"""The way from the space to the tile sizes that pass: reordering for each M1, then the constraints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.problem import Problem
from spmark.impls.lo_spmm.constraints import Limits, Survivors, cov_row, register_cap, survivors
from spmark.impls.lo_spmm.estimate import Work, estimate, work_of
from spmark.impls.lo_spmm.features import candidate_features, count_tiles
from spmark.impls.lo_spmm.parts import part_of_columns
from spmark.impls.lo_spmm.reorder import MOST_EMPTY, Reordering, deal_rows
from spmark.impls.lo_spmm.space import (
    COLUMNS_PER_THREAD,
    MOST_THREADS,
    SPLITS,
    THREADS,
    TILE_ROWS,
    TILES_PER_BLOCK,
    TileSize,
    grid_of,
    tile_sizes,
)
from spmark.impls.runtime.target import ceil_div

_FEW_ROWS = 8
"""Greatest M1 with which a thread has registers for twice as many loads."""
_FEW_BLOCKS = 2
"""Thread blocks of each multiprocessor with which columns are not cut further."""


def loads_in_flight(tile_rows: int, cpt: int) -> int:
    """Give the columns of a tile in flight (b of algorithm 2) unless they are pinned; the paper gives no values."""
    if cpt > 1:
        return 8
    return 32 if tile_rows <= _FEW_ROWS else 16


@dataclass(frozen=True, eq=False)
class Dealt:
    """The row tiles of one M1, and of one number of parts of the columns."""

    rows: list[NDArray[np.int32]]
    """Rows of each tile; the same in all parts."""
    nnz: NDArray[np.int64]
    """(parts * tiles,) non-zeros, part by part."""
    nnc: NDArray[np.int64]
    """(parts * tiles,) non-empty columns."""

    @property
    def cov_row(self) -> float:
        """Imbalance of the non-zeros."""
        return cov_row(self.nnz)


@dataclass(frozen=True)
class Pins:
    """Values that are given in advance: 0 searches, and a ``prefetch`` of 0 takes `loads_in_flight`.

    Columns of A are cut only if ``split`` says so: the paper and the rank model's features do not know of parts.
    """

    tile_rows: int = 0
    threads: int = 0
    cpt: int = 0
    tiles_per_block: int = 0
    prefetch: int = 0
    split: int = 1

    def depth(self, tile_rows: int, cpt: int) -> int:
        """Give the loads in flight of a thread with ``tile_rows`` sums for each of ``cpt`` columns."""
        return self.prefetch or loads_in_flight(tile_rows, cpt)


@dataclass(eq=False)
class TileSpace:
    """One problem's tile sizes on one device; rows are dealt for an M1 when this M1 is first asked for."""

    problem: Problem
    device: DeviceSpec
    order: Reordering
    pins: Pins
    considered: int = 0
    """Tile sizes before the constraints."""
    survivors: Survivors = field(default_factory=lambda: Survivors((), {}))
    _dealt: dict[tuple[int, int], Dealt] = field(default_factory=dict)

    @cached_property
    def empty_rows(self) -> int:
        """Rows of A without entries."""
        return int(np.count_nonzero(self.problem.matrix.row_lengths == 0))

    def dealt(self, tile_rows: int, split: int = 1) -> Dealt:
        """Give the row tiles of an M1, cut into parts."""
        if (tile_rows, split) not in self._dealt:
            matrix, finest = self.problem.matrix, SPLITS[-1]
            rows = deal_rows(matrix, tile_rows, self.order)
            counts = count_tiles(matrix, rows, part_of_columns(matrix, finest), finest)
            for parts in SPLITS:
                # Fewer parts are unions of the finest.
                nnz, nnc = (one.reshape(parts, finest // parts, -1).sum(1).ravel() for one in counts)
                self._dealt[tile_rows, parts] = Dealt(rows, nnz, nnc)
        return self._dealt[tile_rows, split]

    def cycles(self, size: TileSize) -> float:
        """Estimate the cycles of a candidate."""
        return estimate(self.work(size), self.device).cycles

    def work(self, size: TileSize) -> Work:
        """Count the work of a candidate."""
        dealt, matrix = self.dealt(size.tile_rows, size.split), self.problem.matrix
        depth = self.pins.depth(size.tile_rows, size.cpt)
        counts, empty = (dealt.nnz, dealt.nnc), min(self.empty_rows, MOST_EMPTY * len(dealt.rows))
        return work_of(
            size, matrix.shape, self.problem.width, counts, prefetch=depth, device=self.device, empty_rows=empty
        )

    def registers(self, size: TileSize) -> int:
        """Give the registers of a thread of a candidate."""
        return register_cap(size.tile_rows, size.cpt, self.pins.depth(size.tile_rows, size.cpt))

    def features(self, size: TileSize) -> NDArray[np.float64]:
        """Give a candidate's features for the rank model (`spmark.impls.lo_spmm.features.FEATURES`)."""
        dealt = self.dealt(size.tile_rows, size.split)
        return candidate_features(self.problem.matrix, self.problem.width, size, dealt.nnz, dealt.nnc)


def explore(problem: Problem, device: DeviceSpec, order: Reordering, pins: Pins) -> TileSpace:
    """Apply the constraints to the space of a problem; nothing is compiled or run.

    Parameters
    ----------
    problem : Problem
        SpMM with at least one non-zero.
    device : DeviceSpec
        The target; the machine may lack it.
    order : Reordering
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
            splits=(pins.split,) if pins.split else SPLITS,
        )
    )
    whole = [size for size in sizes if size.split == 1]
    cut = [size for size in sizes if size.split > 1]
    if whole:
        cut = [size for size in cut if _is_worth_splitting(size, num_rows, problem.width, device)]
    if not sizes:
        raise ValueError(
            f"expected a cpt that divides J = {problem.width} and tiles_per_block whose threads are at most "
            f"{MOST_THREADS}, found {pins}"
        )
    space = TileSpace(problem, device, order, pins, len(whole) + len(cut))

    def left(of: Sequence[TileSize]) -> Survivors:
        limits, width = Limits.of(device), problem.width
        return survivors(of, num_rows, width, limits, depth=pins.depth, tile_nnz=lambda rows: space.dealt(rows).nnz)

    # Whole columns and parts pass apart: of a small problem, parts alone might fill half of a device, and not pay.
    space.survivors = left(whole or cut)
    if whole and cut:
        space.survivors = space.survivors.joined(left(cut))
    return space


def _is_worth_splitting(size: TileSize, num_rows: int, width: int, device: DeviceSpec) -> bool:
    """Tell whether half of the parts would leave multiprocessors with few thread blocks: cutting further adds loads."""
    columns, rows, _ = grid_of(size, ceil_div(num_rows, size.tile_rows), width)
    return columns * rows * size.split // 2 < _FEW_BLOCKS * device.num_sms
