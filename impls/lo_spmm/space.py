"""The tile sizes that are considered: M1 rows of A and N1 columns of B for a thread block (LO-SpMM, section 3.1).

The paper gives a thread one column, and a thread block one tile. Here a thread may have two or four columns side by
side, which one vector load brings, and a block several tiles of the same columns. N1 is then ``threads * cpt``, and a
thread has ``M1 * cpt`` sums. A row of B that several tiles of a block need comes to the multiprocessor once.
"""

from __future__ import annotations

from dataclasses import dataclass

from spmark.impls.runtime.target import ceil_div

SPLITS = (1, 2, 4, 8)
"""Parts that the columns of A are cut into; the paper does not cut them."""
VALUES = {
    "tile_rows": (2, 4, 8, 12, 16, 20, 24, 32, 48, 64, 96, 128),
    "threads": (32, 64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1024),
    "cpt": (1, 2, 4),
    "tiles_per_block": (1, 2, 3, 4, 6, 8),
    "split": SPLITS,
}
"""Values of a tile size's fields. Those of M1 have the range of the paper's table 3, with steps between the powers of
two where registers make them differ."""
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
