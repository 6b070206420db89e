"""The tile sizes that are considered: M1 rows of A and N1 columns of B for a thread block (LO-SpMM, section 3.1).

The paper gives a thread one column, and a thread block one tile. Here a thread may have two or four columns side by
side, which one vector load brings, and a block several tiles of the same columns. N1 is then ``threads * cpt``, and a
thread has ``M1 * cpt`` sums. A row of B that several tiles of a block need comes to the multiprocessor once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from spmark.impls.runtime.target import ceil_div

TILE_ROWS = (2, 4, 8, 12, 16, 20, 24, 32, 48, 64, 96, 128)
"""M1; the range of the paper's table 3, with steps between the powers of two where registers make them differ."""
THREADS = (32, 64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1024)
COLUMNS_PER_THREAD = (1, 2, 4)
TILES_PER_BLOCK = (1, 2, 3, 4, 6, 8)
SPLITS = (1, 2, 4, 8)
"""Parts that the columns of A are cut into; the paper does not cut them."""
MOST_THREADS = 1024
"""Threads of a thread block, on every architecture since sm_20."""


@dataclass(frozen=True, order=True)
class TileSize:
    """One point of the space."""

    tile_rows: int
    """M1."""
    threads: int
    """Threads of a tile; also of the thread block where that has one tile, as in the paper."""
    cpt: int = 1
    """Neighbouring columns of a thread, loaded at once."""
    tiles_per_block: int = 1
    """Row tiles of a thread block, each with threads of its own."""
    split: int = 1
    """Parts of the columns of A, each with tiles of its own (`spmark.impls.lo_spmm.parts`)."""

    @property
    def tile_width(self) -> int:
        """N1, columns of a thread block."""
        return self.threads * self.cpt

    @property
    def block_threads(self) -> int:
        """Threads of a thread block."""
        return self.threads * self.tiles_per_block


def grid_of(size: TileSize, num_tiles: int, width: int) -> tuple[int, int, int]:
    """Give the thread blocks of a launch: columns first, so that blocks of the same tiles follow each other.

    ``num_tiles`` counts the tiles of every part.
    """
    return ceil_div(width, size.tile_width), ceil_div(num_tiles, size.tiles_per_block), 1


def tile_sizes(
    num_rows: int,
    width: int,
    tile_rows: Sequence[int] = TILE_ROWS,
    threads: Sequence[int] = THREADS,
    columns_per_thread: Sequence[int] = COLUMNS_PER_THREAD,
    *,
    tiles_per_block: Sequence[int] = TILES_PER_BLOCK,
    splits: Sequence[int] = (1,),
) -> Iterator[TileSize]:
    """Walk the space of one problem.

    Parameters
    ----------
    num_rows : int
        Rows of A that are not empty; one M1 beyond their number is kept, since it covers all of them.
    width : int
        J. A vector load needs rows of B that start aligned, so ``cpt`` divides it; one N1 beyond J is kept for each
        ``cpt``.
    tile_rows, threads, columns_per_thread, tiles_per_block, splits : sequence of int
        Values to combine, increasing. A block has threads for all of its tiles. It has at most as many tiles as there
        are, except for the least ``tiles_per_block``.
    """
    for rows in _up_to(tile_rows, num_rows):
        for cpt in columns_per_thread:
            if width % cpt == 0:
                for count in _up_to(threads, ceil_div(width, cpt)):
                    for together in tiles_per_block:
                        needed = together == tiles_per_block[0] or together <= ceil_div(num_rows, rows)
                        if needed and together * count <= MOST_THREADS:
                            for split in splits:
                                yield TileSize(rows, count, cpt, together, split)


def _up_to(values: Sequence[int], most: int) -> Iterator[int]:
    """Give the values below ``most`` and the first that reaches it."""
    for value in values:
        yield value
        if value >= most:
            return
