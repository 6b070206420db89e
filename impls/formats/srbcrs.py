"""SR-BCRS(t, g): panels of t rows whose used columns are condensed into dense groups of g, for tensor cores.

Li, Osawa and Hoefler, "Efficient Quantized Sparse Matrix Operations on Tensor Cores" (Magicube), SC 2022, section 3, as
Ye et al. use it for pruned weights ("SparseTIR", ASPLOS 2023, section 4.3.2 and figure 18). A tile is one column of one
panel, t x 1: a tile with a non-zero is stored whole, so at least one element in t is a non-zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.problem import Csr
from spmark.impls.core.spans import offsets
from spmark.impls.formats.bsr import BsrFormat, DenseBlocks
from spmark.impls.formats.limits import check_stored


@dataclass(frozen=True, eq=False)
class SrBcrsFormat(DenseBlocks):
    """Panels of t rows, each a list of t x 1 tiles in groups of g: a group is a dense block with a list of its columns.

    A panel's tiles stand in column order. Tiles of zeros fill up its last group; they name the panel's last column,
    which is fetched anyway. All ceil(I / t) panels are listed.
    """

    name: ClassVar[str] = "srbcrs"

    indices: NDArray[np.int32]
    """(ngroups, g) int32 columns, increasing through a panel; tiles that fill up its last group repeat the last column.
    ``blocks[q, r, s]`` of panel p is of row ``p t + r`` and column ``indices[q, s]``."""

    @classmethod
    def from_csr(cls, matrix: Csr, t: int = 8, g: int = 16) -> SrBcrsFormat:
        """Condense the columns of every panel of ``matrix``.

        Parameters
        ----------
        matrix : Csr
        t : int
            Rows of a panel, at least 1.
        g : int
            Tiles of a group, at least 1.

        Returns
        -------
        SrBcrsFormat
            O(nnz log t + stored): tiles are the blocks of BSR(t, 1).

        Raises
        ------
        ValueError
            t or g below 1.
        BuildError
            More than `spmark.impls.formats.limits.MAX_STORED` elements.
        """
        if t < 1 or g < 1:
            raise ValueError(f"expected t and g of at least 1, found t = {t}, g = {g}")
        tiles = BsrFormat.from_csr(matrix, t, 1)
        lengths = np.diff(tiles.indptr)
        indptr = offsets(-(-lengths // g))
        check_stored(f"srbcrs({t}, {g})", matrix, int(indptr[-1]) * t * g)
        # Slot of every tile among those of all groups: its place in the panel, after the groups of earlier panels.
        slots = np.arange(tiles.indices.size) + np.repeat(indptr[:-1] * g - tiles.indptr[:-1], lengths)
        filled = lengths > 0
        last = tiles.indices[tiles.indptr[1:][filled] - 1]
        indices = np.repeat(last, np.diff(indptr)[filled] * g).astype(np.int32, copy=False)
        indices[slots] = tiles.indices
        tile, row = np.divmod(tiles.positions, np.int32(t))
        group, slot = np.divmod(slots, g)
        positions = ((group * t * g + slot)[tile] + row * np.int64(g)).astype(np.int32)
        values = np.zeros((int(indptr[-1]), t, g), np.float32)
        values.reshape(-1)[positions] = matrix.values
        return cls(matrix.shape, indptr.astype(np.int32), indices.reshape(-1, g), values, positions)

    def to_csr(self) -> Csr:
        """Give the matrix back; O(nnz + ngroups)."""
        t, g = self.block_shape
        group, inside = np.divmod(self.positions, np.int32(t * g))
        row, slot = np.divmod(inside, np.int32(g))
        panel = np.repeat(np.arange(self.indptr.size - 1, dtype=np.int32), np.diff(self.indptr))
        rows = panel[group] * np.int32(t) + row
        indptr = offsets(np.bincount(rows, minlength=self.shape[0]), np.int32)
        return Csr(self.shape, indptr, self.indices[group, slot], self.blocks.reshape(-1)[self.positions])
