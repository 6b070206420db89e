"""What an unrolled kernel does, before it is written down in any language: tiles, and the order of loads and products.

Lin et al., "LO-SpMM", section 6.1 and algorithm 2. A row tile becomes one function without loops: a thread loads its
element (or neighbouring elements) of B for each non-empty column of the tile, multiplies it by weights that are
literals in the code, and stores M1 sums. The emitters (`emit_cuda`, `emit_ptx`) spell exactly what `steps` says.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.errors import BuildError
from spmark.impls.core.problem import Csr

NAME = "lo_spmm"
"""Of the kernel that both emitters write."""


@dataclass(frozen=True)
class Schedule:
    """How a tile's work is ordered."""

    cpt: int = 1
    """Neighbouring columns of a thread: 1, 2 or 4."""
    prefetch: int = 8
    """Columns of a tile whose element of B is held or on its way (b in algorithm 2)."""
    cpl: int = 0
    """Least products (of one column of C) between two loads (CPL in algorithm 2); with 0 a load follows as soon as its
    register is free."""

    def __post_init__(self) -> None:
        if self.cpt not in (1, 2, 4):
            raise ValueError(f"expected cpt out of 1, 2, 4, found {self.cpt}")
        if not 1 <= self.prefetch <= 64:
            raise ValueError(f"expected prefetch in [1, 64], found {self.prefetch}")
        if self.cpl < 0:
            raise ValueError(f"expected cpl of at least 0, found {self.cpl}")


@dataclass(frozen=True, eq=False)
class Tile:
    """Some rows of A, by non-empty column; the work of one generated function."""

    rows: NDArray[np.int32]
    """(m,) rows of C that the sums are stored to; row r is sum number r of the tile."""
    cols: NDArray[np.int32]
    """(nnc,) rows of B in the order in which they are loaded."""
    starts: NDArray[np.int64]
    """(nnc + 1,) where each column's entries begin."""
    sums: NDArray[np.int32]
    """(nnz,) which sum an entry adds to."""
    values: NDArray[np.float32]
    """(nnz,) weights."""

    @property
    def nnz(self) -> int:
        """Products."""
        return int(self.values.size)

    @property
    def nnc(self) -> int:
        """Non-empty columns: loads."""
        return int(self.cols.size)


class Step(NamedTuple):
    """Loads, and then the products of one column."""

    loads: range
    """Positions in `Tile.cols` to load now; position p goes to register ``p % prefetch``."""
    column: int
    """Position of the column whose entries are multiplied."""
    entries: range
    """Its entries."""


@dataclass(frozen=True, eq=False)
class UnrolledKernel:
    """A whole kernel: functions, and which of them a thread block runs.

    Thread block (x, y) runs function ``dispatch[y]`` on columns ``(x * threads + t) * cpt`` of thread t; a thread
    beyond J does nothing. So one kernel serves every N1, and thread blocks that start one after the other run the same
    function, which keeps its code in the instruction caches.
    """

    tiles: tuple[Tile, ...]
    dispatch: NDArray[np.int32]
    """(blocks in y,) functions; one each in a real kernel, shared in a proxy."""
    width: int
    """J."""
    schedule: Schedule

    @property
    def tile_rows(self) -> int:
        """Sums of a thread for each of its columns, at most."""
        return max((tile.rows.size for tile in self.tiles), default=0)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything that the emitters read. O(nnz)."""
        held = hashlib.sha256(repr((self.width, self.schedule, len(self.tiles))).encode())
        held.update(self.dispatch.data)
        for tile in self.tiles:
            for array in (tile.rows, tile.cols, tile.starts, tile.sums, tile.values):
                held.update(array.size.to_bytes(8, "little"))
                held.update(np.ascontiguousarray(array).data)
        return held.hexdigest()


def steps(tile: Tile, schedule: Schedule) -> Iterator[Step]:
    """Walk a tile in the order of algorithm 2.

    ``prefetch`` columns are loaded at first. Column p may be loaded when the one that held its register, p - prefetch,
    is done, and waits further until ``cpl`` products have gone by since the load before, but never longer than until
    it is needed: registers are then the bound of loads in flight, as in the paper.
    """
    starts = tile.starts.tolist()
    loaded = since = 0
    for column in range(tile.nnc):
        until = min(tile.nnc, column + schedule.prefetch)  # the registers of all columns before this one are free
        if schedule.cpl and column:
            until = max(min(until, loaded + since // schedule.cpl), column + 1, loaded)
            since = max(0, since - (until - loaded) * schedule.cpl)
        yield Step(range(loaded, until), column, range(starts[column], starts[column + 1]))
        loaded = until
        since += starts[column + 1] - starts[column]


def make_tiles(matrix: Csr, values: NDArray[np.float32], dealt: Sequence[NDArray[np.int32]]) -> tuple[Tile, ...]:
    """Lay out the tiles of dealt rows (`spmark.impls.lo_spmm.reorder.deal_rows`). O(nnz log nnz).

    A row's products keep the order of its columns, so a tile's sums do not depend on how rows are dealt.

    Parameters
    ----------
    matrix : Csr
    values : (nnz,) float32
        Weights; stored zeros are kept.
    dealt : sequence of (m,) int32
        Distinct rows of each tile.

    Raises
    ------
    BuildError
        A weight is no number: a literal of it would be no instruction's operand.
    """
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        raise BuildError(f"{NAME}: expected finite weights, found {values[bad[0]]} at position {bad[0]} of the CSR")
    tile_of = np.full(matrix.num_rows, -1, np.int32)
    sum_of = np.zeros(matrix.num_rows, np.int32)
    for number, rows in enumerate(dealt):
        tile_of[rows] = number
        sum_of[rows] = np.arange(rows.size)
    entry_rows = matrix.rows_of_entries()
    order = np.lexsort((sum_of[entry_rows], matrix.indices, tile_of[entry_rows]))
    order = order[np.searchsorted(tile_of[entry_rows[order]], 0) :]
    ends = np.searchsorted(tile_of[entry_rows[order]], np.arange(len(dealt) + 1))
    tiles = []
    for number, rows in enumerate(dealt):
        entries = order[ends[number] : ends[number + 1]]
        cols, starts = np.unique(matrix.indices[entries], return_index=True)
        tiles.append(
            Tile(
                np.asarray(rows, np.int32),
                cols,
                np.append(starts, entries.size).astype(np.int64),
                sum_of[entry_rows[entries]],
                np.asarray(values, np.float32)[entries],
            )
        )
    return tuple(tiles)
