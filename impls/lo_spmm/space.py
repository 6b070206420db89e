"""The tile sizes that are considered: M1 rows of A and N1 columns of B for a thread block (LO-SpMM, section 3.1).

The paper gives a thread one column. Here it may have two or four side by side, which one vector load brings: N1 is
``threads * cpt``, and a thread holds ``M1 * cpt`` sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

TILE_ROWS = (2, 4, 8, 12, 16, 20, 24, 32, 48, 64, 96, 128)
"""M1; the range of the paper's table 3, with steps between the powers of two where registers make them differ."""
THREADS = (32, 64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1024)
COLUMNS_PER_THREAD = (1, 2, 4)


@dataclass(frozen=True, order=True)
class TileSize:
    """One point of the space."""

    tile_rows: int
    """M1."""
    threads: int
    """Of a thread block."""
    cpt: int = 1
    """Neighbouring columns of a thread, loaded at once."""

    @property
    def tile_width(self) -> int:
        """N1, columns of a thread block."""
        return self.threads * self.cpt


def tile_sizes(
    num_rows: int,
    width: int,
    tile_rows: Sequence[int] = TILE_ROWS,
    threads: Sequence[int] = THREADS,
    columns_per_thread: Sequence[int] = COLUMNS_PER_THREAD,
) -> Iterator[TileSize]:
    """Walk the space of one problem.

    Parameters
    ----------
    num_rows : int
        Rows of A that are not empty; one M1 beyond them is kept, since it covers all of them.
    width : int
        J. A vector load needs rows of B that start aligned, so ``cpt`` divides it; one N1 beyond J is kept for each
        ``cpt``.
    tile_rows, threads, columns_per_thread : sequence of int
        Values to combine, increasing.
    """
    for rows in _up_to(tile_rows, num_rows):
        for cpt in columns_per_thread:
            if width % cpt == 0:
                for count in _up_to(threads, -(-width // cpt)):
                    yield TileSize(rows, count, cpt)


def _up_to(values: Sequence[int], most: int) -> Iterator[int]:
    """Give the values below ``most`` and the first that reaches it."""
    for value in values:
        yield value
        if value >= most:
            return
