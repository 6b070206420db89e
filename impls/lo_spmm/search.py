"""The way from the space to the tile sizes that pass: reordering for each M1, then the constraints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.problem import Problem
from spmark.impls.lo_spmm.constraints import Survivors, register_cap, survivors
from spmark.impls.lo_spmm.kernel import Tile, UnrolledKernel
from spmark.impls.lo_spmm.parts import part_of_columns, tiles_of
from spmark.impls.lo_spmm.reorder import Reordering, deal_rows
from spmark.impls.lo_spmm.space import MOST_THREADS, SPLITS, VALUES, TileSize, grid_of
from spmark.impls.runtime.target import ceil_div

_FEW_ROWS = 8
"""Greatest M1 with which a thread has registers for twice as many loads."""
_FEW_BLOCKS = 2
"""Thread blocks of each multiprocessor with which columns are not cut further."""


@dataclass(frozen=True)
class Pins:
    """Values that are given in advance: the tunables of `spmark.impls.lo_spmm.plan.LoSpmm` that the search reads."""

    tile_rows: int = 0
    """M1; 0 searches, here and in the next four."""
    threads: int = 0
    """Threads of a tile; N1 is ``threads * cpt``."""
    cpt: int = 0
    """Neighbouring columns of a thread: 1, 2 or 4."""
    tiles_per_block: int = 0
    """Row tiles of a thread block; the paper has 1."""
    split: int = 0
    """Parts of the columns of A, each with tiles of its own: 1, 2, 4 or 8. 0 searches in modes that cut columns: the
    paper and the rank model's features do not know of parts."""
    prefetch: int = 0
    """Columns of a tile in flight (b of algorithm 2); 0 follows M1 and ``cpt``."""
    order: str = Reordering.GREEDY
    """``greedy`` (algorithm 1), ``none`` or ``hypergraph``."""

    def depth(self, tile_rows: int, cpt: int) -> int:
        """Give the columns of a tile in flight (b of algorithm 2), by sums and columns of a thread.

        The paper gives no values.
        """
        return self.prefetch or (8 if cpt > 1 else 32 if tile_rows <= _FEW_ROWS else 16)

    def values(self, name: str) -> Sequence[int]:
        """Give the values to combine of a field of tile sizes: the pinned one, else `VALUES`."""
        return [getattr(self, name)] if getattr(self, name) else VALUES[name]


def tile_sizes(num_rows: int, width: int, pins: Pins) -> Iterator[TileSize]:
    """Walk the space of one problem.

    A block has threads for all of its tiles. It has at most as many tiles as there are, except for the least
    ``tiles_per_block``.

    Parameters
    ----------
    num_rows : int
        Rows of A that are not empty; one M1 beyond their number is kept, since it covers all of them.
    width : int
        J. A vector load needs rows of B that start aligned, so ``cpt`` divides it; one N1 beyond J is kept for each
        ``cpt``.
    pins : Pins
    """
    stacks = pins.values("tiles_per_block")
    for rows in _up_to(pins.values("tile_rows"), num_rows):
        for cpt in (one for one in pins.values("cpt") if width % one == 0):
            for threads in _up_to(pins.values("threads"), ceil_div(width, cpt)):
                for together in stacks:
                    needed = together == stacks[0] or together <= ceil_div(num_rows, rows)
                    if needed and together * threads <= MOST_THREADS:
                        for split in pins.values("split"):
                            yield TileSize(rows, threads, cpt, together, split)


def _up_to(values: Sequence[int], most: int) -> Iterator[int]:
    """Give the values below ``most`` and the first that reaches it."""
    for value in values:
        yield value
        if value >= most:
            return


class Dealt(NamedTuple):
    """The row tiles of one M1, and of one number of parts of the columns."""

    rows: list[NDArray[np.int32]]
    """Rows of each tile; the same in all parts."""
    nnz: NDArray[np.int64]
    """(parts * tiles,) non-zeros, part by part."""
    nnc: NDArray[np.int64]
    """(parts * tiles,) non-empty columns."""


