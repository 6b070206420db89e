"""Tiles: a matrix as dense blocks of gathered columns, padded rows and runs of non-zeros, of many shapes at once.

The hybrid storage of Fang, Shen, Wang and Chen, "STile: Searching Hybrid Sparse Formats for Sparse Deep Learning
Operators Automatically", SIGMOD 2024, sections 2.2 and 3.1. A `Selection` gives the tile of each non-zero, which has
exactly one, so that the sum of the tiles is the matrix.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.errors import BuildError
from spmark.impls.core.problem import Csr
from spmark.impls.core.spans import offsets
from spmark.impls.formats import limits
from spmark.impls.formats.hyb import HybFormat

BLOCK, ELL, RUN = 0, 1, 2
"""Kinds of tiles: rows of a window by gathered columns, zeros kept; padded rows; runs of non-zeros without padding."""
GROUP = 16
"""Columns of a group, by which block tiles grow."""


@dataclass(frozen=True, eq=False)
class Selection:
    """The tile of each non-zero, and the shape of each tile."""

    owner: NDArray[np.int32]
    """(nnz,) tile of each non-zero, in CSR order."""
    kind: NDArray[np.int8]
    """(T,) `BLOCK`, `ELL` or `RUN`; every tile has at least one non-zero."""
    height: NDArray[np.int32]
    """(T,) most rows."""
    width: NDArray[np.int32]
    """(T,) most non-zeros of a row of an ELL tile, a power of two; for blocks and runs the width that the search
    priced."""
    window: NDArray[np.int32]
    """(T,) window of a block, -1 for other tiles; blocks of one window and height are summed together."""
    window_rows: NDArray[np.int32]
    """(W, tallest) rows of each window, -1 where it has fewer."""


@dataclass(frozen=True, eq=False)
class Blocks:
    """Panels of block tiles of one height; a panel sums all tiles of its window."""

    rows: NDArray[np.int32]
    """(p, R) rows of A, -1 where the window has fewer rows or the panel has no non-zero of the row."""
    indptr: NDArray[np.int32]
    """(p + 1,) groups of each panel."""
    indices: NDArray[np.int32]
    """(g, 16) columns, rising through a panel; its last column fills up its last group."""
    values: NDArray[np.float32]
    """(g, R, 16) row-major."""
    held: NDArray[np.int32]
    """(n,) non-zeros of A that are stored: panel by panel, each in CSR order."""
    places: NDArray[np.int64]
    """(n,) place of each of these non-zeros in ``values.reshape(-1)``."""


@dataclass(frozen=True, eq=False)
class Runs:
    """One-dimensional tiles."""

    indptr: NDArray[np.int32]
    """(t + 1,) elements of each tile."""
    rows: NDArray[np.int32]
    """(n,) row of each element."""
    indices: NDArray[np.int32]
    """(n,) column of each element."""
    values: NDArray[np.float32]
    """(n,) value of each element."""
    held: NDArray[np.int32]
    """(n,) non-zero of A that each element is, as its position in CSR order."""


@dataclass(frozen=True, eq=False)
class TileFormat:
    """A matrix in tiles.

    Rows of ELL tiles stand in buckets. Each width has two: one for rows that other tiles share, one for the rest. Which
    rows make a tile matters to the search, but not to the kernel.
    """

    name: ClassVar[str] = "tiles"

    shape: tuple[int, int]
    """(I, K)."""
    nnz: int
    blocks: Mapping[int, Blocks]
    """By height."""
    ell: HybFormat | None
    """Buckets of ELL rows, wide before narrow, shared before whole, tile after tile; ``starts`` are places in
    `ell_held`."""
    ell_held: NDArray[np.int32]
    """(n,) non-zeros of A in ELL rows, tile after tile, each in CSR order."""
    runs: Runs | None

    @classmethod
    def from_csr(cls, matrix: Csr, selection: Selection, *, thirds: bool = False) -> TileFormat:
        """Lay out tiles.

        Parameters
        ----------
        matrix : Csr
        selection : Selection
        thirds : bool
            Whether ELL rows that fill at most 3/4 of a tile of 32 and more stand in buckets of that width.

        Returns
        -------
        TileFormat
            O(nnz + c log c + stored) for c columns of panels; one pass over the non-zeros is serial, the rest runs on
            all cores.

        Raises
        ------
        BuildError
            A non-zero has no tile, a row is not in its block's window, an ELL tile has too many rows, or the tiles
            would hold more than `MAX_STORED` elements.
        """
        owner = selection.owner
        if owner.shape != (matrix.nnz,) or (owner.size and not 0 <= owner.min() <= owner.max() < selection.kind.size):
            raise BuildError(
                f"expected a tile out of {selection.kind.size} for each of {matrix.nnz:,} non-zeros, found "
                f"{owner.size:,} numbers from {owner.min(initial=0)} to {owner.max(initial=0)}"
            )
        from spmark.impls.formats.tile_layout import Layout

        layout = Layout.of(matrix, selection)
        blocks: dict[int, Blocks] = {}
        room = limits.MAX_STORED
        for height in layout.heights:
            blocks[height] = layout.blocks(height, room)
            room -= blocks[height].values.size
        runs = layout.runs()
        pieces = [part.rows[part.rows >= 0] for part in blocks.values()]
        if runs:
            pieces.append(_rows_of_runs(runs))
        ell, ell_held = layout.ell(pieces, room, thirds)
        return cls(matrix.shape, matrix.nnz, blocks, ell, ell_held, runs)

    @property
    def stored(self) -> int:
        """Elements held, padding included."""
        in_blocks = sum(part.values.size for part in self.blocks.values())
        return in_blocks + (self.ell.stored if self.ell else 0) + (self.runs.values.size if self.runs else 0)

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Give every array, named by kind, height and role, such as ``block_16_indices``."""
        named: dict[str, NDArray[Any]] = {}
        for height, part in self.blocks.items():
            named |= {f"block_{height}_{role}": array for role, array in vars(part).items()}
        if self.ell:
            named |= {f"ell_{role}": array for role, array in self.ell.arrays().items()} | {"ell_held": self.ell_held}
        if self.runs:
            named |= {f"run_{role}": array for role, array in vars(self.runs).items()}
        return named

    def to_csr(self) -> Csr:
        """Give the matrix back. O(stored)."""
        rows, indices = np.zeros(self.nnz, np.int32), np.zeros(self.nnz, np.int32)
        values = np.zeros(self.nnz, np.float32)
        for high, blocks in self.blocks.items():
            group, inside = np.divmod(blocks.places, high * GROUP)
            row, slot = np.divmod(inside, GROUP)
            panel = np.repeat(np.arange(blocks.rows.shape[0]), np.diff(blocks.indptr))
            rows[blocks.held] = blocks.rows[panel[group], row]
            indices[blocks.held] = blocks.indices[group, slot]
            values[blocks.held] = blocks.values.reshape(-1)[blocks.places]
        if self.ell:
            pieces, real = self.ell.to_csr(), np.flatnonzero(self.ell.rows >= 0)
            real = real[np.argsort(self.ell.starts[real], kind="stable")]
            rows[self.ell_held] = np.repeat(self.ell.rows[real], self.ell.lengths[real])
            indices[self.ell_held], values[self.ell_held] = pieces.indices, pieces.values
        if self.runs:
            rows[self.runs.held], indices[self.runs.held] = self.runs.rows, self.runs.indices
            values[self.runs.held] = self.runs.values
        indptr = offsets(np.bincount(rows, minlength=self.shape[0]), np.int32)
        return Csr(self.shape, indptr, indices, values)


def _rows_of_runs(runs: Runs) -> NDArray[np.int32]:
    """Give the row of every piece: a piece is the part of a row in one run, and rows rise within a run."""
    begins = np.zeros(runs.rows.size, np.bool_)
    begins[runs.indptr[:-1]] = True
    begins[1:] |= np.diff(runs.rows) != 0
    rows: NDArray[np.int32] = runs.rows[begins]
    return rows
