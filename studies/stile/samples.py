"""The tiles that a calibration measures, each many times over: algorithm 1's micro-benchmarks, without a device.

Fang, Shen, Wang and Chen, "STile", SIGMOD 2024, section 3.2. A tile has as many copies as keep the GPU busy, each with
rows and columns of its own. The measured cost is thus that of a tile where all multiprocessors work and share nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.problem import Csr
from spmark.impls.formats.hyb import Bucket, HybFormat
from spmark.impls.formats.tiles import BLOCK, GROUP, Blocks, Selection, TileFormat
from spmark.impls.stile.prices import ONE_DIMENSION
from spmark.studies.stile.fitting import Tile

HEIGHT = 16
"""Rows of a block tile, except for SpMM's lower ones."""
SPMM_PARTS = (32, 64)
"""Columns of B that tiles are measured with."""
SDDMM_PARTS = (16, 32, 64)
"""Slices of J."""
BLOCK_COLS = tuple(range(GROUP, 161, GROUP))
"""Columns of SpMM's block tiles, as published."""
SDDMM_FILLED = 4
"""Non-zeros of a row of SDDMM's block tile: a quarter, since only non-zeros are written."""
SDDMM_WIDTHS = (32, 64, 128, 256, 512)
_ELEMENTS = (64, 256)
_ELL_WIDTHS = (1, 2, 4, 8, 16, 32)
_COLUMN_COUNTS = 4
_PANEL = 4


@dataclass(frozen=True, eq=False)
class Pattern:
    """A tile, described by the columns of its non-zeros."""

    columns: int
    """Different columns."""
    indices: NDArray[np.int32]
    """(rows, non-zeros of a row) columns from 0."""

    def tile(self, part: int) -> Tile:
        """Give the four numbers that describe the tile, with ``part`` columns of B or J."""
        rows, width = self.indices.shape
        return rows, width, self.columns, part

    def in_copies(self, copies: int) -> NDArray[np.int32]:
        """Give the columns of all non-zeros of copies with columns of their own, copy after copy."""
        copy = np.arange(copies, dtype=np.int32)
        return (copy[:, None, None] * self.columns + self.indices).reshape(-1).astype(np.int32)


def _drawn(rng: np.random.Generator, rows: int, width: int, most: int, counts: int) -> Iterator[Pattern]:
    """Draw tiles with few and many different columns, from ``width`` to ``most``."""
    for wanted in np.unique(np.geomspace(width, most, counts).astype(int)):
        drawn = [np.sort(rng.choice(wanted, width, replace=False)) for _ in range(rows)]
        named, indices = np.unique(np.stack(drawn), return_inverse=True)
        yield Pattern(named.size, indices.reshape(rows, width).astype(np.int32))


def ell_tiles(parts: tuple[int, ...]) -> Iterator[tuple[int, Pattern]]:
    """Draw ELL tiles of every width with few and many different columns, for every number of B's columns."""
    rng = np.random.default_rng(0)
    for part, elements, width in product(parts, _ELEMENTS, _ELL_WIDTHS):
        yield from ((part, tile) for tile in _drawn(rng, elements // width, width, elements, _COLUMN_COUNTS))


def ell_copies(tile: Pattern, copies: int, shared: bool) -> HybFormat:
    """Lay copies of an ELL tile out; where ``shared``, every two copies add into the same rows."""
    rows, width = tile.indices.shape
    copy = np.arange(copies, dtype=np.int32)
    of = np.repeat(copy // 2 if shared else copy, rows) * rows + np.tile(np.arange(rows, dtype=np.int32), copies)
    count = rows * copies
    return HybFormat(
        (count // 2 if shared else count, tile.columns * copies),
        of.astype(np.int32),
        np.full(count, width, np.int32),
        np.arange(0, count * width, width, dtype=np.int32),
        (Bucket(0, width, shared, 0, count, 0),),
        count * width,
        indices=tile.in_copies(copies),
        values=np.full(count * width, 0.75, np.float32),
    )


def block_copies(cols: int, copies: int, shared: bool, height: int = HEIGHT) -> TileFormat:
    """Lay copies of a block tile of ``height`` x ``cols`` out; where ``shared``, every two add into the same rows."""
    copy = np.arange(copies, dtype=np.int32)
    window = copy // 2 if shared else copy
    rows = (window[:, None] * height + np.arange(height)).astype(np.int32)
    groups = copies * cols // GROUP
    blocks = Blocks(
        rows,
        np.arange(0, groups + 1, cols // GROUP, dtype=np.int32),
        np.arange(copies * cols, dtype=np.int32).reshape(-1, GROUP),
        np.full((groups, height, GROUP), 0.75, np.float32),
        np.empty(0, np.int32),
        np.empty(0, np.int64),
    )
    shape = int(rows[-1, -1]) + 1, copies * cols
    return TileFormat(shape, groups * height * GROUP, {height: blocks}, None, np.empty(0, np.int32), None)


def sddmm_block_copies(copies: int) -> tuple[Csr, TileFormat]:
    """Give a matrix of copies of SDDMM's block tile, four to a window, and its layout as tiles."""
    panels = copies // _PANEL
    tile = np.arange(panels * _PANEL, dtype=np.int32).reshape(panels, 1, _PANEL, 1)
    filled = (np.arange(HEIGHT)[:, None] + np.arange(SDDMM_FILLED) * (GROUP // SDDMM_FILLED)) % GROUP
    # Within a window a row has its non-zeros of all four tiles one after the other.
    columns = tile * GROUP + np.sort(filled)[None, :, None]
    indptr = np.arange(0, columns.size + 1, _PANEL * SDDMM_FILLED, dtype=np.int32)
    shape = panels * HEIGHT, panels * _PANEL * GROUP
    matrix = Csr(shape, indptr, columns.reshape(-1).astype(np.int32), np.full(columns.size, 0.75, np.float32))
    each = np.ones(tile.size, np.int32)
    rows = np.arange(shape[0], dtype=np.int32).reshape(-1, HEIGHT)
    owner = np.broadcast_to(tile, columns.shape).reshape(-1)
    return matrix, TileFormat.from_csr(
        matrix,
        Selection(
            owner, np.full(tile.size, BLOCK, np.int8), HEIGHT * each, GROUP * each, tile.reshape(-1) // _PANEL, rows
        ),
    )


def run_tiles() -> Iterator[Pattern]:
    """Draw one-dimensional tiles of 1 to 32 rows with few and many different columns."""
    rng = np.random.default_rng(0)
    for rows in _ELL_WIDTHS:
        yield from _drawn(rng, rows, ONE_DIMENSION // rows, ONE_DIMENSION, 3)


def run_copies(tile: Pattern, copies: int) -> Csr:
    """Give the matrix of copies of a one-dimensional tile."""
    rows, each = tile.indices.shape
    indices = tile.in_copies(copies)
    indptr = np.arange(0, indices.size + 1, each, dtype=np.int32)
    return Csr((rows * copies, tile.columns * copies), indptr, indices, np.full(indices.size, 0.75, np.float32))
