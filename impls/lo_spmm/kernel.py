"""An unrolled kernel before it is written in any language: tiles, and the order of loads and products.

Lin et al., "LO-SpMM", section 6.1 and algorithm 2. A row tile becomes one function without loops: a thread loads its
element (or neighbouring elements) of B for each non-empty column of the tile, multiplies it by weights that are
literals in the code, and stores M1 sums. The emitters (`emit_cuda`, `emit_ptx`) write out exactly the order of `steps`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.errors import BuildError
from spmark.impls.core.files import digest_of_arrays
from spmark.impls.core.problem import Csr
from spmark.impls.lo_spmm.conv import ConvShape
from spmark.impls.lo_spmm.reorder import deal_empty_rows

NAME = "lo_spmm"
"""Name of the kernel that both emitters write."""
INSTRUCTION_BYTES = 16
"""Bytes of an instruction on every architecture since sm_70."""


@dataclass(frozen=True, eq=False)
class Tile:
    """Some rows of A, by non-empty column; the work of one generated function."""

    rows: NDArray[np.int32]
    """(m,) rows of C that the sums are stored to, increasing; row r is sum number r of the tile."""
    cols: NDArray[np.int32]
    """(nnc,) rows of B in the order in which they are loaded, increasing."""
    starts: NDArray[np.int64]
    """(nnc + 1,) where each column's entries begin."""
    sums: NDArray[np.int32]
    """(nnz,) which sum an entry adds to."""
    values: NDArray[np.float32]
    """(nnz,) weights."""
    empty: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    """Rows of C without a sum or register: the constant that the ending makes of zero is stored to them."""

    @property
    def nnz(self) -> int:
        """Products."""
        return int(self.values.size)

    @property
    def nnc(self) -> int:
        """Non-empty columns: loads."""
        return int(self.cols.size)


@dataclass(frozen=True, eq=False)
class Ending:
    """Operations fused to the product: act(A B + bias)."""

    bias: NDArray[np.float32] | None = None
    """(I,) added to every column of a row: a literal that its sums begin with."""
    relu: bool = False
    """Whether negative results become zero."""

    def starts(self, rows: NDArray[np.int32]) -> list[float]:
        """Give the values that the sums of some rows begin with."""
        return [0.0] * rows.size if self.bias is None else self.bias[rows].tolist()

    def of_empty(self, rows: NDArray[np.int32]) -> list[float]:
        """Give the results in some rows of A without entries."""
        return [max(start, 0.0) if self.relu else start for start in self.starts(rows)]