@dataclass(eq=False)
class TileSpace:
    """One problem's tile sizes on one device; rows are dealt for an M1 when this M1 is first asked for."""

    problem: Problem
    device: DeviceSpec
    pins: Pins
    considered: int = 0
    """Tile sizes before the constraints."""
    survivors: Survivors = field(default_factory=lambda: Survivors((), {}))
    _dealt: dict[tuple[int, int], Dealt] = field(default_factory=dict)
    _tiles: dict[tuple[int, int], tuple[Tile, ...]] = field(default_factory=dict)

    def dealt(self, tile_rows: int, split: int = 1) -> Dealt:
        """Give the row tiles of an M1, cut into parts."""
        if (tile_rows, split) not in self._dealt:
            matrix, finest = self.problem.matrix, SPLITS[-1]
            rows = deal_rows(matrix, tile_rows, Reordering(self.pins.order))
            tile_of = np.zeros(matrix.num_rows, np.int64)
            for number, of_tile in enumerate(rows):
                tile_of[of_tile] = number
            tiles = tile_of[matrix.rows_of_entries()] + len(rows) * part_of_columns(matrix, finest)[matrix.indices]
            places = np.unique(tiles * matrix.num_cols + matrix.indices) // matrix.num_cols
            counts = [np.bincount(one, minlength=len(rows) * finest) for one in (tiles, places)]
            for parts in SPLITS:
                # Fewer parts are unions of the finest.
                nnz, nnc = (one.reshape(parts, finest // parts, -1).sum(1).ravel() for one in counts)
                self._dealt[tile_rows, parts] = Dealt(rows, nnz, nnc)
        return self._dealt[tile_rows, split]

    def kernel(self, tile_rows: int, cpt: int, split: int, warm: bool = True) -> UnrolledKernel:
        """Describe the kernel of all candidates that share these."""
        if (tile_rows, split) not in self._tiles:
            self._tiles[tile_rows, split] = tiles_of(self.problem, self.dealt(tile_rows).rows, split)
        tiles = self._tiles[tile_rows, split]
        dispatch, depth = np.arange(len(tiles), dtype=np.int32), self.pins.depth(tile_rows, cpt)
        return UnrolledKernel(tiles, dispatch, self.problem.width, cpt, depth, warm, followed=split > 1)

    def registers(self, size: TileSize) -> int:
        """Give the registers of a thread of a candidate."""
        return register_cap(size.tile_rows, size.cpt, self.pins.depth(size.tile_rows, size.cpt))


def explore(problem: Problem, device: DeviceSpec, pins: Pins) -> TileSpace:
    """Apply the constraints to the space of a problem; nothing is compiled or run.

    Parameters
    ----------
    problem : Problem
        SpMM with at least one non-zero.
    device : DeviceSpec
        The target; the machine may lack it.
    pins : Pins
        With all sizes given, nothing is left to search.

    Raises
    ------
    ValueError
        The pinned ``cpt`` does not divide J, or a thread block has no threads for so many tiles.
    """
    space, width, filled = TileSpace(problem, device, pins), problem.width, problem.matrix.filled_rows

    def is_worth_splitting(size: TileSize) -> bool:
        # Would half of the parts leave multiprocessors with few thread blocks? Cutting further adds loads.
        columns, rows, _ = grid_of(size, ceil_div(filled, size.tile_rows), width)
        return columns * rows * size.split // 2 < _FEW_BLOCKS * device.num_sms

    sizes = list(tile_sizes(filled, width, pins))
    if not sizes:
        raise ValueError(
            f"expected a cpt that divides J = {width} and tiles_per_block whose threads are at most "
            f"{MOST_THREADS}, found {pins}"
        )
    whole = [size for size in sizes if size.split == 1]
    cut = [size for size in sizes if size.split > 1 and (not whole or is_worth_splitting(size))]
    space.considered = len(whole) + len(cut)
    # Whole columns and parts pass apart: of a small problem, parts alone might fill half of a device, and not pay.
    space.survivors = survivors(space, whole or cut)
    if whole and cut:
        space.survivors = space.survivors.joined(survivors(space, cut))
    return space
