"""The launcher of CSR SpMM by rows, the schedule of SparseTIR without composable formats."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from spmark.impls.core.interfaces import DeviceArray
from spmark.impls.core.problem import Problem
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import Target, ceil_div
from spmark.impls.runtime.template import C_TYPES, KernelTemplate

LANES = 32
"""Threads of a row."""
SPMM_CSR_ROWS = KernelTemplate(
    Path(__file__).parent / "csr_rows.cu",
    "spmm_csr_rows",
    {"T": ("float", "half"), "coarsen": (1, 2), "threads": (256,)},
    max_registers=48,
)


class CsrRowsPlan(DevicePlan):
    """C = A B by `SPMM_CSR_ROWS`; the matrix is used as it comes.

    Parameters
    ----------
    problem : Problem
    target : Target
    coarsen : int
        Columns of a lane, `LANES` apart.
    """

    def __init__(self, problem: Problem, target: Target, coarsen: int) -> None:
        matrix = problem.matrix
        super().__init__(problem, target, {"coarsen": coarsen})
        self.stored = matrix.nnz
        threads = int(SPMM_CSR_ROWS.space["threads"][0])
        with self.phase("compile"):
            instance = SPMM_CSR_ROWS.instance(T=C_TYPES[problem.dtype], coarsen=coarsen, threads=threads)
            (self._kernel,) = target.load([instance])
        with self.phase("upload"):
            self._arrays = [self.upload(array) for array in (matrix.indptr, matrix.indices, problem.values)]
        self._sizes = np.int32(matrix.num_rows), np.int32(problem.width)
        self._grid = (ceil_div(matrix.num_rows, threads // LANES), ceil_div(problem.width, LANES * coarsen), 1)

    def enqueue(self, operands: Sequence[DeviceArray], out: DeviceArray) -> None:
        """One launch; it writes every row."""
        self._kernel.launch(self._grid, (*self._sizes, *self._arrays, *operands, out))
