"""What `auto` looks at: sizes and lengths of rows, which one pass over indptr gives, and never indices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.problem import Csr, DType

NAMES = ("num_rows", "nnz", "mean", "longest", "deviation", "density", "row_bytes", "item_bytes")
"""Order of `Features.vector`."""


@dataclass(frozen=True)
class Features:
    """A matrix as choices see it."""

    num_rows: int
    num_cols: int
    nnz: int
    longest: int
    """Non-zeros of the longest row."""
    deviation: float
    """Standard deviation of the rows' lengths."""

    @classmethod
    def of(cls, matrix: Csr) -> Features:
        """Look at a matrix. O(I)."""
        lengths = matrix.row_lengths
        return cls(
            *matrix.shape, matrix.nnz, int(lengths.max(initial=0)), float(lengths.std()) if lengths.size else 0.0
        )

    @property
    def mean(self) -> float:
        """Non-zeros of a mean row."""
        return self.nnz / max(1, self.num_rows)

    def vector(self, width: int, dtype: DType) -> NDArray[np.float64]:
        """Give what trees look at, (len(NAMES),) float64: logarithms, those of rows over the mean row.

        Parameters
        ----------
        width : int
            J.
        dtype : DType
        """
        mean = max(self.mean, 1e-3)
        told = (
            self.num_rows, max(1, self.nnz), mean, max(1, self.longest) / mean, 0.01 + self.deviation / mean,
            max(mean / self.num_cols, 1e-7), width * dtype.itemsize, dtype.itemsize,
        )  # fmt: skip
        return np.log2(told)

    def unit_us(self, width: int, dtype: DType, dense: bool = False) -> float:
        """Give the least time of an H200, microseconds: the unit in which times are learned.

        The start of a kernel, and the larger of the bytes of all operands at 4,255 GB/s and nnz J elements of four
        bytes at 8.5 TB/s. For dense products, I K J at 20 or, of halves, 200 tera a second.

        Parameters
        ----------
        width : int
            J.
        dtype : DType
        dense : bool
            Whether zeros are multiplied, too.
        """
        if dense:
            return 3.5 + self.num_rows * self.num_cols * width / (2e8 if dtype is DType.FLOAT16 else 2e7)
        operand_bytes = self.nnz * (4 + dtype.itemsize) + (self.num_rows + self.num_cols) * width * dtype.itemsize
        return 3.5 + max(operand_bytes / 4255e3, self.nnz * width * dtype.itemsize / 4 / 8.5e6)
