"""Dense blocks of R x C wherever a block has a non-zero, for tensor cores and register tiles: BSR, DBSR and SR-BCRS.

Names follow SciPy's ``bsr_array``. The block need not divide the shape. Scatter positions say where each non-zero of
the matrix stands, and bring an SDDMM's blocks into CSR order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from spmark.impls.core.problem import Csr, offsets, openings
from spmark.impls.formats.limits import check_stored


@dataclass(frozen=True, eq=False)
class DenseBlocks:
    """Dense blocks of R x C and their places: the base of BSR, DBSR and SR-BCRS.

    A slot of a block without a non-zero of the matrix is padding with value 0; blocks of the last block row or column
    may reach past the matrix. Padding is known from `positions`, never by value: stored zeros are kept.
    """

    shape: tuple[int, int]
    """(I, K)."""
    indptr: NDArray[np.int32]
    """(n + 1,) int32; the blocks of the b-th listed block row are at ``indptr[b]:indptr[b + 1]``."""
    indices: NDArray[np.int32]
    """(nblocks,) int32 block columns, increasing in every block row: block column c starts at column c C."""
    blocks: NDArray[np.float32]
    """(nblocks, R, C) float32, each block row-major."""
    positions: NDArray[np.int32]
    """(nnz,) int32: place in ``blocks.reshape(-1)`` of every non-zero, in the matrix's CSR order; SpMM needs none."""

    @property
    def block_shape(self) -> tuple[int, int]:
        """(R, C)."""
        return self.blocks.shape[1], self.blocks.shape[2]

    @property
    def stored(self) -> int:
        """Elements held, padding included: nblocks R C."""
        return self.blocks.size

    @property
    def nnz(self) -> int:
        """Non-zeros of the matrix."""
        return self.positions.size


@dataclass(frozen=True, eq=False)
class BsrFormat(DenseBlocks):
    """Block-compressed sparse rows: all ceil(I / R) block rows are listed."""

    @classmethod
    def from_csr(cls, matrix: Csr, block_rows: int = 16, block_cols: int = 16) -> BsrFormat:
        """Cut ``matrix`` into blocks that start at multiples of R and C.

        Parameters
        ----------
        matrix : Csr
        block_rows, block_cols : int
            R and C, at least 1.

        Returns
        -------
        BsrFormat
            O(nnz + I + K + stored), with about 45 bytes of scratch memory a non-zero.

        Raises
        ------
        BuildError
            More than `spmark.impls.formats.limits.MAX_STORED` elements.
        """
        num_block_rows, num_block_cols = -(-matrix.num_rows // block_rows), -(-matrix.num_cols // block_cols)
        bounds = matrix.indptr[np.minimum(np.arange(num_block_rows + 1) * block_rows, matrix.num_rows)]
        # Entries of a block row stand together in CSR; two transpositions sort them by block column.
        numbers, columns = np.arange(matrix.nnz, dtype=np.int32), matrix.indices // np.int32(block_cols)
        entries = sparse.csr_array((numbers, columns, bounds), shape=(num_block_rows, num_block_cols)).tocsc().tocsr()
        opens = openings(entries.indices)
        opens[bounds[:-1][np.diff(bounds) > 0]] = True
        before = offsets(opens)  # blocks before each entry
        stored = int(before[-1]) * block_rows * block_cols
        check_stored(f"bsr({block_rows}, {block_cols})", matrix.shape, matrix.nnz, stored)
        block = np.empty(matrix.nnz, np.int32)
        block[entries.data] = before[1:] - 1
        row, col = matrix.rows_of_entries() % np.int32(block_rows), matrix.indices % np.int32(block_cols)
        positions = (block * np.int32(block_rows) + row) * np.int32(block_cols) + col
        blocks = np.zeros((int(before[-1]), block_rows, block_cols), np.float32)
        blocks.reshape(-1)[positions] = matrix.values
        return cls(matrix.shape, before[bounds].astype(np.int32), entries.indices[opens], blocks, positions)


@dataclass(frozen=True, eq=False)
class DbsrFormat(DenseBlocks):
    """Doubly compressed block rows: only block rows with a block are listed, for matrices with many empty ones.

    Ye et al., "SparseTIR: Composable Abstractions for Sparse Compilation in Deep Learning", ASPLOS 2023, section 4.3.2,
    after the doubly compressed rows of Buluç and Gilbert, "On the representation and multiplication of hypersparse
    matrices", IPDPS 2008. A kernel then starts no thread block for an empty block row, so another kernel has to clear
    the rows of C that belong to it.
    """

    rows: NDArray[np.int32]
    """(n,) int32, increasing: the block rows that are listed; block row b starts at row b R."""

    @classmethod
    def from_csr(cls, matrix: Csr, block_rows: int = 16, block_cols: int = 16) -> DbsrFormat:
        """Cut ``matrix`` as `BsrFormat.from_csr` does, and drop block rows without a block."""
        whole = BsrFormat.from_csr(matrix, block_rows, block_cols)
        rows = np.flatnonzero(np.diff(whole.indptr)).astype(np.int32)
        indptr = np.append(whole.indptr[rows], whole.indptr[-1])
        return cls(matrix.shape, indptr, whole.indices, whole.blocks, whole.positions, rows)


@dataclass(frozen=True, eq=False)
class SrBcrsFormat(DenseBlocks):
    """Panels of t rows, each a list of t x 1 tiles in groups of g: a group is a dense block with a list of its columns.

    Li, Osawa and Hoefler, "Efficient Quantized Sparse Matrix Operations on Tensor Cores" (Magicube), SC 2022, section
    3, as Ye et al. use it for pruned weights ("SparseTIR", ASPLOS 2023, section 4.3.2 and figure 18). A tile is one
    column of one panel: a tile with a non-zero is stored whole, so at least one element in t is a non-zero.

    A panel's tiles stand in column order. Tiles of zeros fill up its last group; they name the panel's last column,
    which is fetched anyway. All ceil(I / t) panels are listed.
    """

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
            Time of `BsrFormat.from_csr`: tiles are the blocks of BSR(t, 1).

        Raises
        ------
        BuildError
            More than `spmark.impls.formats.limits.MAX_STORED` elements.
        """
        tiles = BsrFormat.from_csr(matrix, t, 1)
        lengths = np.diff(tiles.indptr)
        indptr = offsets(-(-lengths // g))
        check_stored(f"srbcrs({t}, {g})", matrix.shape, matrix.nnz, int(indptr[-1]) * t * g)
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
