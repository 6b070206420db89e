"""DBSR: BSR with a list of the block rows that hold blocks, for matrices of which many block rows are empty.

Ye et al., "SparseTIR: Composable Abstractions for Sparse Compilation in Deep Learning", ASPLOS 2023, section 4.3.2,
after the doubly compressed rows of Buluç and Gilbert, "On the representation and multiplication of hypersparse
matrices", IPDPS 2008. A kernel then starts no thread block for an empty block row, and somebody else has to clear its
rows of C.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.problem import Csr
from spmark.impls.formats.bsr import BsrFormat
from spmark.impls.formats.limits import MAX_STORED


@dataclass(frozen=True, eq=False)
class DbsrFormat:
    """Doubly compressed block rows: `BsrFormat` without its empty block rows.

    Padding is known from `positions`, never by value: stored zeros are kept.
    """

    name: ClassVar[str] = "dbsr"

    shape: tuple[int, int]
    """(I, K)."""
    rows: NDArray[np.int32]
    """(n,) int32, increasing: the block rows that hold a block; block row b starts at row b R."""
    indptr: NDArray[np.int32]
    """(n + 1,) int32; the blocks of ``rows[r]`` are at ``indptr[r]:indptr[r + 1]``, at least one."""
    indices: NDArray[np.int32]
    """(nblocks,) int32 block columns, increasing in every block row: block column c starts at column c C."""
    blocks: NDArray[np.float32]
    """(nblocks, R, C) float32, each block row-major."""
    positions: NDArray[np.int32]
    """(nnz,) int32: where in ``blocks.reshape(-1)`` every non-zero is, in the matrix's CSR order."""

    @classmethod
    def from_csr(
        cls, matrix: Csr, block_rows: int = 16, block_cols: int = 16, max_stored: int = MAX_STORED
    ) -> DbsrFormat:
        """Cut ``matrix`` into blocks that start at multiples of R and C, and drop block rows without one.

        Parameters
        ----------
        matrix : Csr
        block_rows, block_cols : int
            R and C, at least 1.
        max_stored : int
            Most elements that may be held, below 2^31 in any case (positions are int32).

        Returns
        -------
        DbsrFormat
            At the cost of `BsrFormat.from_csr`.

        Raises
        ------
        ValueError
            R or C below 1.
        BuildError
            More than ``max_stored`` elements.
        """
        whole = BsrFormat.from_csr(matrix, block_rows, block_cols, max_stored)
        counts = np.diff(whole.indptr)
        rows = np.flatnonzero(counts).astype(np.int32)
        indptr = np.concatenate([whole.indptr[:1], whole.indptr[1:][rows]])
        return cls(matrix.shape, rows, indptr, whole.indices, whole.blocks, whole.positions)

    @property
    def block_shape(self) -> tuple[int, int]:
        """(R, C)."""
        return self.blocks.shape[1], self.blocks.shape[2]

    @property
    def stored(self) -> int:
        """Elements held, padding included: nblocks R C."""
        return self.blocks.size

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Give ``rows``, ``indptr``, ``indices``, ``blocks`` and ``positions`` (SpMM needs no positions)."""
        return {
            "rows": self.rows,
            "indptr": self.indptr,
            "indices": self.indices,
            "blocks": self.blocks,
            "positions": self.positions,
        }

    def to_csr(self) -> Csr:
        """Give the matrix back; O(nnz + nblocks + I)."""
        indptr = np.zeros(-(-self.shape[0] // self.block_shape[0]) + 1, np.int32)
        indptr[self.rows + 1] = np.diff(self.indptr)
        whole = np.cumsum(indptr, dtype=np.int32)
        return BsrFormat(self.shape, whole, self.indices, self.blocks, self.positions).to_csr()
