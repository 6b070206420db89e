"""CSR as a format: the canonical matrix as it is, nothing padded.

The format shares the arrays of its matrix.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.problem import Csr


@dataclass(frozen=True, eq=False)
class CsrFormat:
    """Compressed sparse rows."""

    name: ClassVar[str] = "csr"

    shape: tuple[int, int]
    """(I, K)."""
    indptr: NDArray[np.int32]
    """(I + 1,) int32; row i is at ``indptr[i]:indptr[i + 1]``."""
    indices: NDArray[np.int32]
    """(nnz,) int32 columns, increasing in every row."""
    values: NDArray[np.float32]
    """(nnz,) float32."""

    @classmethod
    def from_csr(cls, matrix: Csr) -> CsrFormat:
        """Wrap ``matrix``; O(1), nothing is copied."""
        return cls(matrix.shape, matrix.indptr, matrix.indices, matrix.values)

    @property
    def stored(self) -> int:
        """Elements held: the non-zeros."""
        return self.indices.size

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Give ``indptr``, ``indices`` and ``values``."""
        return {"indptr": self.indptr, "indices": self.indices, "values": self.values}

    def to_csr(self) -> Csr:
        """Give the matrix back; O(1)."""
        return Csr(self.shape, self.indptr, self.indices, self.values)