@dataclass(frozen=True, eq=False)
class UnrolledKernel:
    """A whole kernel: functions, and which of them a thread block runs.

    A launch says how many ``threads`` a tile has. Thread t of block (x, y) runs function
    ``dispatch[y * (block threads / threads) + t / threads]`` on columns ``(x * threads + t % threads) * cpt``; a thread
    beyond J or the last tile does nothing. Thus one kernel serves every N1 and any number of tiles in a block. Thread
    blocks that start one after the other run the same functions, which keeps their code in the instruction caches.
    """

    tiles: tuple[Tile, ...]
    dispatch: NDArray[np.int32]
    """(row tiles,) functions; one each in a real kernel, shared in a proxy."""
    width: int
    """J."""
    cpt: int = 1
    """Neighbouring columns of a thread: 1, 2 or 4."""
    prefetch: int = 8
    """Columns of a tile whose element of B is in a register or on its way (b in algorithm 2)."""
    warm: bool = True
    """Whether thread blocks ask for their code, and for a small B, before they need it; in PTX only."""
    conv: ConvShape | None = None
    """Sizes of a convolution, where B and C are its input and output; a thread then has one column."""
    ending: Ending = field(default_factory=Ending)
    followed: bool = False
    """Whether a second grid adds up what this grid writes; it may begin before this grid ends."""

    @property
    def tile_rows(self) -> int:
        """Sums of a thread for each of its columns, at most."""
        return max((tile.rows.size for tile in self.tiles), default=0)

    @property
    def padded(self) -> bool:
        """Whether taps of a convolution may lie in its padding."""
        return self.conv is not None and self.conv.padding > 0

    def load_offsets(self, tile: Tile) -> list[int]:
        """Give the elements from a thread's place in B to each of a tile's loads."""
        if self.conv is not None:
            return [*self.conv.load_offsets(tile.cols).tolist()]
        return [*(tile.cols.astype(np.int64) * self.width).tolist()]

    def taps(self, tile: Tile) -> list[int] | None:
        """Give the tap of each of a tile's loads where a tap may lie in the padding of a convolution, else None."""
        if self.conv is None or not self.padded:
            return None
        return [*(tile.cols % math.prod(self.conv.taps)).tolist()]

    def store_offsets(self, rows: NDArray[np.int32]) -> list[int]:
        """Give the elements from a thread's place in C to some rows of C."""
        return [*(rows.astype(np.int64) * (self.conv.out_area if self.conv else self.width)).tolist()]

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything that the emitters read. O(nnz)."""
        facts = (self.width, self.cpt, self.prefetch, self.warm, self.conv, self.ending.relu, self.followed)
        arrays = {f"{n} {name}": array for n, tile in enumerate(self.tiles) for name, array in vars(tile).items()}
        bias = {} if self.ending.bias is None else {"bias": self.ending.bias}
        content = digest_of_arrays({"dispatch": self.dispatch, **bias, **arrays})
        return hashlib.sha256(f"{facts} {content}".encode()).hexdigest()


def steps(tile: Tile, prefetch: int) -> Iterator[tuple[range, int, range]]:
    """Walk a tile in the order of algorithm 2.

    The first ``prefetch`` columns are loaded at once. Column p is loaded when column p - prefetch is done, whose
    register it takes over. The paper's least distance between two loads (CPL) is 0: the assembler orders loads by rules
    of its own. A tile without columns has one step, without loads and products.

    Yields
    ------
    loads : range
        Positions in `Tile.cols` to load now; position p goes to register ``p % prefetch``.
    column : int
        Position of the column whose entries are multiplied.
    entries : range
        Entries of that column.
    """
    if not tile.nnc:
        yield range(0), 0, range(0)
    starts, loaded = tile.starts.tolist(), 0
    for column in range(tile.nnc):
        until = min(tile.nnc, column + prefetch)  # the registers of all columns before this one are free
        yield range(loaded, until), column, range(starts[column], starts[column + 1])
        loaded = until


def make_tiles(matrix: Csr, values: NDArray[np.float32], dealt: Sequence[NDArray[np.int32]]) -> tuple[Tile, ...]:
    """Lay out the tiles of dealt rows (`spmark.impls.lo_spmm.reorder.deal_rows`). O(nnz log nnz).

    A row's products keep the order of its columns, so a tile's sums do not depend on how rows are dealt. Rows without
    entries are spread evenly over the tiles (`spmark.impls.lo_spmm.reorder.deal_empty_rows`).

    Parameters
    ----------
    matrix : Csr
    values : (nnz,) float32
        Weights; stored zeros are kept.
    dealt : sequence of (m,) int32
        Distinct rows of each tile.

    Returns
    -------
    tuple of Tile
        One for each of ``dealt``, then tiles of empty rows alone, which few matrices need.

    Raises
    ------
    BuildError
        A weight is not finite: no instruction takes such a literal.
    """
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        raise BuildError(f"{NAME}: expected finite weights, found {values[bad[0]]} at position {bad[0]} of the CSR")
    tile_of, sum_of = np.zeros((2, matrix.num_rows), np.int32)
    for number, rows in enumerate(dealt):
        tile_of[rows] = number
        sum_of[rows] = np.arange(rows.size)
    entry_rows = matrix.rows_of_entries()
    order = np.lexsort((sum_of[entry_rows], matrix.indices, tile_of[entry_rows]))
    ends = np.searchsorted(tile_of[entry_rows[order]], np.arange(len(dealt) + 1))
    empty = deal_empty_rows(matrix, dealt)
    tiles = []
    for rows, first, last, of_empty in zip(dealt, ends, ends[1:], empty, strict=False):
        entries = order[first:last]
        cols, starts = np.unique(matrix.indices[entries], return_index=True)
        starts = np.append(starts, entries.size).astype(np.int64)
        sums, weights = sum_of[entry_rows[entries]], np.asarray(values, np.float32)[entries]
        tiles.append(Tile(np.asarray(rows, np.int32), cols, starts, sums, weights, of_empty))
    none, start = np.zeros(0, np.int32), np.zeros(1, np.int64)
    return (*tiles, *(Tile(none, none, start, none, np.zeros(0, np.float32), rows) for rows in empty[len(dealt) :]))
