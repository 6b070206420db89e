"""BSR(R, C): the matrix as dense R x C blocks wherever a block has a non-zero, for tensor cores and register tiles.

Names follow SciPy's ``bsr_array``. The block need not divide the shape. The scatter positions that make the round trip
exact also bring an SDDMM's blocks into CSR order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.problem import Csr
from spmark.impls.core.spans import offsets, openings
from spmark.impls.formats.limits import check_stored

_CHUNK = 1 << 22


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
    """(nnz,) int32: place in ``blocks.reshape(-1)`` of every non-zero, in the matrix's CSR order."""

    @property
    def block_shape(self) -> tuple[int, int]:
        """(R, C)."""
        return self.blocks.shape[1], self.blocks.shape[2]

    @property
    def stored(self) -> int:
        """Elements held, padding included: nblocks R C."""
        return self.blocks.size

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Give ``indptr``, ``indices``, ``blocks`` and ``positions`` (SpMM needs no positions)."""
        return {"indptr": self.indptr, "indices": self.indices, "blocks": self.blocks, "positions": self.positions}


@dataclass(frozen=True, eq=False)
class BsrFormat(DenseBlocks):
    """Block-compressed sparse rows: all ceil(I / R) block rows are listed."""

    name: ClassVar[str] = "bsr"

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
            O(nnz log R + stored), since the R sorted rows of a block row are merged. Scratch memory is O(I), about 60
            bytes for each of 4 million non-zeros at a time, and 8 bytes a non-zero.

        Raises
        ------
        ValueError
            R or C below 1.
        BuildError
            More than `spmark.impls.formats.limits.MAX_STORED` elements.
        """
        if block_rows < 1 or block_cols < 1:
            raise ValueError(f"expected blocks of at least 1 x 1, found {block_rows} x {block_cols}")
        num_block_rows = -(-matrix.num_rows // block_rows)
        num_block_cols = -(-matrix.num_cols // block_cols)
        size = block_rows * block_cols
        # Entries of a block row stand together, so block rows can be taken in chunks that bound the temporary memory.
        first_entry = matrix.indptr[np.minimum(np.arange(num_block_rows + 1) * block_rows, matrix.num_rows)]
        cuts = np.searchsorted(first_entry, np.arange(0, matrix.nnz, _CHUNK), side="right") - 1
        positions = np.empty(matrix.nnz, np.int32)
        indptr = np.zeros(num_block_rows + 1, np.int64)
        indices = [np.zeros(0, np.int32)]
        num_blocks = 0
        for start, stop in pairwise([*np.unique(cuts), num_block_rows]):
            part = slice(first_entry[start], first_entry[stop])
            rows = slice(start * block_rows, stop * block_rows)
            key, block, row = _blocks_of(matrix, rows, part, block_rows, block_cols)
            inside = (row % block_rows) * np.int32(block_cols) + matrix.indices[part] % np.int32(block_cols)
            positions[part] = (num_blocks + block) * size + inside
            block_row, block_col = np.divmod(key, num_block_cols)
            indptr[start + 1 : stop + 1] = np.bincount(block_row - start, minlength=stop - start)
            indices.append(block_col.astype(np.int32))
            num_blocks += key.size
        name = f"bsr({block_rows}, {block_cols})"
        check_stored(name, matrix, num_blocks * size)
        blocks = np.zeros((num_blocks, block_rows, block_cols), np.float32)
        blocks.reshape(-1)[positions] = matrix.values
        return cls(matrix.shape, np.cumsum(indptr).astype(np.int32), np.concatenate(indices), blocks, positions)

    def to_csr(self) -> Csr:
        """Give the matrix back; O(nnz + nblocks)."""
        block_rows, block_cols = self.block_shape
        block, slot = np.divmod(self.positions, np.int32(block_rows * block_cols))
        block_row = np.repeat(np.arange(self.indptr.size - 1, dtype=np.int32), np.diff(self.indptr))
        rows = block_row[block] * np.int32(block_rows) + slot // block_cols
        indptr = offsets(np.bincount(rows, minlength=self.shape[0]), np.int32)
        indices = self.indices[block] * np.int32(block_cols) + slot % block_cols
        return Csr(self.shape, indptr, indices.astype(np.int32, copy=False), self.blocks.reshape(-1)[self.positions])


def _blocks_of(
    matrix: Csr, rows: slice, part: slice, block_rows: int, block_cols: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]:
    """Give the keys of the blocks of some rows, in order, and the block and the row of each entry of these rows.

    A key is the block row times the number of block columns, plus the block column.
    """
    lengths = matrix.row_lengths[rows]
    row = np.repeat(np.arange(rows.start, rows.start + lengths.size, dtype=np.int32), lengths)
    keys = (row // block_rows) * np.int64(-(-matrix.num_cols // block_cols)) + matrix.indices[part] // block_cols
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    opens = openings(keys)
    block = np.empty(keys.size, np.int64)
    block[order] = np.cumsum(opens) - 1
    return keys[opens], block, row
