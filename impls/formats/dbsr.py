"""DBSR: BSR with a list of the block rows that hold blocks, for matrices with many empty block rows.

Ye et al., "SparseTIR: Composable Abstractions for Sparse Compilation in Deep Learning", ASPLOS 2023, section 4.3.2,
after the doubly compressed rows of Buluç and Gilbert, "On the representation and multiplication of hypersparse
matrices", IPDPS 2008. A kernel then starts no thread block for an empty block row, so another kernel has to clear the
rows of C that belong to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.problem import Csr
from spmark.impls.formats.bsr import BsrFormat, DenseBlocks


@dataclass(frozen=True, eq=False)
class DbsrFormat(DenseBlocks):
    """Doubly compressed block rows: only block rows with a block are listed."""

    name: ClassVar[str] = "dbsr"

    rows: NDArray[np.int32]
    """(n,) int32, increasing: the block rows that are listed; block row b starts at row b R."""

    @classmethod
    def from_csr(cls, matrix: Csr, block_rows: int = 16, block_cols: int = 16) -> DbsrFormat:
        """Cut ``matrix`` as `BsrFormat.from_csr` does, and drop block rows without a block."""
        whole = BsrFormat.from_csr(matrix, block_rows, block_cols)
        counts = np.diff(whole.indptr)
        rows = np.flatnonzero(counts).astype(np.int32)
        indptr = np.concatenate([whole.indptr[:1], whole.indptr[1:][rows]])
        return cls(matrix.shape, indptr, whole.indices, whole.blocks, whole.positions, rows)

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Give ``rows`` and the arrays of BSR."""
        return {"rows": self.rows, **super().arrays()}

    def to_csr(self) -> Csr:
        """Give the matrix back; O(nnz + nblocks + I)."""
        indptr = np.zeros(-(-self.shape[0] // self.block_shape[0]) + 1, np.int32)
        indptr[self.rows + 1] = np.diff(self.indptr)
        whole = np.cumsum(indptr, dtype=np.int32)
        return BsrFormat(self.shape, whole, self.indices, self.blocks, self.positions).to_csr()
