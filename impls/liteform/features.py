"""What the predictors know of a matrix: sizes and four statistics of its row lengths, O(I) from the row pointers alone.

Peng, Thomadakis, Pienaar and Kestor, "LiteForm", HPDC 2025, tables 2 and 3.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.problem import Csr

SELECTION = ("num_rows", "num_cols", "nnz", "avg_length", "min_length", "max_length", "std_length")
"""Features of the format selection, in the order of its models."""
SELECTION_BY_WIDTH = (*SELECTION, "width")
"""The same with J, which the paper leaves out: the format is then chosen for each J by itself."""
PARTITIONS = ("num_rows", "num_cols", "nnz", "avg_density", "min_density", "max_density", "std_density", "width")
"""Features of the number of partitions, in the order of its models."""


@dataclass(frozen=True)
class Features:
    """Sizes of a matrix and statistics of its row lengths; standard deviations are those of a population."""

    num_rows: int
    num_cols: int
    nnz: int
    avg_length: float
    min_length: int
    max_length: int
    std_length: float

    @classmethod
    def of(cls, matrix: Csr) -> Features:
        """Compute the features of a matrix; O(I)."""
        lengths = matrix.row_lengths
        mean, low, high = matrix.nnz / matrix.num_rows, int(lengths.min()), int(lengths.max())
        return cls(*matrix.shape, matrix.nnz, mean, low, high, float(lengths.std()))

    def selection(self, width: int | None = None) -> NDArray[np.float64]:
        """Give (7,) float64 in the order of `SELECTION`, or with J (8,) in that of `SELECTION_BY_WIDTH`."""
        return np.array([*astuple(self), *([] if width is None else [width])], np.float64)

    def partitions(self, width: int) -> NDArray[np.float64]:
        """Give (8,) float64 in the order of `PARTITIONS`: densities are lengths over K."""
        lengths = np.array([self.avg_length, self.min_length, self.max_length, self.std_length])
        sizes = [self.num_rows, self.num_cols, self.nnz]
        return np.concatenate([sizes, lengths / self.num_cols, [width]])
