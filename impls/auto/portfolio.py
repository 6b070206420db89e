"""What `auto` chooses among, and what it looks at.

It chooses among implementations of the table, each with a config, by operator and kind of device. It looks at sizes and
lengths of rows, which one pass over indptr gives, and never at indices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spmark.impls.auto.race import Choice
from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.problem import Csr, DType, Op

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
        return cls(*matrix.shape, matrix.nnz, int(lengths.max()), float(lengths.std()))

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
            return 3.5 + self.num_rows * self.num_cols * width / (2e8 if dtype.narrow else 2e7)
        operand_bytes = self.nnz * (4 + dtype.itemsize) + (self.num_rows + self.num_cols) * width * dtype.itemsize
        return 3.5 + max(operand_bytes / 4255e3, self.nnz * width * dtype.itemsize / 4 / 8.5e6)


CSR, CSR_SEARCHED = Choice("direct"), Choice("direct", {"search": True})
CELL = Choice("liteform", {"format": "cell"})
RUNS = Choice("sparsetir", {"tuned": False})
PORTFOLIO: Mapping[Op, Mapping[str, Choice]] = {
    Op.SPMM: {
        "direct": CSR,
        "direct searched": CSR_SEARCHED,
        "liteform cell": CELL,
        "sparsetir": Choice("sparsetir"),
        "stile": Choice("stile"),
        "cublas": Choice("cublas"),
    },
    Op.SDDMM: {
        "sparsetir untuned": RUNS,
        "sparsetir": Choice("sparsetir"),
        "stile": Choice("stile"),
    },
}
"""Candidates on a GPU, by the names that rows of times and models have. GE-SpMM, row splitting and balanced non-zeros
are none of them: hardly any row of the tuning half has them as the fastest. Nor is cuSPARSE, which every race measures.
"""
TWINS = {Choice("stile"): Choice("sparsetir")}
"""Beside a candidate another one that takes less time to search over the same kernels. In narrow types STile has
kernels of its own, on tensor cores."""
BASELINE = Choice("cusparse_best")
_CPU = (Choice("scipy_cpu"), Choice("numba_cpu"))
_FEW_ROWS, _LONG_MEAN, _FEW_WIDTHS = 1024, 128, range(64, 257)
"""Rows, their mean non-zeros and J with which CELL's pieces are worth more than whole rows. Of the pruned layers in the
tuning half, those of 512 rows gain 1.1 to 2.5 times at J = 128 in float32 and those of 2,048 rows lose; at J = 32 and
512 all lose (H200 and H100)."""


def by_rule(op: Op, features: Features, width: int, dtype: DType, kind: DeviceKind) -> tuple[Choice, ...]:
    """Choose without a measurement, in the order of preference; the first that takes the problem serves.

    SpMM: the dense product where that has the lower bound of time; CELL, which cuts rows into pieces, where a few long
    rows would leave most of a GPU idle (`_FEW_ROWS`); else CSR as it comes. SDDMM: runs of non-zeros with a row of X in
    registers.

    Parameters
    ----------
    op : Op
    features : Features
    width : int
        J.
    dtype : DType
    kind : DeviceKind
    """
    if kind is DeviceKind.CPU:
        return _CPU
    if op is Op.SDDMM:
        return RUNS, Choice("rowsplit")
    dense = features.unit_us(width, dtype, dense=True) < features.unit_us(width, dtype)
    few = features.num_rows <= _FEW_ROWS and features.mean >= _LONG_MEAN and width in _FEW_WIDTHS
    sparse = (CELL, CSR) if few else (CSR, CELL)
    return (PORTFOLIO[op]["cublas"], *sparse) if dense else sparse
